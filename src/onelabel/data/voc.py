"""PASCAL VOC 2012 from the official tree: labels from `ImageSets/Main`, object sizes from `Annotations`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.system import progress

from .base import Draw, Part, Splits, make_splits
from .paths import find_tree, present
from .report import DataError, Report
from .sources import FileSource

# Alphabetical, as published; the order is part of the label draw.
CLASS_NAMES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
PARTS: dict[Part, str] = {"train": "train", "test": "val"}  # the official validation set is everyone's test set


def load_voc(
    root: str | Path, *, draw: Draw | None = None, report: Report | None = None, pictures: bool = True
) -> Splits[Any]:
    """VOC 2012: 5,717 training rows split 4,574 / 1,143, tested on the official validation set (5,823).

    "Difficult" objects (0 in the class files) count as absent, as published.

    Args:
        root: the folder that holds `VOCdevkit`, or `VOC2012` itself.
        pictures: False reads the labels alone (for features computed elsewhere).
    """
    tree = find_voc(root)
    draw, report = draw or Draw(), report if report is not None else Report()
    rows: dict[Part, FileSource] = {}
    true: dict[Part, NDArray[np.uint8]] = {}
    keep: dict[Part, NDArray[np.bool_]] = {}
    sizes: dict[Part, NDArray[np.float32]] = {}
    for part, listed in PARTS.items():
        ids, true[part] = read_labels(tree, listed, report)
        paths = [f"JPEGImages/{identifier}.jpg" for identifier in ids]
        rows[part] = FileSource(tree, paths, upright=False)
        if pictures:
            keep[part] = present(tree, paths, report)
        if draw.drop == "size":
            sizes[part] = voc_object_sizes(tree, ids, report=report)
    return make_splits(
        "voc2012", CLASS_NAMES, rows, true, draw=draw, report=report, keep=keep, sizes=sizes, notes=_NOTES
    )


_NOTES = ("test is the official val list", "difficult objects count as absent")


def find_voc(root: str | Path) -> Path:
    """The `VOC2012` folder below `root`."""
    below = ("VOCdevkit/VOC2012", "voc2012/VOCdevkit/VOC2012", "VOC2012", "voc2012", ".")
    return find_tree("voc2012", root, *below, marker="ImageSets/Main")


def read_labels(tree: Path, listed: str, report: Report) -> tuple[list[str], NDArray[np.uint8]]:
    """Image ids of `ImageSets/Main/{listed}.txt` and their uint8 N×20 labels from the per-class files."""
    main = tree / "ImageSets" / "Main"
    ids = [line.split()[0] for line in _lines(main / f"{listed}.txt") if line.strip()]
    position: dict[str, int] = {}
    for identifier in ids:
        if identifier in position:
            report.add("duplicate-path", f"{listed}.txt: {identifier}")
        position.setdefault(identifier, len(position))
    ids = list(position)
    true = np.zeros((len(ids), len(CLASS_NAMES)), np.uint8)
    for column, name in enumerate(CLASS_NAMES):
        file = main / f"{name}_{listed}.txt"
        seen = np.zeros(len(ids), bool)
        for number, line in enumerate(_lines(file), 1):
            words = line.split()
            if not words:
                continue
            row = position.get(words[0], -1)
            if len(words) != 2 or words[1] not in ("1", "0", "-1") or row < 0:
                report.add("malformed", f"{file.name}:{number}", f"{line.strip()!r}, expected ID and 1, 0 or -1")
                continue
            true[row, column] = words[1] == "1"
            seen[row] = True
        for row in np.flatnonzero(~seen).tolist():
            report.add("malformed", f"{file.name}: {ids[row]}", "not in the file; counted as absent")
    return ids, true


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; extract VOCtrainval_11-May-2012.tar again") from None


def voc_object_sizes(root: str | Path, ids: Sequence[str], *, report: Report | None = None) -> NDArray[np.float32]:
    """The share of each picture that each class's largest box covers: float32 N×20, 0 where absent.

    Read from `Annotations/ID.xml`; difficult objects are left out, as in the labels.
    """
    import xml.etree.ElementTree as tree_parser

    tree = find_voc(root)
    report = report if report is not None else Report()
    column = {name: i for i, name in enumerate(CLASS_NAMES)}
    sizes = np.zeros((len(ids), len(CLASS_NAMES)), np.float32)
    with progress("boxes", len(ids)) as advance:
        for row, identifier in enumerate(ids):
            file = tree / "Annotations" / f"{identifier}.xml"
            try:
                text = file.read_bytes()
                if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
                    raise ValueError("declares entities")
                root_node = tree_parser.fromstring(text)
                width, height = (float(root_node.findtext(f"size/{side}", "0")) for side in ("width", "height"))
                if width <= 0 or height <= 0:
                    raise ValueError(f"size {width:g}×{height:g}")
                for item in root_node.iter("object"):
                    name = item.findtext("name", "")
                    if name not in column or item.findtext("difficult", "0").strip() == "1":
                        continue
                    x0, y0, x1, y1 = (
                        float(item.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax")
                    )
                    share = max(0.0, x1 - x0 + 1) * max(0.0, y1 - y0 + 1) / (width * height)
                    sizes[row, column[name]] = max(sizes[row, column[name]], min(share, 1.0))
            except FileNotFoundError:
                report.add("malformed", file.name, "no annotation; sizes are 0")
            except (OSError, ValueError, tree_parser.ParseError) as error:
                report.add("malformed", file.name, error)
            advance(1)
    return sizes
