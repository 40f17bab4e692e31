"""Features in memory, in a memory map or in a file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def as_features(value: Any, name: str) -> Tensor:
    """N×D features as a tensor that shares the caller's memory, of the float type they have."""
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


def on_device(X: Tensor, device: torch.device, limit: int) -> Tensor:
    """Features where they train: on a CPU as they are (float64 is read as float32 batch by batch)."""
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
