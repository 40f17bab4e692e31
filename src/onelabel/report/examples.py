"""Examples: pictures with observed, predicted and true labels and each run's probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.report.choice import main_run
from onelabel.report.pictures import Pictures, crowded, data_uri, several
from onelabel.report.runs import RunView, baseline
from onelabel.training.recording import PartLabels


@dataclass(frozen=True)
class Bar:
    """One class of an example; `true` is None where nobody knows, `p` is by run."""

    name: str
    observed: bool
    true: bool | None
    predicted: bool
    p: dict[str, float]


@dataclass(frozen=True)
class Shown:
    """One example. `labels` are the runs of its bars; `crowded`: it was drawn among those with several labels."""

    part: str
    name: str
    pixels: NDArray[np.uint8] | None
    bars: list[Bar]
    labels: list[str]
    crowded: bool

    @property
    def picture(self) -> str | None:
        return data_uri(self.pixels)


def examples(
    runs: Sequence[RunView], book: Pictures, *, parts: Sequence[str] = ("train", "test"), count: int = 6, seed: int = 0
) -> list[Shown]:
    """Some examples of each part with AN's and the best run's scores.

    Drawn by seed, among those with several true labels where there are any.
    """
    best, reference = main_run(runs), baseline(runs)
    shown = [best] if reference is None or reference is best else [reference, best]
    made = []
    for part in parts:
        labels = best.labels.get(part)
        scores: dict[str, Any] = {run.label: run.scores(part) for run in shown}
        if labels is None or any(values is None for values in scores.values()):
            continue
        among = len(crowded(labels.true)) > 0
        for row in several(labels.true, len(labels.observed), count, seed):
            bars = _bars(best, {k: np.asarray(v[row]) for k, v in scores.items()}, labels, row, part)
            made.append(Shown(part, book.name(part, row), book.read(part, row), bars, list(scores), among))
    return made


def drawn(shown: Sequence[Shown]) -> str:
    """How examples were drawn, in words."""
    among = {example.part: example.crowded for example in shown}
    parts = [part for part, some in among.items() if some]
    if not parts:
        return "Drawn at random, not chosen."
    where = "" if len(parts) == len(among) else f", those of {' and '.join(parts)}"
    return f"Drawn at random{where} among examples with several labels, not chosen."


def _bars(best: RunView, scores: dict[str, Any], labels: PartLabels, row: int, part: str, most: int = 6) -> list[Bar]:
    """True and observed classes first, then what is predicted; the likeliest three where there is neither."""
    own = scores[best.label]
    yes = own > best.thresholds
    true = None if labels.true is None else labels.true[row] > 0
    observed = labels.observed[row] > 0 if part == "train" else np.zeros(len(own), bool)
    certain = observed if true is None else observed | true
    order = np.lexsort((-own, ~yes, ~certain))
    wanted = [c for c in order if certain[c] or yes[c]][:most] or order[:3].tolist()
    return [
        Bar(
            best.class_names[c],
            bool(observed[c]),
            None if true is None else bool(true[c]),
            bool(yes[c]),
            {label: float(values[c]) for label, values in scores.items()},
        )
        for c in wanted
    ]
