"""Observed labels on the device that trains, served without waiting for the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelabel.labels.matrix import Labels


class DeviceLabels:
    """A copy of :class:`Labels` on a device; `rows` only queues kernels of static shape.

    `layout` is "dense" (int8, N·L bytes) where that is within `dense_limit` bytes or smaller than the sparse
    form, else "csr" (5 bytes an observed entry and 8 a row). From the latter each row of a batch is scattered
    with room for `width` entries, the most any row has. A GPU gets indices unchecked: checking stops the host.
    """

    def __init__(self, labels: Labels, device: torch.device | str, *, dense_limit: int = 1 << 29) -> None:
        self.shape = labels.shape
        self.class_names = labels.class_names
        self.width = int((labels.indptr[1:] - labels.indptr[:-1]).max(initial=0))
        dense_bytes = labels.num_examples * labels.num_classes
        sparse_bytes = 5 * labels.num_observed + 8 * (labels.num_examples + 1)
        self.layout = "dense" if dense_bytes <= max(dense_limit, sparse_bytes) else "csr"
        if self.layout == "dense":
            self._tensors = [torch.from_numpy(labels.to_dense()).to(device)]
        else:
            arrays = (labels.indptr, labels.indices, labels.values)
            # copied first: torch warns of NumPy arrays that may not be written
            self._tensors = [torch.from_numpy(array.copy()).to(device) for array in arrays]
        self.device = self._tensors[0].device

    @property
    def num_examples(self) -> int:
        return self.shape[0]

    @property
    def num_classes(self) -> int:
        return self.shape[1]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors)

    def __len__(self) -> int:
        return self.num_examples

    def __repr__(self) -> str:
        n, width = self.shape
        return f"DeviceLabels({n}×{width}, {self.layout}, {self.nbytes / 2**20:.1f} MiB on {self.device})"

    def rows(self, index: Any) -> Tensor:
        """The labels of some examples, int8, of shape index.shape + (L,); `index` integers in [0, N)."""
        at = torch.as_tensor(index, device=self.device)
        if at.dtype in (torch.bool, torch.uint8) or at.is_floating_point():
            raise TypeError(f"index must hold integers, got {at.dtype}")
        flat = at.reshape(-1).long()
        if self.layout == "dense":
            batch = self._tensors[0].index_select(0, flat)
        else:
            batch = self._scatter(flat)
        return batch.reshape(*at.shape, self.num_classes)

    def _scatter(self, flat: Tensor) -> Tensor:
        indptr, indices, values = self._tensors
        batch = torch.zeros(flat.shape[0], self.num_classes + 1, dtype=torch.int8, device=self.device)
        if self.width:
            starts = indptr.index_select(0, flat)[:, None]
            ends = indptr.index_select(0, flat + 1)[:, None]
            source = starts + torch.arange(self.width, device=self.device)
            padding = source >= ends
            source = source.clamp(max=indices.shape[0] - 1)
            # Shorter rows write their surplus into one extra column, which is then cut off.
            cols = indices[source].long().masked_fill(padding, self.num_classes)
            batch.scatter_(1, cols, values[source])
        return batch[:, : self.num_classes].contiguous()
