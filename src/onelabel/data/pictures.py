"""Decoded pictures where the training step wants them: in GPU memory, in host memory, or streamed by workers."""

from __future__ import annotations

import hashlib
import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.system import progress, say

from .base import Dataset
from .decode import Decoder, in_chunks
from .journal import ChunkedArray, failed_rows
from .memory import Placement, choose_placement
from .report import Problem, Report
from .stream import Stream

CACHE_VERSION = 1


class Pictures:
    """The pictures of a dataset as uint8 squares; make one with `device_pictures`.

    Attributes:
        placement: "device" or "host" (decoded once and kept), or "stream" (decoded again each epoch).
        why: the reason, in words.
        report: pictures that could not be read; they are mid-grey in batches and absent from `rows`.
    """

    def __init__(
        self,
        squares: Tensor | Stream,
        *,
        size: int,
        device: torch.device,
        placement: Placement,
        why: str,
        report: Report,
        failed: dict[int, Problem],
    ) -> None:
        self.squares, self.size, self.device = squares, size, device
        self.placement, self.why, self.report, self._failed = placement, why, report, failed

    def __len__(self) -> int:
        return len(self.squares)

    def __repr__(self) -> str:
        return f"Pictures({len(self):,} of {self.size}×{self.size}, {self.placement}: {self.why})"

    @property
    def rows(self) -> Tensor:
        """The rows that can be read (as far as is known, where pictures are streamed): int64, on the CPU."""
        usable = torch.ones(len(self), dtype=torch.bool)
        usable[list(self._failed)] = False
        return usable.nonzero().squeeze(1)

    @property
    def failed(self) -> dict[int, Problem]:
        """The rows that could not be read, and why."""
        return dict(self._failed)

    def keep(self, rows: Tensor) -> None:
        """Only these rows (int64, ascending) from now on, numbered anew; moved in place, for two copies may not fit."""
        if isinstance(self.squares, Stream):
            self.squares = self.squares.take(rows.cpu().numpy())
        else:
            chunk = in_chunks(len(rows), self.size)
            for start in range(0, len(rows), chunk):
                taken = rows[start : start + chunk].to(self.squares.device)
                self.squares[start : start + len(taken)] = self.squares.index_select(0, taken)
            self.squares = self.squares[: len(rows)]
        place = {int(row): number for number, row in enumerate(rows)}
        self._failed = {place[row]: problem for row, problem in self._failed.items() if row in place}

    def batch(self, index: Tensor) -> Tensor:
        """The pictures of `index` on the device: uint8 B×3×S×S, channels last.

        Resident on the device with `index` there too, this is one kernel and no synchronisation.
        """
        if isinstance(self.squares, Stream):
            batch, failed = self.squares.read(index.cpu().numpy())
            self._note(failed)
            picked = torch.from_numpy(batch)
        else:
            picked = self.squares.index_select(0, index.to(self.squares.device))
        return _channels_first(picked.to(self.device, non_blocking=True))

    def batches(self, order: Tensor, batch_size: int, *, drop_last: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """(index, pictures) along `order` (int64 rows), both on the device; the next batches are made meanwhile."""
        end = len(order) - len(order) % batch_size if drop_last else len(order)
        if isinstance(self.squares, Stream):
            for rows, images, failed in self.squares.batches(order[:end].cpu(), batch_size, pin=self._pins):
                self._note(failed)
                index = rows.to(self.device, non_blocking=True)
                yield index, _channels_first(images.to(self.device, non_blocking=True))
        elif self.squares.device.type != "cpu" or self.device.type == "cpu":
            order = order[:end].to(self.device)
            for start in range(0, end, batch_size):
                index = order[start : start + batch_size]
                yield index, self.batch(index)
        else:
            yield from self._from_host(order[:end].cpu(), batch_size)

    @property
    def _pins(self) -> bool:
        return self.device.type == "cuda"

    def _note(self, failed: list[tuple[int, Problem]]) -> None:
        for row, problem in failed:
            if row not in self._failed:
                self._failed[row] = problem
                self.report.add(problem.kind, problem.name, problem.detail)

    def _from_host(self, order: Tensor, batch_size: int, ahead: int = 3) -> Iterator[tuple[Tensor, Tensor]]:
        """Gather batches into pinned memory in a thread, a few ahead of the step that uses them."""
        squares = self.squares
        assert isinstance(squares, Tensor)
        ready: queue.Queue[tuple[Tensor, Tensor] | BaseException | None] = queue.Queue(ahead)
        stop = threading.Event()

        def offer(item: tuple[Tensor, Tensor] | BaseException | None) -> None:
            while not stop.is_set():
                try:
                    ready.put(item, timeout=0.1)
                    return
                except queue.Full:
                    continue

        def gather() -> None:
            try:
                for start in range(0, len(order), batch_size):
                    if stop.is_set():
                        return
                    index = order[start : start + batch_size]
                    shape = (len(index), *squares.shape[1:])
                    images = torch.empty(shape, dtype=torch.uint8, pin_memory=self._pins)
                    torch.index_select(squares, 0, index, out=images)
                    offer((index.pin_memory() if self._pins else index, images))
                offer(None)
            except BaseException as error:
                offer(error)

        thread = threading.Thread(target=gather, name="pictures", daemon=True)
        thread.start()
        try:
            while (item := ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                index, images = item
                yield (
                    index.to(self.device, non_blocking=True),
                    _channels_first(images.to(self.device, non_blocking=True)),
                )
        finally:
            stop.set()
            thread.join()


def device_pictures(
    dataset: Dataset,
    size: int,
    device: torch.device | str = "cpu",
    *,
    placement: Placement | None = None,
    share: float = 0.5,
    cache: str | Path | None = None,
    exact: bool = True,
    draft: bool = False,
    workers: int | None = None,
    strict: bool = False,
    quiet: bool = False,
) -> Pictures:
    """Decode a dataset's pictures to size×size squares and keep them on the device or the host when they fit.

    Args:
        placement: "device", "host" or "stream"; decided from free memory unless given. The decision is said aloud.
        share: how much of the free memory may be taken.
        cache: a folder to keep the decoded squares in (a memory-mapped .npy), so that the next run decodes nothing.
        exact, draft: see `square_image`; the default is the published transform to the bit.
        workers: decoding threads, or worker processes where pictures are streamed.
        strict: raise at the first picture that cannot be read.
    """
    place = torch.device(device)
    count = len(dataset)
    needed = count * size * size * 3
    if placement is None:
        placement, why = choose_placement(needed, place, share=share)
    else:
        why = f"{placement} as asked"
    if not quiet:
        say(f"{dataset.name}: {count:,} pictures of {size}×{size}, {why}")
    report = Report(strict=strict)
    made: dict[str, Any] = {"size": size, "device": place, "placement": placement, "why": why, "report": report}
    if placement == "stream":
        stream = Stream(dataset.source, size, exact=exact, draft=draft, workers=workers)
        return Pictures(stream, failed={}, **made)
    failed: dict[int, Problem] = {}
    with Decoder(dataset.source, size, exact=exact, draft=draft, threads=workers) as decoder:
        if cache is not None:
            array, notes = _cached(dataset, decoder, Path(cache))
            failed = failed_rows(notes, Path(cache))
            squares = torch.from_numpy(array if array.flags.writeable else _writable_view(array))
            squares = squares.to(place) if placement == "device" else squares
        else:
            squares, failed = _decode_all(dataset, decoder, place if placement == "device" else torch.device("cpu"))
    report.extend(failed[row] for row in sorted(failed))
    return Pictures(squares, failed=failed, **made)


def _decode_all(dataset: Dataset, decoder: Decoder, place: torch.device) -> tuple[Tensor, dict[int, Problem]]:
    count, size = len(dataset), decoder.size
    squares = torch.empty((count, size, size, 3), dtype=torch.uint8, device=place)
    on_host = place.type == "cpu"
    chunk = count if on_host else in_chunks(count, size)
    buffer = squares if on_host else torch.empty((chunk, size, size, 3), dtype=torch.uint8)
    failed: dict[int, Problem] = {}
    with progress(f"decoding {dataset.name}", count) as advance:
        for start in range(0, count, max(chunk, 1)):
            rows = np.arange(start, min(count, start + chunk))
            failed.update(decoder(rows, buffer[: len(rows)].numpy(), advance))
            if not on_host:
                squares[start : start + len(rows)].copy_(buffer[: len(rows)])
    return squares, failed


def _cached(dataset: Dataset, decoder: Decoder, folder: Path) -> tuple[NDArray[np.uint8], list[Any]]:
    count, size = len(dataset), decoder.size
    key = {"data": dataset.source.fingerprint(), "size": size, **decoder.options, "version": CACHE_VERSION}
    name = f"squares-{size}-" + hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=10).hexdigest()
    chunked = ChunkedArray(folder, name, (count, size, size, 3), np.uint8, key, in_chunks(count, size))
    whole = chunked.finished()
    if whole is not None:
        return whole
    with chunked.filling() as filling:
        whole = chunked.finished()  # another process may have finished it while this one waited
        if whole is not None:
            return whole
        with progress(f"decoding {dataset.name}", sum(rows.stop - rows.start for _, rows in filling.todo)) as advance:
            for number, rows in filling.todo:
                failed = decoder(np.arange(rows.start, rows.stop), filling.array[rows], advance)
                filling.done(number, [[row, problem.kind, problem.name, problem.detail] for row, problem in failed])
        return filling.finish()


def _writable_view(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The same file mapped copy-on-write: torch wants a writable array, and nothing writes to it."""
    filename = getattr(array, "filename", None)
    return np.array(array) if filename is None else np.load(filename, mmap_mode="c", allow_pickle=False)


def _channels_first(images: Tensor) -> Tensor:
    return images.permute(0, 3, 1, 2)  # a view: B×3×S×S in channels-last memory
