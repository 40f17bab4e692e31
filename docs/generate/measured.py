"""What was measured of each method: boards read from the committed results, best first."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
#: Rows with more than one positive label per example known: shown, but not ranked with the others.
ORACLES = {"bce", "bce-ls", "iu", "iun"}


@dataclass(frozen=True)
class Line:
    """One method's test mAP in percent."""

    method: str
    mean: float
    std: float | None
    seeds: int


@dataclass(frozen=True)
class Board:
    """Methods measured under one protocol, best first."""

    title: str
    source: str
    lines: tuple[Line, ...]

    @property
    def ranked(self) -> list[Line]:
        """Those that saw single positives only."""
        return [line for line in self.lines if line.method not in ORACLES]

    def rank(self, method: str) -> tuple[int, int] | None:
        """Place among the ranked and their number; None where it was not measured or saw more labels."""
        names = [line.method for line in self.ranked]
        return (names.index(method) + 1, len(names)) if method in names else None

    def line(self, method: str) -> Line | None:
        return next((line for line in self.lines if line.method == method), None)


def boards() -> list[Board]:
    """The benchmark's results where they are committed; until then what earlier measurements left."""
    return list(_bench()) or [board for board in (_fine_tuned(), _linear()) if board is not None]


def _board(title: str, source: str, values: dict[str, list[float]]) -> Board:
    lines = [
        Line(name, statistics.fmean(v), statistics.stdev(v) if len(v) > 1 else None, len(v))
        for name, v in values.items()
    ]
    return Board(title, source, tuple(sorted(lines, key=lambda line: -line.mean)))


def _bench() -> Iterable[Board]:
    folder = RESULTS / "bench"
    if not folder.is_dir():
        return
    from onelabel.bench.results import read

    rows = [r for r in read(folder) if r.done and r.test_map is not None and r.dataset.startswith("voc")]
    rows = [r for r in rows if r.draw == "uniform1200" and r.fraction == 1 and not r.plan.startswith("sweep")]
    titles = {"finetune": "fine-tuned", "linearinit": "linear start, then fine-tuned", "linear": "linear"}
    for mode, title in titles.items():
        values: dict[str, list[float]] = {}
        for row in rows:
            fair = (row.supervision == "positive") != (row.method in ORACLES)
            if row.mode == mode and row.label == row.method and fair:
                values.setdefault(row.method, []).append(float(row.test_map or 0))
        if values:
            yield _board(f"VOC 2012, {title}", "results/bench", values)


def _fine_tuned() -> Board | None:
    file = RESULTS / "voc-finetune-h200.json"
    if not file.is_file():
        return None
    values: dict[str, list[float]] = {}
    for run in json.loads(file.read_text(encoding="utf-8"))["runs"]:
        values.setdefault(run["method"], []).append(run["plain"]["test_mAP"])
    return _board("VOC 2012, fine-tuned", f"results/{file.name}", values)


def _linear() -> Board | None:
    file = RESULTS / "role-table-linear-cpu.csv"
    if not file.is_file():
        return None
    number: Callable[[str], float | None] = lambda text: float(text) if text else None  # noqa: E731
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    found = [Line(row["method"], float(row["test"]), number(row["std"]), int(row["seeds"])) for row in rows]
    return Board("VOC 2012, linear", f"results/{file.name}", tuple(sorted(found, key=lambda line: -line.mean)))
