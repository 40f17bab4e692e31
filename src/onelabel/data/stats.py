"""The papers' statistics for any dataset: sizes, positives per image, unknown positives per class, intervals for k."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.labels import Labels, k_interval
from onelabel.system import atomic_write

from .base import Splits

SAMPLES = (5, 10, 25)


@dataclass(frozen=True)
class ClassRow:
    """One class over training and validation: clean positives, observed ones, and how many of the clean are unknown."""

    name: str
    true: int | None
    observed: int
    unknown: int | None  # clean positives that are not observed

    @property
    def unknown_share(self) -> float | None:
        """The share of the class's clean positives that are unknown; None without clean labels or positives."""
        if self.unknown is None or not self.true:
            return None
        return self.unknown / self.true


@dataclass(frozen=True)
class Statistics:
    """What the papers print of a dataset. Positives are counted over training and validation rows together."""

    name: str
    classes: int
    images: dict[str, int]
    known: str  # "clean" or "observed": which labels the next four count
    mean: float
    mean_negative: float
    lowest: int
    highest: int
    observed_mean: float
    intervals: dict[int, tuple[float, float]]  # of k from M fully labelled images, 5th to 95th percentile
    per_class: tuple[ClassRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = asdict(self)
        plain["per_class"] = [{**asdict(row), "unknown_share": row.unknown_share} for row in self.per_class]
        return plain

    def text(self, classes: bool = True) -> str:
        """The tables in words."""
        images = ", ".join(f"{part} {count:,}" for part, count in self.images.items())
        lines = [
            f"{self.name}: {self.classes} classes; images: {images}",
            f"{self.known} labels per training image: {self.mean:.2f} positive "
            f"(min {self.lowest}, max {self.highest}), "
            f"{self.mean_negative:.2f} negative or unknown; observed positives: {self.observed_mean:.2f}",
        ]
        if self.intervals:
            pairs = (f"from {m} images {low:.1f}–{high:.1f}" for m, (low, high) in self.intervals.items())
            lines.append("k, 5th to 95th percentile: " + ", ".join(pairs))
        if classes:
            width = max(len("class"), *(len(row.name) for row in self.per_class))
            lines.append(f"{'class':<{width}}  {'true':>8}  {'observed':>8}  {'unknown':>8}  share")
            for row in self.per_class:
                share = "–" if row.unknown_share is None else f"{row.unknown_share:.1%}"
                true = "–" if row.true is None else f"{row.true:,}"
                unknown = "–" if row.unknown is None else f"{row.unknown:,}"
                lines.append(f"{row.name:<{width}}  {true:>8}  {row.observed:>8,}  {unknown:>8}  {share}")
        return "\n".join(lines)

    __str__ = text

    def save(self, path: str | Path) -> None:
        """Write everything as .json, or the classes' table as .csv."""
        file = Path(path)
        if file.suffix.lower() == ".csv":
            table = io.StringIO()
            writer = csv.writer(table)
            writer.writerow(["class", "true", "observed", "unknown", "unknown_share"])
            for row in self.per_class:
                writer.writerow([row.name, row.true, row.observed, row.unknown, row.unknown_share])
            atomic_write(file, table.getvalue())
        elif file.suffix.lower() == ".json":
            atomic_write(file, json.dumps(self.to_dict(), indent=1, ensure_ascii=False))
        else:
            raise ValueError(f"path: {file}, expected .json or .csv")


def statistics(splits: Splits[Any], *, trials: int = 100_000, seed: int = 0) -> Statistics:
    """Count what the papers count. Without clean labels the positives are the observed ones, and k has no interval."""
    parts = [part for part in (splits.train, splits.validation) if part is not None]
    observed = Labels.concatenate([part.observed for part in parts])
    seen = observed.counts().positives
    clean = None
    if all(part.true is not None for part in parts):
        clean = np.concatenate([part.true for part in parts])
    per_row = observed.positives_per_row() if clean is None else clean.sum(1, dtype=np.int64)
    intervals: dict[int, tuple[float, float]] = {}
    unknown = true = None
    if clean is not None:
        rows, cols = observed.positive_index()
        true = clean.sum(0, dtype=np.int64)
        hit = np.bincount(cols[clean[rows, cols] == 1], minlength=len(true))
        unknown = true - hit
        for size in (size for size in SAMPLES if size <= len(clean)):
            found = k_interval(clean, n=size, repeats=trials, seed=seed)
            intervals[size] = (found.low, found.high)
    mean = float(per_row.mean())
    return Statistics(
        name=splits.name,
        classes=len(splits.class_names),
        images={name: len(part) for name, part in splits.parts.items()},
        known="observed" if clean is None else "clean",
        mean=mean,
        mean_negative=len(splits.class_names) - mean,
        lowest=int(per_row.min()),
        highest=int(per_row.max()),
        observed_mean=float(observed.positives_per_row().mean()),
        intervals=intervals,
        per_class=tuple(
            ClassRow(
                name,
                None if true is None else int(true[i]),
                int(seen[i]),
                None if unknown is None else int(unknown[i]),
            )
            for i, name in enumerate(splits.class_names)
        ),
    )
