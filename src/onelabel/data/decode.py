"""Decoding many pictures in parallel into one array, in bounded memory; what fails is reported and painted grey."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from onelabel.system import Advance, workers

from .images import ImageError
from .report import Problem
from .sources import ImageSource

Failures = list[tuple[int, Problem]]
GREY = 128  # a picture that cannot be read: near the mean, so that it disturbs statistics least


def decode_rows(
    source: ImageSource,
    rows: Sequence[int] | NDArray[np.int64],
    size: int,
    out: NDArray[np.uint8],
    *,
    exact: bool = True,
    draft: bool = False,
) -> Failures:
    """Squares of `rows` into `out` (len(rows)×S×S×3), one after another; returns the rows that failed and why."""
    failed: Failures = []
    for place, row in enumerate(rows):
        try:
            out[place] = source.square(int(row), size, exact=exact, draft=draft)
        except ImageError as error:
            out[place] = GREY
            failed.append((int(row), Problem(error.kind, error.name, error.detail)))
    return failed


class Decoder:
    """A pool of threads that decodes rows of a source; Pillow lets go of the interpreter lock while it works."""

    def __init__(
        self, source: ImageSource, size: int, *, exact: bool = True, draft: bool = False, threads: int | None = None
    ) -> None:
        self.source, self.size, self.options = source, size, {"exact": exact, "draft": draft}
        self.threads = max(1, workers(threads))
        self.pool = ThreadPoolExecutor(self.threads, thread_name_prefix="decode")

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def __call__(self, rows: NDArray[np.int64], out: NDArray[np.uint8], advance: Advance | None = None) -> Failures:
        """Decode `rows` into `out`; returns the failures in row order."""
        step = max(1, min(16, len(rows) // (2 * self.threads) or 1))

        def work(start: int) -> Failures:
            part = slice(start, start + step)
            failed = decode_rows(self.source, rows[part], self.size, out[part], **self.options)
            if advance is not None:
                advance(len(rows[part]))
            return failed

        return [item for failed in self.pool.map(work, range(0, len(rows), step)) for item in failed]


def in_chunks(count: int, size: int, chunk_bytes: int = 64 << 20) -> int:
    """How many squares fit in a chunk of about `chunk_bytes`, at least 1 and at most `count`."""
    return max(1, min(count or 1, chunk_bytes // (size * size * 3)))


def ahead(
    decoder: Decoder, chunks: Sequence[NDArray[np.int64]], chunk: int
) -> Iterator[tuple[NDArray[np.uint8], Failures]]:
    """Squares of each chunk of rows and their failures, in order; the next chunk is decoded while one is used.

    Two buffers take turns: a chunk's array is overwritten by the chunk after the next.
    """
    buffers = [np.empty((chunk, decoder.size, decoder.size, 3), np.uint8) for _ in range(min(2, len(chunks)))]

    def work(number: int) -> tuple[NDArray[np.uint8], Failures]:
        rows = chunks[number]
        squares = buffers[number % 2][: len(rows)]
        return squares, decoder(rows, squares)

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as one:
        coming = one.submit(work, 0) if chunks else None
        for number in range(len(chunks)):
            assert coming is not None
            ready = coming.result()
            # Submitted before the yield: buffer (number+1)%2 was last used by chunk number−1, which is done with.
            coming = one.submit(work, number + 1) if number + 1 < len(chunks) else None
            yield ready
