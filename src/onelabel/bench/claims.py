"""Claims: each run is made once, however many workers share a results folder or database."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from onelabel.bench.store import Store

#: Seconds without a sign of life after which a claim may be taken over.
LEASE = 120.0


def claim(store: Store, run_id: str, *, lease: float = LEASE, retry: bool = False) -> int | None:
    """Claim a run; its generation, or None where it has a result or a living worker has it.

    `retry` claims runs that failed, too.
    """
    if _settled(store, run_id, retry):
        return None
    generation = store.latest(run_id)
    if generation >= 0 and store.silence(run_id, generation) <= lease:
        return None
    if not store.create(run_id, generation + 1):
        return None
    # Another worker may have finished, and forgotten its claims, between the two looks.
    if _settled(store, run_id, retry):
        store.clear(run_id)
        return None
    return generation + 1


def _settled(store: Store, run_id: str, retry: bool) -> bool:
    row = store.row(run_id)
    return row is not None and (row.done or not retry)


@contextlib.contextmanager
def beating(store: Store, held: Sequence[tuple[str, int]], *, lease: float = LEASE) -> Iterator[None]:
    """Signs of life for claims while the block runs, from a thread."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(lease / 4):
            for run_id, generation in held:
                store.beat(run_id, generation)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
