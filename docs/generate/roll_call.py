"""The figure and the paired tests of docs/roll-call.md, from the committed results of linear probes.

    .venv/bin/python docs/generate/roll_call.py

Writes docs/figures/roll-call.svg and the table between the page's marks. A test compares the table.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from onelabel.bench import tables
from onelabel.bench.sections import of_sweep
from onelabel.bench.stats import Cell, holm, p_text, paired_p
from onelabel.bench.sweeps import find_sweep, position
from onelabel.report import style
from onelabel.report.figures.sweeps import line_points
from onelabel.system import atomic_write

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- paired: docs/generate/roll_call.py -->", "<!-- /paired -->"
UNIFORM = ("uniform1200", "uniform:1", "uniform:2", "uniform:3", "uniform:4")
DRAWS = {"five even draws": UNIFORM, "common first": ("biased:1:1200",), "rare first": ("biased:-1:1200",)}
OTHERS = ("roll-call:even", "gr", "em", "bce")
WORDS = {
    "bce": "full labels (BCE)",
    "roll-call:even": "before (`roll-call:even`)",
    "roll-call": "`roll-call`",
    "gr": "GR",
    "em": "EM",
}
#: Sweep, the methods shown of it, and what its axis says.
PANELS = (
    (("roll-call.alpha", "em.alpha"), ("roll-call", "em"), "α, weight of the pull to ½ (EM: of the entropy)"),
    (("roll-call.gamma",), ("roll-call",), "γ, how much sooner a common class is named"),
    (("images",), ("bce", "roll-call", "gr", "em"), "share of the 4,574 training pictures"),
)


def runs_of(rows: Sequence[Any], method: str, draws: Sequence[str]) -> Cell:
    """All draws and seeds of a method, in each draw at the learning rate and batch of the best mean validation mAP."""
    picked = (tables.pick(rows, "voc2012", method, "linear", draw=draw) for draw in draws)
    return Cell(tuple(row for cell in picked if cell is not None for row in cell.rows))


def table(rows: Sequence[Any]) -> str:
    """Means ± std over draws × seeds, and paired t-tests of roll-call against the others (Holm over the row)."""
    lines = ["| test mAP, linear | runs | " + " | ".join(WORDS[m] for m in ("roll-call", *OTHERS)) + " |"]
    lines.append("| --- " * (3 + len(OTHERS)) + "|")
    for name, draws in DRAWS.items():
        ours = runs_of(rows, "roll-call", draws)
        mine, cells = ours.values("test_map"), [ours.text("test_map")]
        theirs = [runs_of(rows, m, draws) for m in OTHERS]
        adjusted = holm([paired_p(mine, each.values("test_map")) for each in theirs])
        for each, p in zip(theirs, adjusted, strict=True):
            values = each.values("test_map")
            gap = statistics.fmean(mine[k] - values[k] for k in mine)
            text = f"p {'' if p is not None and p < 0.001 else '= '}{p_text(p)}"
            cells.append(f"{each.text('test_map')} ({gap:+.2f}, {text})")
        lines.append(f"| {name} | {len(mine)} | " + " | ".join(cells) + " |")
    return "\n".join(lines).replace("-0.", "−0.").replace("(-", "(−")


def fill(page: str, rows: Sequence[Any]) -> str:
    """The page with the table between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}"


def curves(rows: Sequence[Any]) -> Any:
    """mAP over α, over γ and over the number of training pictures, three panels; bars are one deviation over seeds."""
    with style.styled():
        figure, axes = style.canvas(len(PANELS), width=3.6, height=2.9)
        for ax, (names, methods, label) in zip(axes[0], PANELS, strict=True):
            for name in names:
                sweep = find_sweep(name)
                mine = [r for r in of_sweep(sweep, rows, "voc2012", "linear") if r.label in methods]
                lines = line_points(mine, lambda r, s=sweep: position(s, r), line=lambda r: r.label)
                for method, points in lines.items():
                    look = style.look(method)
                    ax.errorbar(
                        [p.x for p in points], [p.mean for p in points], [p.std for p in points],
                        color=look.colour, linestyle=look.dash, marker=look.marker, markersize=4, capsize=2,
                        label="full labels" if method == "bce" else style.title(method),
                    )  # fmt: skip
            ax.set_xlabel(label)
            ax.legend(loc="lower right" if "images" in names else "lower left")
        axes[0][0].set(xscale="log", ylabel="test mAP, linear")
    return figure


if __name__ == "__main__":
    results = tables.find(ROOT / "docs" / "results" / "bench").rows
    with matplotlib.rc_context({"svg.hashsalt": "roll-call"}):  # the same runs give the same file
        style.save(curves(results), ROOT / "docs" / "figures" / "roll-call.svg")
    target = ROOT / "docs" / "roll-call.md"
    atomic_write(target, fill(target.read_text(encoding="utf-8"), results))
