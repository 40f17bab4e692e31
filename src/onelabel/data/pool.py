"""Chunks of work on a pool of processes, in order, with the first error raised and memory bounded."""

from __future__ import annotations

import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

from onelabel.system import workers as count_workers

A = TypeVar("A")
B = TypeVar("B")


def process_map(function: Callable[[A], B], items: Iterable[A], *, workers: int | None = None) -> Iterator[B]:
    """`function` of each item, in order; at most four items a worker are under way, whatever the number of items.

    Processes and not threads: opening small files and reading headers holds the interpreter lock.
    """
    count = count_workers(workers)
    if count <= 1:
        yield from map(function, items)
        return
    # Forked workers need no importable main module, so this also works from a plain script or a notebook.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    waiting: deque[Future[B]] = deque()
    pool = ProcessPoolExecutor(count, mp_context=context)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 4 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
