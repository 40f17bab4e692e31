"""`onelabel data check`: a benchmark's tree against the statistics the papers print."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .catalogue import benchmark, instructions
from .load import load_dataset
from .report import DataError, Report
from .stats import Statistics, statistics


@dataclass
class Check:
    """The outcome: one line per comparison, what was missing, and the advice."""

    name: str
    lines: list[tuple[str, str, str, bool]] = field(default_factory=list)  # what, expected, found, equal
    report: Report = field(default_factory=Report)
    advice: str = ""

    @property
    def ok(self) -> bool:
        return bool(self.lines) and all(equal for *_, equal in self.lines) and not self.report.lost

    def text(self) -> str:
        """The outcome in words."""
        lines = [f"{self.name}: {'as published' if self.ok else 'NOT as published'}"]
        for what, expected, found, equal in self.lines:
            lines.append(f"  {'ok ' if equal else 'BAD'} {what}: {found}" + ("" if equal else f", expected {expected}"))
        if len(self.report):
            lines.append(self.report.text())
        if self.advice and not self.ok:
            lines.append(self.advice)
        return "\n".join(lines)

    __str__ = text


def check(name: str, root: str | Path, **options: Any) -> Check:
    """Load a benchmark and compare its counts with the published ones; never raises for what is wrong with the data."""
    published = benchmark(name).published
    result = Check(name, advice=instructions(name, root))
    try:
        splits = load_dataset(name, root=root, **options)
    except DataError as error:
        result.lines.append(("tree", "readable", str(error), False))
        return result
    result.report = splits.report
    numbers: Statistics = statistics(splits)
    pairs: list[tuple[str, object, object]] = [
        ("classes", published.classes, numbers.classes),
        ("training images", published.train, numbers.images.get("train", 0)),
        ("validation images", published.validation, numbers.images.get("validation", 0)),
        ("test images", published.test, numbers.images.get("test", 0)),
        ("mean positives", f"{published.mean:g}", _like(numbers.mean, published.mean)),
        ("fewest positives", published.lowest, numbers.lowest),
        ("most positives", published.highest, numbers.highest),
    ]
    result.lines += [(what, str(expected), str(found), str(expected) == str(found)) for what, expected, found in pairs]
    return result


def _like(value: float, printed: float) -> str:
    """`value` with as many decimals as the paper prints."""
    decimals = len(f"{printed:g}".partition(".")[2])
    return f"{round(value, decimals):g}"
