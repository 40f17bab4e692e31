"""CUB-200-2011 with its 312 binary attributes from `image_attribute_labels.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.system import need

from .base import Draw, Part, Splits, make_splits
from .paths import find_tree, inside, present
from .report import DataError, Report
from .sources import FileSource


def load_cub(
    root: str | Path, *, draw: Draw | None = None, report: Report | None = None, pictures: bool = True
) -> Splits[Any]:
    """CUB: 5,994 training rows split 4,795 / 1,199, and 5,794 test rows, by the official split.

    An attribute counts as present where `is_present` is 1, however certain the annotator was, as published.

    Args:
        root: the folder that holds `CUB_200_2011` (and `attributes.txt` beside or inside it).
        pictures: False reads the labels alone.
    """
    tree = find_tree(
        "cub", root, "CUB_200_2011", "cub/CUB_200_2011", "CUB_200_2011/CUB_200_2011", ".", marker="images.txt"
    )
    draw, report = draw or Draw(), report if report is not None else Report()
    names = _attributes(tree)
    images = dict(_numbered(tree / "images.txt", report))
    is_train = dict(_numbered(tree / "train_test_split.txt", report))
    ids = sorted(images)
    true = _labels(tree / "attributes" / "image_attribute_labels.txt", ids, len(names), report)
    members: dict[Part, list[int]] = {"train": [], "test": []}
    for row, identifier in enumerate(ids):
        part = {"1": "train", "0": "test"}.get(is_train.get(identifier, ""))
        if not inside(images[identifier]):
            report.add("outside", images[identifier])
        elif part is None:
            report.add("malformed", f"train_test_split.txt: image {identifier}", "neither 1 nor 0")
        else:
            members["train" if part == "train" else "test"].append(row)
    rows: dict[Part, FileSource] = {}
    labels: dict[Part, NDArray[np.uint8]] = {}
    keep: dict[Part, NDArray[np.bool_]] = {}
    for key, chosen in members.items():
        paths = [f"images/{images[ids[row]]}" for row in chosen]
        rows[key] = FileSource(tree, paths, upright=False)
        labels[key] = true[chosen]
        if pictures:
            keep[key] = present(tree, paths, report)
    notes = ("the official split", "attributes count as present at any certainty")
    return make_splits("cub", names, rows, labels, draw=draw, report=report, keep=keep, notes=notes)


def _text(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; extract CUB_200_2011.tgz again") from None


def _numbered(file: Path, report: Report) -> list[tuple[int, str]]:
    """Lines of a number and a word."""
    pairs = []
    for number, line in enumerate(_text(file), 1):
        words = line.split(maxsplit=1)
        if not words:
            continue
        if len(words) != 2 or not words[0].isdecimal():
            report.add("malformed", f"{file.name}:{number}", f"{line!r}, expected a number and a value")
            continue
        pairs.append((int(words[0]), words[1].strip()))
    return pairs


def _attributes(tree: Path) -> tuple[str, ...]:
    for file in (tree.parent / "attributes.txt", tree / "attributes.txt", tree / "attributes" / "attributes.txt"):
        if file.is_file():
            pairs = sorted(_numbered(file, Report(strict=True)))
            if [number for number, _ in pairs] != list(range(1, len(pairs) + 1)):
                raise DataError(f"{file}: attributes are not numbered from 1; extract CUB_200_2011.tgz again")
            return tuple(name for _, name in pairs)
    raise DataError(f"{tree.parent / 'attributes.txt'}: not there; extract CUB_200_2011.tgz, which holds it")


def _labels(file: Path, ids: list[int], attributes: int, report: Report) -> NDArray[np.uint8]:
    """Image, attribute, is_present, certainty, time; some official lines have a word more or less than five."""
    arrow, csv, compute = (need(f"pyarrow{part}", "cli") for part in ("", ".csv", ".compute"))
    odd: list[str] = []

    def irregular(row: object) -> str:
        odd.append(str(getattr(row, "text", None) or ""))
        return "skip"

    columns = ["image", "attribute", "present", "certainty", "time"]
    try:
        table = csv.read_csv(
            file,
            read_options=csv.ReadOptions(column_names=columns, encoding="latin-1"),  # any byte is a letter
            parse_options=csv.ParseOptions(delimiter=" ", quote_char=False, invalid_row_handler=irregular),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(columns, arrow.string()), include_columns=columns[:3]
            ),
        )
    except (OSError, arrow.ArrowInvalid) as error:
        raise DataError(f"{file}: {error}; extract CUB_200_2011.tgz again") from None
    loose = [words[:3] for words in map(str.split, odd)]
    full = [words for words in loose if len(words) == 3]
    extra = arrow.table({name: [words[i] for words in full] for i, name in enumerate(columns[:3])}, table.schema)
    table = arrow.concat_tables([table, extra])
    numeric = compute.and_(
        compute.and_(*(compute.utf8_is_decimal(table[name]) for name in columns[:2])),
        compute.utf8_is_decimal(table["present"]),
    )
    numbers = table.filter(numeric)
    image, attribute, value = (numbers[name].cast(arrow.int64()).to_numpy() for name in columns[:3])
    row_of = np.full(max([*ids, int(image.max(initial=0))]) + 1, -1, np.int64)
    row_of[ids] = np.arange(len(ids))
    row = row_of[image]
    good = (row >= 0) & (attribute >= 1) & (attribute <= attributes) & (value <= 1)
    bad = len(table) - int(good.sum()) + len(loose) - len(full)
    if bad:
        report.add("malformed", file.name, f"{bad:,} lines without a listed image, attribute and 0 or 1")
    true = np.zeros((len(ids), attributes), np.uint8)
    seen = np.zeros((len(ids), attributes), bool)
    true[row[good], attribute[good] - 1] = value[good]
    seen[row[good], attribute[good] - 1] = True
    for lacking in np.flatnonzero(~seen.all(1)).tolist():
        count = int((~seen[lacking]).sum())
        report.add(
            "malformed", f"{file.name}: image {ids[lacking]}", f"{count} attributes not listed; counted as absent"
        )
    return true
