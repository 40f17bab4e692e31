"""Class by class: what is unknown, how scores part, what a method gains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onelabel.metrics import average_precision
from onelabel.metrics import wasserstein as distance
from onelabel.report import style
from onelabel.report.choice import main_run
from onelabel.report.figures.registry import figure
from onelabel.report.runs import RunView, baseline

Floats = NDArray[np.float64]
NAMED = 40  #: classes of which the names still fit


class Shares(NamedTuple):
    """Per class: observed positives, positives among the unknown, negatives among the unknown."""

    observed: NDArray[np.int64]
    positive: NDArray[np.int64]
    negative: NDArray[np.int64]


def class_shares(run: RunView, part: str = "train") -> Shares:
    """Counts of a part's entries; needs its true labels."""
    if part not in run.labels or run.labels[part].true is None:
        raise run.untold(part)
    z, y = run.labels[part].observed, run.labels[part].true
    return Shares((z > 0).sum(0), ((z == 0) & (y == 1)).sum(0), ((z == 0) & (y == 0)).sum(0))


@figure("runs", "EM 2c, EM 10")
def unknown_shares(runs: Sequence[RunView], *, part: str = "train") -> Any:
    """Shares of positives and negatives among each class's unknown labels, in percent."""
    run = _partial(runs)
    found = class_shares(run, part)
    total = np.maximum(found.positive + found.negative, 1)
    order = np.argsort(-found.positive / total, kind="stable")
    share = 100 * (found.positive / total)[order]
    fig, ax = _class_axes(run, order)
    x = np.arange(len(order))
    ax.bar(x, share, width=_width(order), color=style.GROUPS["unknown positive"], label="unknown positive")
    rest = np.where(found.negative[order] > 0, 100 - share, 0)
    ax.bar(
        x, rest, bottom=share, width=_width(order), color=style.GROUPS["unknown negative"], label="unknown negative",
        alpha=0.55,
    )  # fmt: skip
    ax.set(ylabel="share of unknown labels (%)", ylim=(0, 100))
    fig.legend(loc="outside upper left", ncols=2)  # what a phone shows of it
    return fig


@figure("runs", "GR 4")
def class_counts(runs: Sequence[RunView], *, part: str = "train") -> Any:
    """Observed positives and positives that are missing in each class; a dashed line where it is all examples."""
    run = _partial(runs)
    found = class_shares(run, part)
    order = np.argsort(-(found.observed + found.positive), kind="stable")
    fig, ax = _class_axes(run, order)
    x = np.arange(len(order))
    width = _width(order)
    ax.bar(x, found.observed[order], width=width, color=style.GROUPS["observed positive"], label="observed")
    ax.bar(
        x, found.positive[order], bottom=found.observed[order], width=width, label="missing",
        color=style.GROUPS["unknown positive"],
    )  # fmt: skip
    rows = len(run.labels[part].observed)
    near = 2 * (found.observed + found.positive).max(initial=0) > rows  # else the line would press the bars flat
    if near:
        ax.axhline(rows, color=style.INK, ls=(0, (5, 2)), lw=1.2)
    where: dict[str, Any] = {"xy": (len(order) - 0.6, rows)} if near else {"xy": (1, 1), "xycoords": "axes fraction"}
    text = f"{rows:,} examples" if near else f"of {rows:,} examples"
    ax.annotate(text, **where, ha="right", va="top", fontsize=9, xytext=(0, -2), textcoords="offset points")
    ax.set(ylabel="positive labels")
    fig.legend(loc="outside upper left", ncols=2)  # what a phone shows of it
    return fig


@figure("runs", "EM 4c")
def class_improvement(runs: Sequence[RunView], *, part: str = "test") -> Any:
    """AP of the best run minus AP of AN (or of the first run), class by class, sorted."""
    before, after = pair(runs)
    gain = 100 * (_aps(after, part) - _aps(before, part))
    order = np.argsort(-np.where(np.isnan(gain), -np.inf, gain), kind="stable")
    order = order[~np.isnan(gain[order])]
    fig, ax = _class_axes(after, order)
    better = gain[order] >= 0
    ax.bar(np.arange(len(order)), gain[order], width=_width(order), color=np.where(better, style.BLUE, style.VERMILION))
    ax.axhline(0, color=style.INK, lw=0.8)
    share = 100 * better.mean() if len(order) else 0
    names = f"{style.plain(after.label, 20)} − {style.plain(before.label, 20)}"
    ax.set(ylabel="AP, difference in points", title=f"{names}\nbetter on {share:.0f}% of classes")
    return fig


def class_distances(run: RunView, part: str = "train") -> Floats:
    """Wasserstein distance per class between the scores of unknown positives and unknown negatives."""
    scores, true = run.judged(part)
    return np.asarray(distance(np.asarray(scores), true, run.labels[part].observed), np.float64)


