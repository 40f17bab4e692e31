"""A folder per class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from .base import Draw, Part, Splits
from .own import Complete, Records, own_splits, part_name
from .paths import leads_up, list_pictures, not_read
from .report import DataError, Report
from .sources import FileSource
from .verify import Verify


def load_folder(
    path: str | Path,
    *,
    class_names: Sequence[str] | str | Path | None = None,
    complete: Complete = False,
    verify: Verify = "header",
    draw: Draw | None = None,
    report: Report | None = None,
) -> Splits[Any]:
    """A folder with a folder of pictures per class, at any depth below it.

    Where the folder holds `train` (and `val`, `test`), those are the parts and hold the class folders.

    Args:
        class_names: the classes and their order (names, or a text file); the sorted folder names unless given.
        complete: each picture has no label but its folder's; its labels then count as clean;
            'held-out': of validation and test rows alone.
        verify: "header" opens every picture first, "decode" reads it whole, "none" trusts it.
    """
    root = Path(path).expanduser()
    report = report if report is not None else Report()
    records = scan_folder(root, report)
    source = FileSource(root, records.names)
    return own_splits(
        root.resolve().name or "folder",
        source,
        records,
        class_names=class_names,
        complete=complete,
        draw=draw or Draw(),
        report=report,
        verify=verify,
        notes=("a folder per class",),
    )


def scan_folder(root: Path, report: Report) -> Records:
    """The pictures below `root` with their class folder's name, sorted."""
    try:
        entries = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{root}: {error.strerror}; expected a folder with a folder per class") from None
    records = Records()
    if "train" in entries and all(part_name(entry) for entry in entries):
        _refuse_same(root, entries)
        for entry in entries:
            _scan(root, root / entry, part_name(entry), report, records)
    else:
        _scan(root, root, None, report, records)
    return records


def _refuse_same(root: Path, parts: Sequence[str]) -> None:
    """Parts must be folders of their own: held-out pictures that were trained on measure nothing."""
    for one, other in combinations(sorted(parts, key=lambda part: part != "train"), 2):
        there, here = root / one, root / other
        if os.path.samefile(there, here) or leads_up(str(there), here) or leads_up(str(here), there):
            told = "the same folder as" if os.path.samefile(there, here) else "shares its pictures with"
            remedy = "remove the link and the split is drawn, or put other pictures there"
            raise DataError(f"{here}: {told} {there}, links followed; {remedy}")


def _scan(root: Path, folder: Path, part: Part | None, report: Report, records: Records) -> None:
    entries = sorted((e for e in os.scandir(folder) if not e.name.startswith(".")), key=lambda entry: entry.name)
    taken = {os.path.realpath(entry.path) for entry in entries if not entry.is_symlink()}
    for entry in entries:
        if not entry.is_dir():
            report.add(not_read(entry.name) or "no-class", os.path.relpath(entry.path, root))
            continue
        if entry.is_symlink():
            real = os.path.realpath(entry.path)
            if real in taken or leads_up(real, folder):
                report.add("linked-folder", os.path.relpath(entry.path, root), f"→ {real}")
                continue
            taken.add(real)
        found = list_pictures(entry.path, report, base=root)
        if not found:
            report.add("empty-folder", os.path.relpath(entry.path, root))
        for path in found:
            records.add(path, (entry.name,), part=part)
