"""A split on the training device: pictures or features, observed labels, true labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.data import ArraySource, Dataset, FeatureDataset

if TYPE_CHECKING:
    from onelabel.data import Pictures


class Feed:
    """Rows of one split by index.

    Attributes:
        inputs: everything on the device (uint8 N×S×S×3 or float32 N×D), or None where pictures are streamed.
        observed: `DeviceLabels`. true: uint8 N×L on the device, or None.
        kept: where `leave_out` left some out, which rows of the part as it was given are here.
    """

    def __init__(
        self, part: Dataset | FeatureDataset, device: torch.device, *, size: int = 0, inputs: Tensor | None = None
    ) -> None:
        self.device = device
        self._hold(part)
        self.pictures: Pictures | None = None
        self.kept: NDArray[np.int64] | None = None
        self.checked = False  # whether `leave_out_unreadable` has been here
        if inputs is not None:
            self.inputs: Tensor | None = inputs.to(device)
        elif isinstance(part, FeatureDataset):
            self.inputs = torch.from_numpy(np.ascontiguousarray(part.X, np.float32)).to(device)
        else:
            self.inputs = self._resident(part, size)

    def _hold(self, part: Dataset | FeatureDataset) -> None:
        self.part, self.name, self.rows, self.num_classes = part, part.name, len(part), part.num_classes
        self.observed = part.observed.on(self.device)
        self.true = None if part.true is None else torch.from_numpy(np.ascontiguousarray(part.true)).to(self.device)

    def _resident(self, part: Dataset, size: int) -> Tensor | None:
        source = part.source
        if isinstance(source, ArraySource) and source.images.shape[1:3] == (size, size):
            return torch.from_numpy(np.ascontiguousarray(source.images)).to(self.device)
        from onelabel.data import device_pictures

        self.pictures = device_pictures(part, size, self.device, quiet=bool(os.environ.get("ONELABEL_QUIET")))
        return self._indexed(self.pictures)

    def _indexed(self, pictures: Pictures) -> Tensor | None:
        """Pictures on the device are indexed inside the step; from host memory or disk batches are staged."""
        squares = pictures.squares
        return squares if isinstance(squares, Tensor) and squares.device.type == self.device.type else None

    def leave_out(self, lost: NDArray[np.bool_]) -> None:
        """Leave these rows out: pictures, labels and row numbers are from now on those of the others."""
        assert self.pictures is not None
        rows = np.flatnonzero(~lost)
        self.pictures.keep(torch.from_numpy(rows))
        self.inputs = self._indexed(self.pictures)
        self.kept = rows if self.kept is None else self.kept[rows]
        self._hold(self.part.take(rows))

    def all_observed(self) -> Tensor:
        """Every row's observed labels, N×L."""
        return self.observed.rows(torch.arange(self.rows, device=self.device))

    def example(self, row: int) -> str:
        """A name a person can look up."""
        source = getattr(self.part, "source", None)
        return f"row {row}" if source is None else f"row {row} ({source.paths[row]})"

    def batches(self, order: Tensor, size: int) -> Iterator[Tensor]:
        """The inputs of `order` (host, int64), `size` rows at a time, on the device."""
        if self.inputs is None:
            assert self.pictures is not None
            for _, pictures in self.pictures.batches(order, size):
                yield pictures.permute(0, 2, 3, 1)
            return
        place = order.to(self.device)
        for start in range(0, len(order), size):
            yield self.inputs.index_select(0, place[start : start + size])
