"""The figures of docs/benchmarks.md: every sweep of the committed results, drawn as the papers draw theirs.

    .venv/bin/python docs/generate/bench_figures.py && .venv/bin/onelabel bench docs

Writes docs/figures/bench-SWEEP.svg; the page shows those that are there.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib

from onelabel.bench import tables
from onelabel.bench.page import DATASET
from onelabel.bench.sections import figure_of, of_sweep
from onelabel.bench.sweeps import SWEEPS
from onelabel.report import style
from onelabel.report.figures import entry
from onelabel.report.figures.sweeps import found_sweeps

ROOT = Path(__file__).resolve().parents[2]


def draw(results: Path, folder: Path) -> list[Path]:
    """A file a sweep of which more than one value was run, of its linear runs."""
    rows, made = tables.find(results).rows, []
    for name, each in SWEEPS.items():
        # by identity, as the page has them: a run of a sweep may have been made for a table
        mine = [dataclasses.replace(r, plan=f"sweep:{name}") for r in of_sweep(each, rows, DATASET, "linear")]
        for figure, found, options, _ in found_sweeps(mine):
            with style.styled(), matplotlib.rc_context({"svg.hashsalt": name}):  # the same runs give the same file
                made.append(style.save(entry(figure).draw(found, **options), folder / figure_of(name)))
    return made


if __name__ == "__main__":
    print("\n".join(map(str, draw(ROOT / "docs" / "results" / "bench", ROOT / "docs" / "figures"))))
