"""Own data: what someone's folder or table says, made into splits. Every loader of own data ends here."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onelabel.labels import Labels

from .base import Draw, Part, Splits, make_splits
from .report import REDRAW, DataError, Report, printable
from .sources import FileSource, ImageSource
from .verify import Verify, mention_shared, readable

#: Whether own labels are all there are: of no rows, of every row, or of those held out for validation and test.
Complete = bool | Literal["held-out"]

_PART_NAMES: dict[str, Part] = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}


@dataclass
class Records:
    """A picture or row each: its name, positive and negative class names, and its part where the data says so."""

    names: list[str] = field(default_factory=list)
    positives: list[Sequence[str]] = field(default_factory=list)
    negatives: list[Sequence[str]] = field(default_factory=list)
    parts: list[Part | None] = field(default_factory=list)

    def add(self, name: str, positives: Sequence[str], negatives: Sequence[str] = (), part: Part | None = None) -> None:
        self.names.append(name)
        self.positives.append(positives)
        self.negatives.append(negatives)
        self.parts.append(part)

    def __len__(self) -> int:
        return len(self.names)


def part_name(word: object) -> Part | None:
    """The part that a word such as "val" means; None for any other word."""
    return _PART_NAMES.get(str(word).strip().lower())


def part_said(cell: object, where: str) -> Part | None:
    """The part that a cell of a table says; None where it is empty. An unknown word is refused, not trained on."""
    if cell is None or cell != cell or not str(cell).strip():  # a missing cell may be "not a number"
        return None
    part = part_name(cell)
    if part is None:
        raise DataError(f"{where}: {cell!r}, expected one of {', '.join(_PART_NAMES)}; rename it, or the column")
    return part


def merge_duplicates(records: Records, report: Report) -> Records:
    """One record per name: labels of repeated ones are united, and every repetition is reported."""
    position: dict[str, int] = {}
    merged = Records()
    for name, positives, negatives, part in zip(
        records.names, records.positives, records.negatives, records.parts, strict=True
    ):
        if name in position:
            row = position[name]
            report.add("duplicate-path", name)
            merged.positives[row] = [*dict.fromkeys([*merged.positives[row], *positives])]
            merged.negatives[row] = [*dict.fromkeys([*merged.negatives[row], *negatives])]
        else:
            position[name] = len(merged)
            merged.add(name, positives, negatives, part)
    return merged


def class_list(given: Sequence[str] | str | Path | None, records: Records) -> tuple[str, ...]:
    """The class names: as given, from a text file with one per line, or all that occur (numbers by value)."""
    if isinstance(given, str | Path):
        try:
            lines = Path(given).read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise DataError(f"class_names: {given}: {error.strerror}") from None
        names = tuple(line.strip() for line in lines if line.strip())
    elif given is not None:
        names = tuple(str(name) for name in given)
    else:
        found = {name for row in (*records.positives, *records.negatives) for name in row}
        numbers = all(name.isdecimal() for name in found)
        names = tuple(sorted(found, key=int) if numbers else sorted(found))
    if not names:
        raise DataError("class_names: no label found anywhere; check the label column or the folders")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"class_names: {twice!r} is listed twice, expected different names")
    return names


def mention_alike(class_names: Sequence[str], report: Report) -> None:
    """Report class names that a person would take for one; they stay separate, for a name is a name."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in class_names:
        groups[" ".join(_composed(_composed(name).casefold()).split())].append(name)
    for group in groups.values():
        if len(group) > 1:
            look_the_same = len({_composed(name) for name in group}) < len(group)
            told = " and ".join(ascii(name) if look_the_same else repr(name) for name in group)
            report.add("alike", told)


def _composed(name: str) -> str:
    """Accents in one code with their letter (Unicode's NFC)."""
    return unicodedata.normalize("NFC", name)


def observed_labels(records: Records, class_names: Sequence[str], report: Report) -> Labels:
    """The records as observed labels; unknown names, contradictions and rows without a positive are reported."""
    column = {name: i for i, name in enumerate(class_names)}
    rows: list[int] = []
    cols: list[int] = []
    values: list[int] = []
    for row, name in enumerate(records.names):
        sign: dict[int, int] = {}
        for value, labels in ((1, records.positives[row]), (-1, records.negatives[row])):
            for label in labels:
                where = column.get(label)
                if where is None:
                    report.add("unknown-label", name, label)
                elif sign.get(where, value) != value:
                    report.add("conflict", name, label)
                    sign[where] = 0
                else:
                    sign[where] = value
        if 1 not in sign.values():
            report.add("no-label", name)
        rows += [row] * len(sign)
        cols += sign.keys()
        values += sign.values()
    shape = (len(records), len(class_names))
    known = np.array(values, np.int8) != 0
    return Labels.from_coo(
        np.array(rows, np.int64)[known],
        np.array(cols, np.int64)[known],
        np.array(values, np.int8)[known],
        shape=shape,
        class_names=class_names,
    )


def mention_untrained(splits: Splits[Any], given: Container[str]) -> None:
    """Report classes that validation or test has and training has not: they are measured, and cannot be learnt.

    `given` are the parts that were not drawn.

    The split stays as it is drawn. Rows kept from validation for it would leave that without rare classes, by which
    it would no longer be like the pictures to come; and runs of before would no longer find their rows.
    """
    count = {name: _counted(part) for name, part in splits.parts.items()}
    train = count.pop("train")
    for column in np.flatnonzero(train == 0).tolist():
        where = [f"{rows[column]:,} in {name}" for name, rows in count.items() if rows[column]]
        if where:
            drawn = "validation" not in given and "validation" in count and count["validation"][column]
            detail = ", ".join(where) + (f"; {REDRAW}" if drawn else "")
            splits.report.add("untrained", splits.class_names[column], detail)


