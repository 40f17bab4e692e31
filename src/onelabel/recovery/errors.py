"""Examples whose one given label looks wrong, ranked."""

from __future__ import annotations

import heapq
import os
from dataclasses import dataclass

import numpy as np

from onelabel.recovery.table import RecoveredFile


@dataclass(frozen=True)
class LabelError:
    """A given label that models trained without this example do not see.

    Attributes:
        probability: of the given label, as if it had not been given.
        suggestion, suggestion_probability: the likeliest other class of the picture.
    """

    row: int
    example: str
    label: str
    probability: float
    suggestion: str
    suggestion_probability: float


def label_errors(
    recovered: RecoveredFile | str | os.PathLike[str], *, most: int = 100, below: float = 0.5
) -> list[LabelError]:
    """The `most` doubtful observed positives, most doubtful first: by how far another class lies above the given one.

    Order: log odds of the given label minus those of the likeliest other. Only labels with a probability under
    `below` are listed. Classes observed once are left out: no model that scored that example knew the class.
    """
    file = recovered if isinstance(recovered, RecoveredFile) else RecoveredFile.open(recovered)
    once = {s["name"] for s in file.about.get("classes", []) if s["observed"] < 2}
    heap: list[tuple[float, int, LabelError]] = []
    for example in file.examples(called=False):
        given = [(at, p) for at, p, seen, _ in example.entries if seen > 0]
        others = [(p, at) for at, p, seen, _ in example.entries if seen <= 0]
        best, which = max(others, default=(0.0, -1))
        for at, p in given:
            name = file.class_names[at]
            if p >= below or name in once:
                continue
            margin = _logit(best) - _logit(p)
            said = file.class_names[which] if which >= 0 else ""
            item = (margin, -example.row, LabelError(example.row, example.example, name, p, said, best))
            (heapq.heappush if len(heap) < most else heapq.heappushpop)(heap, item)
    return [item for _, _, item in sorted(heap, key=lambda h: (-h[0], -h[1]))]


def _logit(p: float) -> float:
    clipped = min(max(p, 1e-6), 1 - 1e-6)
    return float(np.log(clipped / (1 - clipped)))
