"""The observed labels of a batch, held sparse: for when B×L of them would not fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onelabel.kernels.form import has_triton


class Observed(NamedTuple):
    """Entries (row, column, ±1) of a B×L matrix on one device, rows ascending; the rest is unknown.

    A column of L or more is padding: it lets batches have one shape whatever they hold, so that nothing waits for the
    host to count.
    """

    rows: Tensor
    cols: Tensor
    values: Tensor
    shape: tuple[int, int]

    def counts(self, sign: int | None = None) -> Tensor:
        """Observed entries of each row, of one sign or of both: B, float32."""
        real = self.cols < self.shape[1]
        if sign is not None:
            real = real & (self.values == sign)
        zero = torch.zeros(self.shape[0], device=self.rows.device)
        return zero.index_add_(0, self.rows, real.float())

    def put(self, into: Tensor, first: int, *, clear: bool = False) -> None:
        """Write the entries of the columns from `first` on that B×width zeros hold, or zeros in their place again."""
        if into.is_cuda and has_triton():
            from onelabel.kernels.placing import put

            put(self.rows, self.cols, self.values, into, first, clear=clear)
            return
        width = into.shape[1]  # a GPU without triton waits for the host here
        inside = (self.cols >= first) & (self.cols < first + width)
        where = (self.rows * width + (self.cols - first)).masked_select(inside)
        into.view(-1)[where] = 0 if clear else self.values.masked_select(inside)

    def with_random_negatives(self) -> Observed:
        """One more entry in each row: a negative drawn from the unknown ones (padding where there is none)."""
        batch, num_classes = self.shape
        device = self.rows.device
        order = (self.rows * (num_classes + 1) + self.cols.clamp(max=num_classes)).argsort()
        rows, cols = self.rows[order], self.cols[order]
        first = torch.searchsorted(rows, torch.arange(batch, device=device))
        rank = torch.arange(len(rows), device=device) - first[rows]
        unknown = num_classes - self.counts().long()
        draw = (torch.rand(batch, dtype=torch.float64, device=device) * unknown).long().clamp(max=num_classes - 1)
        # An observed column c with rank i has c−i unknown ones before it.
        before = ((cols - rank <= draw[rows]) & (cols < num_classes)).long()
        at = draw + torch.zeros_like(draw).index_add_(0, rows, before)
        at = torch.where(unknown > 0, at, num_classes)
        return Observed(
            torch.cat([self.rows, torch.arange(batch, device=device)]),
            torch.cat([self.cols, at]),
            torch.cat([self.values, torch.full_like(at, -1, dtype=torch.int8)]),
            self.shape,
        )


def observed_rows(observed: Any, batch: int, num_classes: int, device: torch.device) -> Observed | Tensor:
    """A batch's observed labels from what people have: `Observed`, a sparse or dense B×L tensor, `Labels` of B rows."""
    if isinstance(observed, Observed):
        result: Observed | Tensor = observed
        shape = tuple(observed.shape)
    elif isinstance(observed, Tensor):
        shape = tuple(observed.shape)
        if observed.layout == torch.strided:
            result = observed
        else:
            entries = observed.to_sparse_coo().coalesce()
            rows, cols = entries.indices()
            result = Observed(rows, cols, entries.values().to(torch.int8), (batch, num_classes))
    elif hasattr(observed, "to_coo"):
        shape = tuple(observed.shape)
        arrays = (torch.from_numpy(a.copy()).to(device, non_blocking=True) for a in observed.to_coo())
        rows, cols, values = arrays
        result = Observed(rows.long(), cols.long(), values.to(torch.int8), (batch, num_classes))
    else:
        raise TypeError(f"observed must be a tensor, Labels or Observed of the batch, got {type(observed).__name__}")
    if shape != (batch, num_classes):
        raise ValueError(f"observed must have shape {(batch, num_classes)}, rows of features × classes, got {shape}")
    where = result.rows.device if isinstance(result, Observed) else result.device
    if where != device:
        raise ValueError(f"observed is on {where}, features on {device}: move one of them")
    return result


def from_device(labels: Any, index: Tensor) -> Observed | Tensor:
    """The rows `index` of `DeviceLabels`: as they lie on the device, dense or sparse, without waiting for the host."""
    if labels.layout == "dense":
        return labels.rows(index)
    indptr, indices, values = labels._tensors
    flat = index.reshape(-1).long()
    starts, ends = indptr.index_select(0, flat)[:, None], indptr.index_select(0, flat + 1)[:, None]
    source = starts + torch.arange(max(labels.width, 1), device=flat.device)
    padding = source >= ends
    source = source.clamp(max=max(len(indices) - 1, 0))
    cols = indices[source].long().masked_fill(padding, labels.num_classes)
    rows = torch.arange(len(flat), device=flat.device)[:, None].expand_as(cols)
    return Observed(rows.reshape(-1), cols.reshape(-1), values[source].reshape(-1), (len(flat), labels.num_classes))