@figure("runs", "EM 4a")
def wasserstein(runs: Sequence[RunView], *, part: str = "train") -> Any:
    """Wasserstein distances of two methods, a point per class; above the line the second tells more apart."""
    before, after = pair(runs)
    x, y = class_distances(before, part), class_distances(after, part)
    keep = ~np.isnan(x) & ~np.isnan(y)
    fig, ax = style.canvas(width=4.0, height=3.8)
    ax.plot([0, 1], [0, 1], color=style.VERMILION, lw=1.4)
    ax.scatter(x[keep], y[keep], 26, color=after.look.colour, alpha=0.8, lw=0)
    top = min(1.0, 1.08 * max(x[keep].max(initial=0), y[keep].max(initial=0), 0.05))
    share = 100 * (y[keep] > x[keep]).mean() if keep.any() else 0
    ax.set(xlim=(0, top), ylim=(0, top), xlabel=before.label, ylabel=after.label, aspect="equal")
    ax.set_title(f"above the line: {share:.0f}% of classes")
    return fig


@figure("runs", "EM 4b, EM 11, GR 3b, GR 3c")
def densities(runs: Sequence[RunView], *, part: str = "test", classes: Sequence[Any] = (), bins: int = 40) -> Any:
    """Densities of the scores of positives and negatives of some classes, a row of panels per run.

    Of training only unknown entries count. `classes` are names or numbers; else the three most frequent ones.
    """
    picked = [_class_of(c, runs[0]) for c in ([classes] if isinstance(classes, (str, int)) else classes)]
    true = runs[0].true(part)
    if not picked:
        if true is None:
            raise runs[0].untold(part)
        picked = np.argsort(-true.sum(0), kind="stable")[:3].tolist()
    shown = list(runs[:4])
    fig, axes = style.canvas(len(picked), len(shown), width=3.1, height=2.2, sharex=True)
    axes = np.asarray(axes).reshape(len(shown), len(picked))
    edges = np.linspace(0, 1, bins + 1)
    for i, run in enumerate(shown):
        for j, c in enumerate(picked):
            yes, no = split_scores(run, part, c)
            for values, name in ((yes, "positive"), (no, "negative")):
                colour = style.GROUPS[f"unknown {name}"]
                if len(values):
                    axes[i, j].hist(values, edges, density=True, color=colour, alpha=0.35)
                    axes[i, j].hist(values, edges, density=True, color=colour, histtype="step", lw=1.4, label=name)
            if i == 0:
                axes[i, j].set_title(style.plain(run.class_names[c]))
        axes[i, 0].set_ylabel(f"{run.label}\ndensity")
    for ax in axes[-1]:
        ax.set_xlabel("probability p")
    axes[0, 0].legend()
    return fig


def split_scores(run: RunView, part: str, c: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scores of a class's true positives and negatives; of training only those of unknown entries."""
    scores, true = run.judged(part)
    known = run.labels[part].observed[:, c] != 0 if part == "train" else np.zeros(len(true), bool)
    return np.asarray(scores[(true[:, c] == 1) & ~known, c]), np.asarray(scores[(true[:, c] == 0) & ~known, c])


def pair(runs: Sequence[RunView]) -> tuple[RunView, RunView]:
    """Two runs to compare: AN, or the first, with the best of the others (the second of two)."""
    if len(runs) < 2:
        raise ValueError("runs: one given, this figure compares two; give the AN run first")
    before = runs[0] if len(runs) == 2 else baseline(runs) or runs[0]
    rest = [run for run in runs if run is not before]
    return before, main_run(rest)


def _aps(run: RunView, part: str) -> Floats:
    scores, true = run.judged(part)
    return np.asarray(average_precision(np.asarray(scores), true, empty="nan"), np.float64)


def _partial(runs: Sequence[RunView]) -> RunView:
    return next((run for run in runs if not run.full), runs[0])


def _class_of(given: Any, run: RunView) -> int:
    if str(given) in run.class_names:
        return run.class_names.index(str(given))
    if isinstance(given, int) and 0 <= given < len(run.class_names):
        return given
    raise ValueError(f"classes: {given!r} is not a class of {run.path}")


def _width(order: Any) -> float:
    return 0.8 if len(order) <= NAMED else 1.0


def _class_axes(run: RunView, order: NDArray[np.int64]) -> tuple[Any, Any]:
    """Axes with a place per class, named where the names fit."""
    count = len(order)
    fig, ax = style.canvas(width=min(10.0, max(4.6, 0.3 * count + 1.5)), height=3.4)
    ax.set_xlim(-0.6, max(count - 0.4, 0.6))
    ax.grid(axis="x", visible=False)
    if count <= NAMED:
        names = [style.plain(run.class_names[c], 18) for c in order]
        straight = max(map(len, names), default=0) <= 3
        ax.set_xticks(range(count), names, rotation=0 if straight else 60, ha="center" if straight else "right",
                      rotation_mode="anchor")  # fmt: skip
    else:
        ax.set_xticks([])
        ax.set_xlabel(f"{count:,} classes, sorted")
    return fig, ax
