"""What early stopping would have changed in runs that were made without it, replayed from their histories."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from onelabel.bench.results import Row
from onelabel.training.stopping import should_stop

#: Validation mAP of the weights and of their averages in a history; the last that is there is what stopping watches.
TRACKS = ("validation_mAP", "validation_mAP_ema")


@dataclass(frozen=True)
class Replay:
    """A run under a rule it was not made with: epochs made of those there were, and the best mAP lost by each track."""

    made: int
    of: int
    lost: tuple[float, ...]

    @property
    def same(self) -> bool:
        """Whether every track keeps its best epoch, so that the run would have ended with the same weights."""
        return not any(self.lost)


def replay(history: Sequence[Mapping[str, Any]], stop: str | int) -> Replay | None:
    """Apply a rule to each phase of a history; None where validation was not measured."""
    made, lost = 0, [0.0] * len(TRACKS)
    for _, phase in groupby(history, lambda epoch: epoch["phase"]):
        epochs = list(phase)
        tracks = [values for name in TRACKS if (values := [e[name] for e in epochs if name in e])]
        if not tracks or any(len(values) != len(epochs) for values in tracks):
            return None
        lasts = (n for n in range(1, len(epochs)) if should_stop(stop, tracks[-1][:n]))
        kept = next(lasts, len(epochs))
        made += kept
        for i, values in enumerate(tracks):
            lost[i] = max(lost[i], max(values) - max(values[:kept]))
    return Replay(made, len(history), tuple(lost)) if history else None


def as_stopped(row: Row, stop: str | int) -> Row:
    """A run without early stopping as one with it, where that would have kept the same epochs; elsewhere unchanged."""
    if row.settings.get("stop") != "none" or stop == "none":
        return row
    found = replay(row.history, stop)
    if found is None or not found.same:
        return row
    extra = {**row.extra, "made_without_stopping": True}
    return dataclasses.replace(row, settings={**row.settings, "stop": stop}, extra=extra)
