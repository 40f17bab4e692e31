"""Published numbers: the five papers' tables as printed, and what others measured on the same data as ours."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: Dataset → its column in published.csv.
COLUMNS = {"voc2012": "voc", "coco2014": "coco", "nuswide": "nus", "cub": "cub"}
#: (source, table, method) → the name of the same thing here, where it differs: EM's ASL has other settings than LASD's,
#: ROLE's N-LS than EM's, and LASD's "WAN" repeats EM's tuned down-weighting.
SAME = {("em", "1", "asl"): "asl:em", ("role", "A1", "n-ls"): "n-ls:role", ("lasd", "2", "wan"): "dw"}
#: (source, table, method, dataset) → the setting a row really has: GR's "ROLE" repeats EM's with linear initialisation.
REALLY = {("gr", "2", "role", "voc2012"): "linearinit", ("gr", "2", "role", "coco2014"): "linearinit"}

#: ROLE's Tables A2 and A3 as printed: (low, high) from 5, 10 and 25 rows; classes, most, fewest, mean positives.
K_PRINTED = {
    "voc2012": ((1.0, 2.0), (1.1, 1.9), (1.2, 1.7)),
    "coco2014": ((1.8, 4.4), (2.1, 4.0), (2.4, 3.6)),
    "nuswide": ((0.8, 3.2), (1.0, 2.8), (1.3, 2.5)),
    "cub": ((25.2, 37.8), (27.0, 35.9), (28.6, 34.2)),
}
LABELS_PRINTED = {
    "voc2012": (20, 5, 1, 1.5),
    "coco2014": (80, 18, 1, 2.9),
    "nuswide": (81, 11, 0, 1.9),
    "cub": (312, 71, 3, 31.4),
}
#: EM's Table 7 is a picture in our copy of the paper; its text gives these.
F1_PRINTED = {("voc2012", "em"): ("85.36", "–"), ("cub", "an"): ("0", "0")}


@dataclass(frozen=True)
class Number:
    """A printed value of one method on one dataset, in percent."""

    source: str
    table: str
    setting: str
    method: str
    value: float | None
    std: float | None

    @property
    def name(self) -> str:
        """What the method is called here."""
        return SAME.get((self.source, self.table, self.method), self.method)

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        digits = 1 if self.source == "role" else 2
        return f"{self.value:.{digits}f}" + (f" ± {self.std:.2f}" if self.std is not None else "")


@dataclass(frozen=True)
class Anchor:
    """What others measured on the data, weights and draw that ours were measured on."""

    plain: float | None
    averaged_flip: float | None
    program: float | None  #: of the authors' own program
    program_of: str


@cache
def _lines(name: str) -> tuple[dict[str, str], ...]:
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def published(source: str, table: str, dataset: str) -> list[Number]:
    """The rows of a paper's table, in its order; None where it prints nothing for the dataset."""
    column = COLUMNS.get(dataset)
    found = []
    for line in _lines("published.csv"):
        if (line["source"], line["table"]) == (source, table):
            value, std = (line[column], line[f"{column}_std"]) if column else ("", "")
            setting = REALLY.get((source, table, line["method"], dataset), line["setting"])
            found.append(Number(source, table, setting, line["method"], _number(value), _number(std)))
    return found


def anchor(dataset: str, mode: str, name: str) -> Anchor | None:
    """The anchor of a method, where there is one."""
    for line in _lines("anchors.csv"):
        if (line["dataset"], line["mode"], line["method"]) == (dataset, mode, name):
            plain, averaged, program = (_number(line[key]) for key in ("plain", "averaged_flip", "program"))
            return Anchor(plain, averaged, program, line["program_of"])
    return None


def _number(text: str | None) -> float | None:
    return float(text) if text else None
