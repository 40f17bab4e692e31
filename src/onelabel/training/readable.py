"""Pictures that cannot be read take no part: not in training, not in validation or test, not in a file of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.data import Dataset, Splits
from onelabel.data.report import Problem, Report
from onelabel.data.verify import readable, with_parts
from onelabel.training.feeds import Feed
from onelabel.training.machine import all_parts


def leave_out_unreadable(splits: Splits[Any], feeds: dict[str, Feed], fabric: Any = None) -> Splits[Any]:
    """`splits` and, in place, their `feeds` without the rows whose picture cannot be read.

    Decoded pictures tell which those are; streamed ones are all looked at first, unless they have been, each process at
    its share. A row that any process could not read leaves in all of them, and every row number after this is that of
    the rows kept. One line says what was left out, now or while loading. Feeds that were here before hand their rows on
    to `splits`.
    """
    parts: dict[str, Any] = dict(splits.parts)
    new = not all(feed.checked for feed in feeds.values())
    for name, feed in [*feeds.items()]:
        lost, problems = _lost(feed, fabric)
        known = set(feed.part.report)
        feed.part.report.extend(problem for problem in problems if problem not in known)
        if len(lost) and lost.all():
            parts[name] = parts[name].take([])
            del feeds[name]
            continue
        if lost.any():
            feed.leave_out(lost)
        if feed.kept is not None and len(parts[name]) != feed.rows:
            parts[name] = parts[name].take(feed.kept)
    if new:
        splits.tell()
    return with_parts(splits, parts)


def _lost(feed: Feed, fabric: Any) -> tuple[NDArray[np.bool_], list[Problem]]:
    """The rows of a feed that some process cannot read, and why: the same in every process."""
    lost = np.zeros(feed.rows, bool)
    seen, feed.checked = feed.checked, True
    if seen or feed.pictures is None:
        return lost, []
    assert isinstance(feed.part, Dataset)
    source = feed.part.source
    failed = feed.pictures.failed
    if feed.pictures.placement == "stream":
        if feed.part.decoded:
            return lost, []
        first, step = (0, 1) if fabric is None else (fabric.global_rank, fabric.world_size)
        share, report = np.arange(first, feed.rows, step), Report()
        lost[share] = ~readable(source.take(share), report, verify="decode")
        why = {problem.name: problem for problem in report if problem.fatal}
    else:
        lost[list(failed)] = True
        why = {problem.name: problem for problem in failed.values()}
    if fabric is not None and fabric.world_size > 1:
        own = torch.from_numpy(lost.astype(np.uint8)).to(feed.device)
        lost = torch.stack(all_parts(own, fabric)).amax(0).cpu().numpy() > 0
    names = [str(source.paths[row]) for row in np.flatnonzero(lost).tolist()]
    return lost, [why.get(name, Problem("unreadable", name, "in another process")) for name in names]
