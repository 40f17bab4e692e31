"""What was measured of each method: boards made from the committed results of the benchmark, best first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onelabel
from onelabel.bench import tables

RESULTS = Path(__file__).resolve().parents[1] / "results" / "bench"
DATASET = "voc2012"
MODES = {"finetune": "fine-tuned", "linearinit": "linear start, then fine-tuned", "linear": "linear"}
#: They know more than one positive label per example: shown, but not ranked with the others.
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
    lines: tuple[Line, ...]

    def rank(self, method: str) -> tuple[int, int] | None:
        """Place among those that saw single positives, and their number; None where it is not one of them."""
        names = [line.method for line in self.lines if line.method not in ORACLES]
        return (names.index(method) + 1, len(names)) if method in names else None

    def line(self, method: str) -> Line | None:
        return next((line for line in self.lines if line.method == method), None)


def boards() -> list[Board]:
    """One board per mode of which there are results."""
    rows = tables.find(RESULTS).rows if RESULTS.is_dir() else []
    made = []
    for mode, title in MODES.items():
        lines = []
        for name in onelabel.list_methods():
            cell = tables.pick(rows, DATASET, name, mode)
            mean = None if cell is None else cell.mean("test_map")
            if cell is not None and mean is not None:
                lines.append(Line(name, mean, cell.std("test_map"), len(cell.values("test_map"))))
        if lines:
            made.append(Board(f"VOC 2012, {title}", tuple(sorted(lines, key=lambda line: -line.mean))))
    return made
