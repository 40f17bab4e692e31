"""A split on the training device: pictures or features, observed labels, true labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelabel.data import ArraySource, Dataset, FeatureDataset


class Feed:
    """Rows of one split by index.

    Attributes:
        inputs: everything on the device (uint8 N×S×S×3 or float32 N×D), or None where pictures are streamed.
        observed: `DeviceLabels`. true: uint8 N×L on the device, or None.
    """

    def __init__(
        self, part: Dataset | FeatureDataset, device: torch.device, *, size: int = 0, inputs: Tensor | None = None
    ) -> None:
        self.part, self.device = part, device
        self.name, self.rows, self.num_classes = part.name, len(part), part.num_classes
        self.observed = part.observed.on(device)
        self.true = None if part.true is None else torch.from_numpy(np.ascontiguousarray(part.true)).to(device)
        self.pictures: Any = None
        if inputs is not None:
            self.inputs: Tensor | None = inputs.to(device)
        elif isinstance(part, FeatureDataset):
            self.inputs = torch.from_numpy(np.ascontiguousarray(part.X, np.float32)).to(device)
        else:
            self.inputs = self._resident(part, size)

    def _resident(self, part: Dataset, size: int) -> Tensor | None:
        source = part.source
        if isinstance(source, ArraySource) and source.images.shape[1:3] == (size, size):
            return torch.from_numpy(np.ascontiguousarray(source.images)).to(self.device)
        from onelabel.data import device_pictures

        self.pictures = device_pictures(part, size, self.device, quiet=bool(os.environ.get("ONELABEL_QUIET")))
        squares = self.pictures.squares
        # kept on the device they are indexed inside the step; from host memory or disk batches are staged
        return squares if isinstance(squares, Tensor) and squares.device.type == self.device.type else None

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
            for _, pictures in self.pictures.batches(order, size):
                yield pictures.permute(0, 2, 3, 1)
            return
        place = order.to(self.device)
        for start in range(0, len(order), size):
            yield self.inputs.index_select(0, place[start : start + size])