def _counted(part: Any) -> NDArray[np.int64]:
    """How many rows have each class: by clean labels where they are known, else by observed ones."""
    return np.asarray(part.observed.counts().positives if part.true is None else part.true.sum(0), np.int64)


def only_class(splits: Splits[Any]) -> str:
    """One line where there is a single class and every row has it, of which nothing can be learned; else empty."""
    parts = splits.parts.values()
    if len(splits.class_names) > 1 or not all((part.observed.positives_per_row() == 1).all() for part in parts):
        return ""
    name = splits.class_names[0]
    return f"{splits.name}: only the class {name!r} was found, and every row has it; a folder per class is needed"


def class_counts(splits: Splits[Any]) -> dict[str, int]:
    """How many rows of all parts have each class."""
    count = np.zeros(len(splits.class_names), np.int64)
    for part in splits.parts.values():
        count += _counted(part)
    return dict(zip(splits.class_names, count.tolist(), strict=True))


def class_line(counts: Mapping[str, int], most: int = 12) -> str:
    """The classes with their counts, the frequent first; of more than `most` the middle is left out."""
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    told = [printable(f"{name} {count:,}") for name, count in ranked]
    if len(told) > most:
        told[most // 2 : -(most // 2)] = ["…"]
    return f"{len(counts):,} class{'es' if len(counts) != 1 else ''}: {', '.join(told)}"


def own_splits(
    name: str,
    source: ImageSource | NDArray[np.float32],
    records: Records,
    *,
    class_names: Sequence[str] | str | Path | None,
    complete: Complete,
    draw: Draw,
    report: Report,
    verify: Verify = "none",
    notes: Sequence[str] = (),
) -> Splits[Any]:
    """Splits of own data. `complete` says of which rows every label that they lack is absent, which makes them clean.

    A part of which every entry is known, present or absent, is clean without that.
    """
    if complete not in (True, False, "held-out"):
        raise DataError(f"complete: {complete!r}, expected true, false or 'held-out' (of validation and test rows)")
    if not len(records):
        met = f"; {report.line()}" if len(report) else ""
        raise DataError(
            f"{name}: no pictures found{met}; give a folder with a folder of pictures per class, or a table"
        )
    names = class_list(class_names, records)
    mention_alike(names, report)
    observed = observed_labels(records, names, report)
    usable = np.ones(len(records), bool)
    if isinstance(source, ImageSource):
        usable = readable(source, report, verify=verify)
    where = np.array([part or "train" for part in records.parts])
    if verify != "none" and isinstance(source, FileSource) and (where != "train").any():
        mention_shared(source, where.tolist(), usable, report)
    if not (where == "train").any():
        raise DataError(f"{name}: no row is in the training part; the split column holds only {sorted(set(where))}")
    rows: dict[Part, Any] = {}
    labels: dict[Part, Any] = {}
    keep: dict[Part, NDArray[np.bool_]] = {}
    parts: tuple[Part, ...] = ("train", "validation", "test")
    for part in parts:
        index = np.flatnonzero(where == part)
        if len(index):
            rows[part] = source.take(index) if isinstance(source, ImageSource) else source[index]
            mine = observed.take(index)
            labels[part] = mine
            if _has_all(complete, part):
                labels[part] = _present(mine)
            elif len(mine.indices) == len(mine) * mine.num_classes:
                labels[part] = mine, _present(mine)
            keep[part] = usable[index]
    if complete == "held-out" and set(rows) == {"train"}:
        raise DataError(
            f"{name}: complete='held-out' is about validation and test rows, and all are in training; "
            "give a split column, or folders train/ and val/"
        )
    splits = make_splits(name, names, rows, labels, draw=draw, report=report, keep=keep, notes=notes)
    mention_untrained(splits, rows)
    mention_hidden(splits, labels["train"])
    mention_sole(splits, complete)
    return splits


def _has_all(complete: Complete, part: str) -> bool:
    """Whether rows of this part are said to have all their labels."""
    return complete is True or (complete == "held-out" and part != "train")


def _present(labels: Labels) -> NDArray[np.uint8]:
    return (labels.to_dense() > 0).astype(np.uint8)


def mention_sole(splits: Splits[Any], complete: Complete) -> None:
    """Report that every row has one label where rows are said to have all theirs: most often only one was noted."""
    said = [part for name, part in splits.parts.items() if _has_all(complete, name)]
    alone = [(part.true.sum(1) == 1).all() for part in said if part.true is not None]
    if alone and all(alone) and len(splits.class_names) > 2:
        splits.report.add("sole", f"complete={str(complete).lower()}")


def mention_hidden(splits: Splits[Any], given: Any) -> None:
    """Report how many of its known labels (`given`, 0/1) training hides, where one a row was drawn as in the papers."""
    train = splits.train
    if not isinstance(given, np.ndarray) or train.true is None:
        return
    known, seen = int(train.true.sum()), int(train.observed.positives_per_row().sum())
    if seen < known:
        rows = max(len(train), 1)
        splits.report.add("hidden", f"{known / rows:.2f} labels a row", f"{seen / rows:.2f} of them drawn")
