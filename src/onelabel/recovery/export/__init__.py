"""Recovered labels for other tools: one short file per family of formats."""

from __future__ import annotations

import difflib
import importlib
import os
from pathlib import Path

from onelabel.recovery.table import RecoveredFile
from onelabel.system import refuse_existing

#: Format → (module, function, what it writes).
FORMATS = {
    "csv": ("tables", "write_csv", "one line per candidate, with a column `recovered`"),
    "parquet": ("tables", "write_parquet", "one row per picture: path, labels, probabilities"),
    "coco": ("coco", "write_coco", "COCO-style JSON, annotations for whole pictures"),
    "label-studio": ("label_studio", "write_label_studio", "tasks with pre-annotations, and the labelling config"),
    "fiftyone": ("fiftyone", "write_fiftyone", "a dataset JSON for fiftyone.Dataset.from_json"),
    "hf": ("hf", "write_hf", "a directory for datasets.load_from_disk"),
    "folders": ("folders", "write_folders", "a folder per class with symlinks"),
    "yolo": ("folders", "write_yolo", "data.yaml, a list of pictures and a list of class numbers"),
    "labels": ("tables", "write_labels", "Labels for the next training round (.npz or .parquet)"),
}
#: Formats that are lists of picture files.
PICTURES = ("coco", "label-studio", "fiftyone", "folders", "yolo")


def refuse_format(to: str, source: object = "", first: str | None = None, *, folder: bool = True) -> None:
    """An error where there is no such format, or it lists picture files and `source`, without a folder, has numbers.

    Args:
        first: the first row's name; rows of features are numbers.
        folder: whether the folder that names are relative to is known.
    """
    if to not in FORMATS:
        near = difflib.get_close_matches(to, FORMATS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"there is no format {to!r}; {hint}there are {', '.join(FORMATS)}")
    if to in PICTURES and not folder and first is not None and first.isdecimal():
        others = ", ".join(name for name in FORMATS if name not in PICTURES)
        raise ValueError(
            f"{source} names no picture files, which {to} lists: its rows have numbers alone; export one of {others}, "
            "or recover from a folder or table of pictures"
        )


def export_recovered(recovered: RecoveredFile | str | os.PathLike[str], to: str, out: str | os.PathLike[str]) -> Path:
    """Write recovered labels in another tool's format; a target that exists is refused, never overwritten.

    Labels are the observed positives and the entries at or above their class's threshold; observed negatives and the
    rest are left out. Formats that list `PICTURES` refuse rows of features, which have numbers for names.
    """
    refuse_format(to)
    file = recovered if isinstance(recovered, RecoveredFile) else RecoveredFile.open(recovered)
    first = next(file.examples(), None)
    refuse_format(to, file.path, first.example if first else None, folder=file.folder() is not None)
    target = Path(out)
    refuse_existing(target)
    module, function, _ = FORMATS[to]
    made: Path = getattr(importlib.import_module(f"onelabel.recovery.export.{module}"), function)(file, target)
    return made
