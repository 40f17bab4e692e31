"""Pictures with what a model says of them (EM Fig. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onelabel.report import style
from onelabel.report.examples import Shown, examples
from onelabel.report.figures.registry import figure
from onelabel.report.pictures import Pictures
from onelabel.report.runs import RunView, other_part, splits_of


@figure("runs", "EM 6")
def gallery(runs: Sequence[RunView], *, part: str = "test", count: int = 4, seed: int = 0, data: Any = None) -> Any:
    """Pictures drawn at random, with bars of each run's probabilities; observed labels in red, true ones bold."""
    splits = data if data is not None else splits_of(runs[0])
    found = examples(runs, Pictures(splits), parts=(part,), count=count, seed=seed)
    if not found:
        known = [name for name in runs[0].labels if runs[0].scores(name) is not None]
        remedy = other_part(known, "train with --set save_scores=true, where the data still lie")
        raise ValueError(f"{runs[0].path}: no scores or labels of its {part} part; {remedy}")
    columns = min(len(found), 4)
    lines = -(-len(found) // columns)
    fig, axes = style.canvas(columns, 2 * lines, width=2.6, height=1.9)
    axes = np.asarray(axes).reshape(2 * lines, columns)
    for ax in axes.flat:
        ax.set_axis_off()
    for number, item in enumerate(found):
        line, column = divmod(number, columns)
        if item.pixels is not None:
            axes[2 * line, column].imshow(item.pixels)
        else:
            axes[2 * line, column].text(0.5, 0.5, "no picture", ha="center", va="center", color=style.MUTED)
        _bars(axes[2 * line + 1, column], item, {run.label: run for run in runs})
    handles = [_patch(run) for run in runs if run.label in found[0].labels]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return fig


def _patch(run: RunView) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=run.look.colour, label=run.label)


def _bars(ax: Any, item: Shown, runs: dict[str, RunView]) -> None:
    ax.set_axis_on()
    height = 0.8 / len(item.labels)
    for i, label in enumerate(item.labels):
        y = np.arange(len(item.bars)) + (i - (len(item.labels) - 1) / 2) * height
        ax.barh(y, [bar.p[label] for bar in item.bars], height=height, color=runs[label].look.colour)
    ax.set_yticks(range(len(item.bars)), [style.plain(bar.name, 14) for bar in item.bars])
    for text, bar in zip(ax.get_yticklabels(), item.bars, strict=True):
        text.set_fontweight("bold" if bar.true else "normal")
        text.set_color("#c0392b" if bar.observed else style.INK)
    ax.set(xlim=(0, 1), ylim=(len(item.bars) - 0.4, -0.6))
    ax.grid(axis="y", visible=False)
