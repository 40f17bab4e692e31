"""Pictures that do not fit in memory: a DataLoader of uint8 squares that keeps its workers between epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from onelabel.system import workers as count_workers

from .decode import decode_rows
from .report import Problem
from .sources import ImageSource

Item = tuple[Tensor, Tensor, list[tuple[int, Problem]]]


class _Squares(torch.utils.data.Dataset[Any]):
    """A batch of rows at a time, straight into one tensor: no collating and no float copies in the workers."""

    def __init__(self, source: ImageSource, size: int, options: dict[str, bool]) -> None:
        self.source, self.size, self.options = source, size, options

    def __len__(self) -> int:
        return len(self.source)

    def __getitems__(self, rows: list[int]) -> Item:
        images = _empty((len(rows), self.size, self.size, 3))
        failed = decode_rows(self.source, rows, self.size, images.numpy(), **self.options)
        return torch.tensor(rows), images, failed

    def __getitem__(self, row: int) -> Item:
        return self.__getitems__([row])


def _empty(shape: tuple[int, ...]) -> Tensor:
    """A uint8 tensor; in a worker already in the shared memory that it travels by.

    That saves a copy, and the large private buffers between small ones that make a worker's heap grow for ever.
    """
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    storage = torch.UntypedStorage._new_shared(math.prod(shape))  # as torch's own collating does
    return torch.empty(0, dtype=torch.uint8).set_(storage).view(shape)


class _Order:
    """The batches of the coming epoch; set before each, read by the DataLoader's main process."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _as_is(item: Any) -> Any:
    return item


class Stream:
    """Decodes rows of a source as they are asked for; `batches` does so in persistent worker processes."""

    def __init__(
        self,
        source: ImageSource,
        size: int,
        *,
        exact: bool = True,
        draft: bool = False,
        workers: int | None = None,
        ahead: int = 2,
    ) -> None:
        self.data = _Squares(source, size, {"exact": exact, "draft": draft})
        self.workers, self.ahead = count_workers(workers), ahead
        self._order = _Order()
        self._loader: DataLoader[Any] | None = None

    def __len__(self) -> int:
        return len(self.data)

    def take(self, rows: NDArray[np.int64]) -> Stream:
        """The same of these rows, in this order."""
        data = self.data
        return Stream(data.source.take(rows), data.size, **data.options, workers=self.workers, ahead=self.ahead)

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], list[tuple[int, Problem]]]:
        """Decode here and now."""
        _, images, failed = self.data.__getitems__(rows.tolist())
        return images.numpy(), failed

    def batches(self, order: Tensor, batch_size: int, *, pin: bool) -> Iterator[Item]:
        """(rows, N×S×S×3 uint8, failures) along `order`."""
        self._order.batches = [part.tolist() for part in order.split(batch_size)] if len(order) else []
        if self._loader is None:
            many: dict[str, Any] = {}
            if self.workers:
                many = {"persistent_workers": True, "prefetch_factor": self.ahead, "worker_init_fn": _one_thread}
            self._loader = DataLoader(
                self.data,
                batch_sampler=self._order,
                num_workers=self.workers,
                collate_fn=_as_is,
                pin_memory=pin,
                **many,
            )
        yield from self._loader


def _one_thread(worker: int) -> None:
    torch.set_num_threads(1)
