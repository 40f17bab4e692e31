"""MS-COCO 2014 from `instances_{train,val}2014.json`, rows and classes in the published order; own files like these."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.system import say

from .base import Draw, Part, Splits, make_splits
from .own import Complete, Records, merge_duplicates, own_splits
from .paths import find_tree, inside, native, present
from .report import DataError, Report
from .sources import FileSource
from .verify import Verify

PARTS: dict[Part, str] = {"train": "train2014", "test": "val2014"}


@dataclass(frozen=True)
class Instances:
    """An instances file: class names in its own order, a file name per row, clean labels, largest object per class."""

    class_names: tuple[str, ...]
    files: list[str]
    true: NDArray[np.uint8]
    sizes: NDArray[np.float32]


def load_coco(
    root: str | Path, *, draw: Draw | None = None, report: Report | None = None, pictures: bool = True
) -> Splits[Any]:
    """COCO 2014: 82,081 training rows split 65,665 / 16,416, tested on the 40,137 annotated val2014 pictures.

    As published: pictures without annotations are left out, ids are sorted as strings, classes are in the file's
    order, crowds count.

    Args:
        root: the folder that holds `annotations`, `train2014` and `val2014`.
        pictures: False reads the labels alone.
    """
    tree = find_coco(root)
    draw, report = draw or Draw(), report if report is not None else Report()
    rows: dict[Part, FileSource] = {}
    true: dict[Part, NDArray[np.uint8]] = {}
    keep: dict[Part, NDArray[np.bool_]] = {}
    sizes: dict[Part, NDArray[np.float32]] = {}
    names: tuple[str, ...] = ()
    for part, folder in PARTS.items():
        read = read_instances(tree / "annotations" / f"instances_{folder}.json", report)
        if names and read.class_names != names:
            raise DataError(
                f"instances_{folder}.json: its categories differ from the training file's; download both again"
            )
        names, true[part] = read.class_names, read.true
        paths = [f"{folder}/{file}" for file in read.files]
        rows[part] = FileSource(tree, paths, upright=False)
        if pictures:
            keep[part] = present(tree, paths, report)
        if draw.drop == "size":
            sizes[part] = read.sizes
    notes = ("test is val2014", "pictures without annotations are left out", "ids are sorted as strings")
    return make_splits("coco2014", names, rows, true, draw=draw, report=report, keep=keep, sizes=sizes, notes=notes)


def load_instances(
    path: str | Path,
    *,
    root: str | Path | None = None,
    class_names: Sequence[str] | str | Path | None = None,
    complete: Complete = False,
    verify: Verify = "header",
    draw: Draw | None = None,
    report: Report | None = None,
) -> Splits[Any]:
    """Own labels in COCO's form: `images` (id, file_name), `categories` and `annotations`, of which boxes are not read.

    Pictures without annotations are left out, and annotations with a `score` below ½, as `export --to coco` writes.

    Args:
        root: the folder that file names are relative to; the file's own unless given.
        complete: every class without an annotation is absent; labels then count as clean;
            'held-out': of validation and test rows alone.
    """
    file = Path(path).expanduser()
    report = report if report is not None else Report()
    read = read_instances(file, report, remedy="write it again")
    base = Path(root).expanduser() if root is not None else file.parent
    records = Records()
    for name, row in zip(read.files, read.true, strict=True):
        records.add(native(name, base), [read.class_names[column] for column in np.flatnonzero(row)])
    records = merge_duplicates(records, report)
    return own_splits(
        file.stem,
        FileSource(base, records.names),
        records,
        class_names=class_names if class_names is not None else read.class_names,
        complete=complete,
        draw=draw or Draw(),
        report=report,
        verify=verify,
        notes=(f"COCO annotations {file.name}", "pictures without annotations are left out"),
    )


def find_coco(root: str | Path) -> Path:
    """The folder with `annotations` below `root`."""
    return find_tree("coco2014", root, ".", "coco2014", "coco", marker="annotations/instances_train2014.json")


def coco_object_sizes(file: str | Path, *, report: Report | None = None) -> NDArray[np.float32]:
    """The share of each picture that each class's largest object covers, rows as `load_coco` orders them."""
    return read_instances(Path(file), report if report is not None else Report()).sizes


def _slim(record: dict[str, Any]) -> Any:
    """Forget polygons as soon as they are parsed: they are nine tenths of the file's memory."""
    record.pop("segmentation", None)
    record.pop("coco_url", None)
    record.pop("flickr_url", None)
    return record


def read_instances(
    file: Path, report: Report, *, remedy: str = "extract annotations_trainval2014.zip again"
) -> Instances:
    """Read one instances file; annotations that do not fit are reported and left out."""
    try:
        size = file.stat().st_size
        if size > 50 << 20:
            say(f"reading {file.name}, {size >> 20} MiB")
        with open(file, encoding="utf-8-sig") as stream:
            content = json.load(stream, object_hook=_slim)
        categories, images, annotations = content["categories"], content["images"], list(content["annotations"])
        column = {int(category["id"]): i for i, category in enumerate(categories)}
        names = tuple(str(category["name"]) for category in categories)
        about = {int(image["id"]): image for image in images}
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; {remedy}") from None
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise DataError(f"{file}: not an instances file ({error!r:.200}); {remedy}") from None
    if len(set(names)) != len(names) or len(column) != len(names):
        raise DataError(f"{file}: categories repeat; {remedy}")
    entries: list[tuple[int, int, float]] = []
    for number, annotation in enumerate(annotations):
        try:
            image, where = int(annotation["image_id"]), column[int(annotation["category_id"])]
            about[image]["id"]
            if float(annotation.get("score", 1.0)) < 0.5:
                continue
            entries.append((image, where, float(annotation.get("area", 0.0))))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            report.add("malformed", f"{file.name}: annotation {number}", f"{type(error).__name__} {error}")
    ids = [int(text) for text in sorted({str(image) for image, _, _ in entries})]
    row_of = {image: row for row, image in enumerate(ids)}
    true = np.zeros((len(ids), len(names)), np.uint8)
    sizes = np.zeros((len(ids), len(names)), np.float32)
    for image, where, area in entries:
        row = row_of[image]
        true[row, where] = 1
        try:
            share = area / (float(about[image]["width"]) * float(about[image]["height"]))
        except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
            share = 0.0
        sizes[row, where] = max(sizes[row, where], min(share, 1.0))
    files = [str(about[image].get("file_name") or f"{image:012d}.jpg") for image in ids]
    keep = np.array([inside(name) for name in files], bool)
    for row in np.flatnonzero(~keep).tolist():
        report.add("outside", f"{file.name}: {files[row]}")
    return Instances(names, [name for name, ok in zip(files, keep, strict=True) if ok], true[keep], sizes[keep])
