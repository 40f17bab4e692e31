"""NUS-WIDE from its concept, ground-truth and image lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .base import Draw, Part, Splits, make_splits
from .paths import find_tree, inside, present
from .report import DataError, Report
from .sources import FileSource

PUBLISHED_TRAIN, PUBLISHED_TEST = 150_000, 60_260


def load_nuswide(
    root: str | Path,
    *,
    split: Literal["published", "official"] = "published",
    draw: Draw | None = None,
    report: Report | None = None,
    pictures: bool = True,
) -> Splits[Any]:
    """NUS-WIDE, 81 concepts; pictures without any concept are legal rows.

    Args:
        root: the folder with `Concepts81.txt` (or `ConceptsList/`), `ImageList/`, `Groundtruth/` (or their contents)
            and the pictures in `Flickr/` or `images/`.
        split: "published" merges the official parts and draws 150,000 / 60,260 rows from the pictures that are there
            (`RandomState(seed).permutation`); with fewer pictures, the same proportion. "official" keeps the
            official parts (161,789 / 107,859). The authors did not publish their lists, so the rows drawn here are
            not theirs, only their number is.
        pictures: False reads the labels alone, of every listed picture.
    """
    if split not in ("published", "official"):
        raise ValueError(f"split: {split!r}, expected 'published' or 'official'")
    tree = find_tree("nuswide", root, ".", "nuswide", "NUS-WIDE", "nus-wide", marker="ImageList")
    draw, report = draw or Draw(), report if report is not None else Report()
    names = _concepts(tree)
    folder = next((f for f in ("Flickr", "images", "Images") if (tree / f).is_dir()), "Flickr")
    parts: dict[str, tuple[list[str], NDArray[np.uint8]]] = {}
    for official in ("Train", "Test"):
        listed = _image_list(tree, official)
        true = np.stack([_column(tree, name, official, len(listed)) for name in names], axis=1)
        good = np.array([inside(path) for path in listed], bool)
        for row in np.flatnonzero(~good).tolist():
            report.add("outside", f"{official}Imagelist.txt: {listed[row]}")
        kept = [f"{folder}/{path}" for path, ok in zip(listed, good, strict=True) if ok]
        parts[official] = (kept, true[good])
    notes = [f"{split} split"]
    if split == "published":
        paths, true = parts["Train"][0] + parts["Test"][0], np.concatenate([parts["Train"][1], parts["Test"][1]])
        there = np.flatnonzero(present(tree, paths, report)) if pictures else np.arange(len(paths))
        first, second = _published(len(there), draw)
        chosen: dict[Part, NDArray[np.int64]] = {"train": there[first], "test": there[second]}
        unused = len(there) - len(first) - len(second)
        if unused:
            notes.append(f"{unused:,} pictures in neither part, as the published sizes leave them")
        rows: dict[Part, FileSource] = {
            p: FileSource(tree, [paths[i] for i in c], upright=False) for p, c in chosen.items()
        }
        labels: dict[Part, NDArray[np.uint8]] = {part: true[index] for part, index in chosen.items()}
        return make_splits("nuswide", names, rows, labels, draw=draw, report=report, notes=notes)
    official_parts: dict[Part, str] = {"train": "Train", "test": "Test"}
    rows = {part: FileSource(tree, parts[name][0], upright=False) for part, name in official_parts.items()}
    labels = {part: parts[name][1] for part, name in official_parts.items()}
    keep = {part: present(tree, rows[part].paths, report) for part in rows} if pictures else {}
    return make_splits("nuswide", names, rows, labels, draw=draw, report=report, notes=notes, keep=keep)


def _published(count: int, draw: Draw) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    total = PUBLISHED_TRAIN + PUBLISHED_TEST
    train = PUBLISHED_TRAIN if count >= total else round(count * PUBLISHED_TRAIN / total)
    test = PUBLISHED_TEST if count >= total else count - train
    seed = draw.seed if draw.split_seed is None else draw.split_seed
    order = np.random.RandomState(seed).permutation(count).astype(np.int64)
    return np.sort(order[:train]), np.sort(order[train : train + test])


def _concepts(tree: Path) -> tuple[str, ...]:
    file = _first(tree, "Concepts81.txt", "ConceptsList/Concepts81.txt", "Concepts81/Concepts81.txt")
    names = tuple(
        line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
    )
    if len(set(names)) != len(names) or not names:
        raise DataError(f"{file}: {len(names)} concepts, {len(set(names))} of them different; download it again")
    return names


def _image_list(tree: Path, official: str) -> list[str]:
    file = _first(tree, f"ImageList/{official}Imagelist.txt")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.strip().replace("\\", "/") for line in lines if line.strip()]


def _column(tree: Path, name: str, official: str, rows: int) -> NDArray[np.uint8]:
    """One concept's 0/1 lines; a file that does not match the image list cannot be aligned and is refused."""
    label = f"Labels_{name}_{official}.txt"
    file = _first(tree, f"Groundtruth/TrainTestLabels/{label}", f"TrainTestLabels/{label}", f"Groundtruth/{label}")
    data = np.frombuffer(file.read_bytes(), np.uint8)
    digits = data[data > 32]
    if len(digits) != rows or ((digits != 48) & (digits != 49)).any():
        raise DataError(
            f"{file}: expected {rows:,} lines of 0 or 1 as in {official}Imagelist.txt, found {len(digits):,}"
        )
    return digits - np.uint8(48)


def _first(tree: Path, *names: str) -> Path:
    for name in names:
        if (tree / name).is_file():
            return tree / name
    raise DataError(f"{tree / names[0]}: not there; `onelabel data download nuswide` says what to put where")
