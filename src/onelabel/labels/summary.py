"""What a label matrix holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onelabel.labels.matrix import Labels


@dataclass(frozen=True)
class Summary:
    """Counts of a label matrix; `str` gives a few lines."""

    num_examples: int
    num_classes: int
    positives: int
    negatives: int
    unknown: int
    rows_without_label: int
    rows_without_positive: int
    mean_positives: float  #: per row
    min_positives: int
    max_positives: int
    classes_never_observed: tuple[int | str, ...]  #: names where they are known, else indices
    classes_never_positive: tuple[int | str, ...]

    def __str__(self) -> str:
        entries = max(self.num_examples * self.num_classes, 1)
        lines = [f"{self.num_examples:,} examples, {self.num_classes:,} classes"]
        for word in ("positives", "negatives", "unknown"):
            count: int = getattr(self, word)
            lines.append(f"{word:<10}{count:>16,}  {count / entries:7.2%}")
        low, mean, high = self.min_positives, self.mean_positives, self.max_positives
        lines.append(f"positives per row: mean {mean:.2f}, min {low}, max {high}")
        lines.append(f"rows with no label: {self.rows_without_label:,}")
        lines.append(f"rows with no positive: {self.rows_without_positive:,}")
        lines.append("classes never observed: " + _listed(self.classes_never_observed))
        lines.append("classes never positive: " + _listed(self.classes_never_positive))
        return "\n".join(lines)


def _listed(classes: tuple[int | str, ...], most: int = 8) -> str:
    if not classes:
        return "none"
    more = f", … ({len(classes):,} in all)" if len(classes) > most else ""
    return ", ".join(str(c) for c in classes[:most]) + more


def summarise(labels: Labels) -> Summary:
    """Count everything :class:`Summary` holds."""
    counts = labels.counts()
    per_row = labels.positives_per_row()

    def names(mask: np.ndarray) -> tuple[int | str, ...]:
        return tuple(labels.class_names[i] if labels.class_names else int(i) for i in np.flatnonzero(mask))

    return Summary(
        num_examples=labels.num_examples,
        num_classes=labels.num_classes,
        positives=int(counts.positives.sum()),
        negatives=int(counts.negatives.sum()),
        unknown=int(counts.unknown.sum()),
        rows_without_label=int((np.diff(labels.indptr) == 0).sum()),
        rows_without_positive=int((per_row == 0).sum()),
        mean_positives=float(per_row.mean()) if len(per_row) else 0.0,
        min_positives=int(per_row.min(initial=np.iinfo(np.int64).max)) if len(per_row) else 0,
        max_positives=int(per_row.max(initial=0)),
        classes_never_observed=names(counts.positives + counts.negatives == 0),
        classes_never_positive=names(counts.positives == 0),
    )
