"""Features in memory, in a memory map, in a file, or sparse."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class SparseRows:
    """A SciPy CSR matrix N×D as features: (X − centre)/scale, dense only for the rows of a batch.

    Attributes:
        matrix: N×D CSR. centre, scale: D numbers each, or None.
    """

    dtype = torch.float32

    def __init__(self, matrix: Any, centre: NDArray[Any] | None = None, scale: NDArray[Any] | None = None) -> None:
        self.matrix, dim = matrix, matrix.shape[1]
        self.centre = torch.zeros(dim) if centre is None else torch.as_tensor(centre, dtype=torch.float32)
        self.scale = torch.ones(dim) if scale is None else torch.as_tensor(scale, dtype=torch.float32)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), int(self.matrix.shape[1])

    def index_select(self, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Some rows, dense float32."""
        assert dim == 0
        rows = torch.from_numpy(self.matrix[index.numpy()].toarray()).float()
        return torch.div(rows.sub_(self.centre), self.scale, out=out)

    def __getitem__(self, index: Tensor) -> SparseRows:
        return SparseRows(self.matrix[index.numpy()], self.centre.numpy(), self.scale.numpy())

    def __matmul__(self, W: Tensor) -> Tensor:
        scaled = W / self.scale[:, None]
        return torch.from_numpy(np.asarray(self.matrix @ scaled.numpy(), np.float32)) - self.centre @ scaled


Features = Tensor | SparseRows


def as_features(value: Any, name: str) -> Features:
    """N×D features as a tensor that shares the caller's memory, of the float type they have; sparse ones stay so."""
    if hasattr(value, "tocsr"):  # SciPy's, which need not be installed
        value = SparseRows(value.tocsr())
    if isinstance(value, SparseRows):
        if not value.shape[0] or not value.shape[1]:
            raise ValueError(f"{name} has shape {value.shape}; expected N×D with at least one row and column")
        return value
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{name} has dtype {array.dtype}; expected numbers")
        if not array.dtype.isnative or any(step < 0 for step in array.strides):
            array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a memory map may be read-only; nothing here writes to it
            tensor = torch.from_numpy(array)
    if tensor.ndim != 2 or not tensor.shape[0] or not tensor.shape[1]:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected N×D with at least one row and column")
    return tensor if tensor.is_floating_point() else tensor.float()


def on_device(X: Features, device: torch.device, limit: int) -> Features:
    """Features where they train: on a CPU as they are (float64 is read as float32 batch by batch)."""
    if isinstance(X, SparseRows):
        if device.type != "cpu":
            raise ValueError(f"device: {str(device)!r}, but sparse features train on the CPU: give dense ones")
        return X
    if device.type == "cpu":
        return X.cpu()
    size = X.numel() * min(X.element_size(), 4)
    if size > limit:
        raise MemoryError(
            f"features {tuple(X.shape)} need {size / 2**30:.1f} GiB on {device} and {limit / 2**30:.1f} GiB are "
            "allowed: give them as float16, or train on the CPU, where they are read from the disk"
        )
    return X.to(device, torch.float32 if X.dtype == torch.float64 else X.dtype)


def available_memory(device: torch.device) -> int:
    """Free bytes on a device: what the GPU says, or the kernel's MemAvailable."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 8 << 30
