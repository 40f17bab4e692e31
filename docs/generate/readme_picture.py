"""The README's picture: scenes of a finished demo, one known label in, every label out.

    .venv/bin/onelabel demo --out runs/demo
    .venv/bin/python docs/generate/readme_picture.py runs/demo docs/assets/one-label-in.png

Nothing is picked: it shows the first pictures that hold at least three different digits, right or wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from onelabel.data import load_dataset
from onelabel.demo import FULL
from onelabel.recovery import RecoveredFile
from onelabel.system import atomic_path

COUNT = 7
INK, GREY, GOOD, BAD = "#1b1b1b", "#8a8a8a", "#0072B2", "#D55E00"


def draw(demo: Path, out: Path, seed: int = 0) -> None:
    """A row of scenes; above each what was known, below what came out, with its probability."""
    true = load_dataset("digits-scenes", seed=1200 + seed, **FULL.loader).train.true
    rows = np.flatnonzero(true.sum(1) >= 3)[:COUNT]
    file = RecoveredFile.open(demo / "recovered.parquet")
    found = {example.row: example for example in file.examples() if example.row in set(rows.tolist())}
    figure = Figure(figsize=(11, 2.75), facecolor="white")
    axes = figure.subplots(1, COUNT)
    figure.subplots_adjust(0.085, 0.37, 0.995, 0.87, wspace=0.08)
    for axis, row in zip(axes, rows.tolist(), strict=True):
        example = found[row]
        axis.imshow(np.asarray(Image.open(demo / "pictures" / example.example)), interpolation="bicubic")
        axis.set_xticks([])
        axis.set_yticks([])
        for side in axis.spines.values():
            side.set_visible(False)
        known = [file.class_names[c] for c, _, observed, _ in example.entries if observed > 0]
        axis.set_title(known[0], fontsize=17, fontweight="bold", color=INK, pad=5)
        _out(axis, example, file.class_names, true[row])
    for y, text in ((0.925, "one label in"), (0.19, "every label\nout")):
        figure.text(0.004, y, text, fontsize=10.5, va="center", color=GREY)
    with atomic_path(out) as temporary:
        figure.savefig(temporary, dpi=130)


def _out(axis: Any, example: Any, names: tuple[str, ...], true: Any) -> None:
    """Every label that was called, then what was missed."""
    called = sorted(example.entries, key=lambda entry: (entry[2] <= 0, -entry[1]))
    lines = [
        (names[c], "known" if observed > 0 else f"{p:.0%}", INK if observed > 0 else GOOD if true[c] else BAD)
        for c, p, observed, _ in called
    ]
    have = {c for c, *_ in example.entries}
    lines += [(names[c], "missed", BAD) for c in np.flatnonzero(true) if c not in have]
    for line, (name, note, colour) in enumerate(lines[:5]):
        y = -0.13 - 0.145 * line
        axis.text(0.32, y, name, transform=axis.transAxes, fontsize=14, fontweight="bold", color=colour, ha="center")
        axis.text(0.45, y, note, transform=axis.transAxes, fontsize=10.5, color=colour if note != "known" else GREY)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
