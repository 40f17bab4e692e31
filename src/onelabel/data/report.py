"""What went wrong while reading data: counted, named, and never silent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onelabel.system import atomic_write


class DataError(ValueError):
    """Data that cannot be used as it is; the message is one line that names the remedy."""

    def __init__(self, message: object) -> None:
        """What is cited of the data, such as a column's name, may have several lines."""
        super().__init__(" ".join(str(message).splitlines()))


#: What helps a class without a row in training, of which a drawn validation part has some.
REDRAW = "-o split_seed=N draws another validation part"
# kind -> (whether the row leaves the data, what it means in words)
KINDS: dict[str, tuple[bool, str]] = {
    "missing": (True, "listed but not there"),
    "unreadable": (True, "cannot be opened (permissions, a folder, an I/O error)"),
    "empty-file": (True, "zero bytes"),
    "broken": (True, "not a picture this program reads"),
    "truncated": (True, "the picture ends early"),
    "bomb": (True, "more pixels than allowed; refused before decoding"),
    "malformed": (True, "a line or record that does not follow the format"),
    "duplicate-path": (False, "listed more than once; labels were merged"),
    "duplicate-content": (False, "the same bytes as another file"),
    "unknown-label": (False, "label not in the class list; ignored"),
    "conflict": (False, "positive and negative for the same class; counted as unknown"),
    "no-label": (False, "no positive label; kept with every class unknown"),
    "empty-folder": (False, "a class folder without pictures; it gives no class"),
    "no-class": (True, "lies in no class folder"),
    "linked-folder": (True, "a link to a folder above it or to another class folder; its pictures are not read twice"),
    "alike": (False, "classes whose names differ only in case, spaces or coding; rename one where they mean the same"),
    "untrained": (False, "a class without a row in training; add some"),
    "hidden": (False, "training sees drawn labels only, as in the papers; -o drop=none shows it all that are known"),
    "sole": (False, "one label a row and, by `complete`, no other; leave that out if nobody looked for them"),
    "undivided": (False, "cells that look like several labels; each is one class as it stands"),
    "other-format": (True, "a photograph in a format that is not read; convert it to JPEG"),
    "not-a-picture": (False, "a file that is no picture by its name; left alone"),
    "outside": (True, "a path that leaves the data folder"),
    "animated": (False, "several frames; the first is used"),
    "cmyk": (False, "converted from CMYK"),
    "grey": (False, "converted from greyscale"),
    "deep": (False, "more than 8 bits a channel; scaled to 8"),
    "dim": (
        False,
        "16-bit greys of which no value in all the data is above 4095, so 12 bits: read nearly black; "
        "`onelabel data brighten FOLDER OUT` multiplies them by 16",
    ),
    "rotated": (False, "turned upright by its EXIF orientation"),
    "tiny": (False, "smaller than 8 pixels on a side"),
    "long": (False, "more than 20 times longer than wide"),
}


@dataclass(frozen=True)
class Problem:
    """One thing met: its kind (a key of `KINDS`), the file or row, and a detail."""

    kind: str
    name: str
    detail: str = ""

    @property
    def fatal(self) -> bool:
        """Whether the row cannot be used (it leaves the data)."""
        return KINDS[self.kind][0]


@dataclass
class Report:
    """Every problem met, in order. With `strict` the first one that costs a row or a label raises `DataError`."""

    strict: bool = False
    problems: list[Problem] = field(default_factory=list)

    # These change nothing about what is learned, so strict lets them pass.
    HARMLESS = frozenset({"animated", "cmyk", "grey", "deep", "rotated", "tiny", "long", "not-a-picture"})
    HARMLESS |= {"alike", "untrained", "undivided", "dim", "hidden", "sole"}

    def add(self, kind: str, name: object, detail: object = "") -> None:
        """Record a problem; raises `DataError` when strict, unless the kind is harmless."""
        if kind not in KINDS:
            raise ValueError(f"kind: {kind!r} is not one of {sorted(KINDS)}")
        problem = Problem(kind, str(name), str(detail))
        if self.strict and kind not in self.HARMLESS:
            raise DataError(_line(problem) + "; fix it or read without strict")
        self.problems.append(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Record several problems."""
        for problem in problems:
            self.add(problem.kind, problem.name, problem.detail)

    def settle_dim(self) -> None:
        """Forget which pictures are dim unless all of more than 8 bits are: beside a bright one they are just dark."""
        if set(self.names("dim")) != set(self.names("deep")):
            self.problems[:] = [problem for problem in self.problems if problem.kind != "dim"]

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems)

    @property
    def counts(self) -> dict[str, int]:
        """How many problems of each kind."""
        return dict(sorted(Counter(problem.kind for problem in self.problems).items()))

    @property
    def lost(self) -> int:
        """How many rows or records could not be used."""
        return sum(problem.fatal for problem in self.problems)

    def names(self, kind: str) -> list[str]:
        """The files or rows with this kind of problem."""
        return [problem.name for problem in self.problems if problem.kind == kind]

    def text(self, names: int = 5) -> str:
        """The report in words: a line per kind with its count, then up to `names` names each."""
        if not self.problems:
            return "no problems"
        return "\n".join(line for said, shown in self._kinds(names) for line in (said, *(f"    {s}" for s in shown)))

    __str__ = text

    def line(self, names: int = 3) -> str:
        """The same in one line, for an error."""
        return "; ".join(f"{said}: {', '.join(shown)}" for said, shown in self._kinds(names))

    def _kinds(self, names: int) -> Iterator[tuple[str, list[str]]]:
        """What is said of each kind of problem, and up to `names` of those that have it."""
        for kind, count in self.counts.items():
            lost, meaning = KINDS[kind]
            found = [problem for problem in self.problems if problem.kind == kind][:names]
            shown = [printable(p.name + (f": {p.detail}" if p.detail else "")) for p in found]
            shown += [f"and {count - names:,} more"] if count > names else []
            yield f"{count:,} {kind}{' (left out)' if lost else ''}: {meaning}", shown

    def to_dict(self) -> dict[str, Any]:
        """Counts and every problem, for JSON."""
        rows = [{"kind": p.kind, "name": p.name, "detail": p.detail} for p in self.problems]
        return {"counts": self.counts, "lost": self.lost, "problems": rows}

    def save(self, path: str | Path) -> None:
        """Write the whole report as JSON."""
        atomic_write(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False))


def no_rows(name: str, report: Report) -> DataError:
    """What is raised where no training row can be used."""
    lost = Report(problems=[problem for problem in report if problem.fatal])
    remedy = "; a table's paths start at its own folder unless --root (root=) says where"
    return DataError(f"{name}: no usable training rows; {lost.line(names=2)}{remedy if lost.names('missing') else ''}")


def printable(name: str) -> str:
    """A name in one line: what cannot be seen, such as a line break in a file's name, is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _line(problem: Problem) -> str:
    detail = f" ({problem.detail})" if problem.detail else ""
    return printable(f"{problem.name}: {KINDS[problem.kind][1]}{detail}")
