"""What happened epoch by epoch, from runs' recordings and histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.report import style
from onelabel.report.figures.registry import figure
from onelabel.report.runs import PHASES, RunView, other_part
from onelabel.training.recording import EDGES, GROUPS, Recording

Floats = NDArray[np.float64]
LIMITS = np.concatenate([[-16.0], EDGES, [16.0]])


def looks(runs: Sequence[Any]) -> list[style.Look]:
    """The looks of runs (or results) drawn together."""
    return style.apart([getattr(run, "look", None) or style.look(run.label) for run in runs])


def panels(runs: Sequence[RunView], *, most: int = 4, **options: Any) -> tuple[Any, list[tuple[Any, RunView]]]:
    """A panel per run, two beside each other, with one scale; at most four."""
    shown = list(runs[:most])
    columns = min(len(shown), 2)
    height = 3.2 if len(shown) <= 2 else 2.4
    fig, axes = style.canvas(
        columns, -(-len(shown) // 2), sharex=True, sharey=True, **{"width": 3.2, "height": height, **options}
    )
    flat = list(np.atleast_1d(axes).flat)
    for ax in flat[len(shown) :]:
        ax.set_axis_off()
    return fig, list(zip(flat, shown, strict=False))


def outer(fig: Any, shown: Sequence[tuple[Any, RunView]], *, x: str, y: str) -> None:
    """Titles of the panels, and the axes' names at the figure's edge."""
    for ax, run in shown:
        ax.set_title(run.label)
    fig.supxlabel(x, fontsize=10)
    fig.supylabel(y, fontsize=10)


@figure("runs", "learning curves; EM 3b")
def learning_curves(runs: Sequence[Any], *, metric: str = "validation_mAP") -> Any:
    """Validation mAP (or another number of metrics.jsonl) by epoch of all phases; a ring marks a run's best epoch."""
    if not any(metric in row for run in runs for row in run.history):
        known = sorted({name for run in runs for row in run.history for name in row} - {"phase", "epoch"})
        raise ValueError(
            f"metric: {metric!r}, which no metrics.jsonl has; expected one of {', '.join(known) or 'none'}"
        )
    fig, ax = style.canvas()
    for run, look in zip(runs, looks(runs), strict=True):
        found = [(i + 1, row[metric]) for i, row in enumerate(run.history) if metric in row]
        if found:
            x, y = zip(*found, strict=True)
            ax.plot(x, y, color=look.colour, ls=look.dash, marker=look.marker, label=run.label)
        at = run.best_at
        if at is not None and metric in run.history[at]:
            ax.plot([at + 1], [run.history[at][metric]], "o", ms=12, mfc="none", mec=look.colour, mew=1.6)
    ax.set(xlabel="epoch", ylabel=f"{metric.replace('_', ' ')}{' (%)' if 'mAP' in metric else ''}")
    phases(ax, runs)
    whole_epochs(ax)
    style.legend(fig, ax)
    return fig


@figure("runs", "EM 3b")
def apl_variants(runs: Sequence[Any], *, metric: str = "validation_mAP", warmup: int = 0) -> Any:
    """Pseudo-labelling and its variants by epoch, from the end of the warm-up on."""
    fig = learning_curves(runs, metric=metric)
    if warmup:
        ax = fig.axes[0]
        ax.set_xlim(left=warmup)
        shown = [y for line in ax.lines for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if x >= warmup]
        if shown:
            room = 0.05 * (max(shown) - min(shown) or 1)
            ax.set_ylim(min(shown) - room, max(shown) + room)
    return fig


@figure("runs", "EM 2b, EM 7")
def positive_loss(runs: Sequence[RunView]) -> Any:
    """Mean −log p of the observed positives by epoch, during training."""
    fig, ax = style.canvas()
    for run, look in zip(runs, looks(runs), strict=True):
        y = run.recorded().positive_loss
        ax.plot(np.arange(1, len(y) + 1), y, color=look.colour, ls=look.dash, marker=look.marker, label=run.label)
    ax.set(xlabel="epoch", ylabel="−log p of observed positives")
    ax.set_ylim(bottom=0)
    phases(ax, runs)
    whole_epochs(ax)
    style.legend(fig, ax)
    return fig


def score_columns(recording: Recording, group: str, part: str = "train", bins: int = 50) -> Floats:
    """Per epoch the normalised histogram of a group's probabilities in `bins` equal intervals: bins×epochs."""
    counts = recording.by_p(group, part).sum(1).reshape(recording.epochs, bins, -1).sum(2).T.astype(np.float64)
    return np.divide(counts, counts.sum(0), out=np.zeros_like(counts), where=counts.sum(0) > 0)


@figure("runs", "ROLE 2")
def heatmap(runs: Sequence[RunView], *, group: str = "unknown positive", part: str = "train") -> Any:
    """Probabilities of the unknown positives over the epochs, each column a normalised histogram, white where none."""
    from matplotlib.colors import PowerNorm

    fig, shown = panels(runs)
    found = [score_columns(recorded_with_truth(run, part, group), group, part) for _, run in shown]
    top = max(columns.max() for columns in found)
    for (ax, _), columns in zip(shown, found, strict=True):
        extent = (0.5, columns.shape[1] + 0.5, 0, 1)
        drawn = np.ma.masked_equal(columns, 0)
        norm = PowerNorm(0.5, 0, top)
        image = ax.imshow(drawn, origin="lower", aspect="auto", extent=extent, cmap="cividis", norm=norm)
        ax.grid(False)
        whole_epochs(ax)
    outer(fig, shown, x="epoch", y=f"p of {group}s")
    bar = fig.colorbar(image, ax=[ax for ax, _ in shown], label="share of the column")
    bar.outline.set_visible(False)
    return fig


def quantiles(counts: NDArray[np.int64], q: Sequence[float], *, absolute: bool = False) -> Floats:
    """Quantiles of logits from counts (epochs×bins), linear within a bin; of |g| where `absolute`. epochs×len(q)."""
    limits = LIMITS
    if absolute:
        middle = len(LIMITS) // 2
        counts = counts[:, middle:] + counts[:, :middle][:, ::-1]
        limits = LIMITS[middle:]
    made = np.full((len(counts), len(q)), np.nan)
    for e, row in enumerate(counts):
        if row.sum():
            reached = np.concatenate([[0], np.cumsum(row)]) / row.sum()
            made[e] = np.interp(q, reached, limits)
    return made


@figure("runs", "EM 8")
def logits_by_group(runs: Sequence[RunView], *, part: str = "train", absolute: bool = True) -> Any:
    """Logits (absolute values) of unknown positives and unknown negatives by epoch: median and quartiles."""
    groups = ("unknown positive", "unknown negative")
    quartiles = (0.25, 0.5, 0.75)
    y = "|logit|" if absolute else "logit"
    return _by_group(runs, groups, part, y, lambda counts: quantiles(counts, quartiles, absolute=absolute))


@figure("runs", "EM 9")
def scores_by_group(runs: Sequence[RunView], *, part: str = "train") -> Any:
    """Probabilities of observed and of unknown positives by epoch: median and quartiles."""
    groups = ("observed positive", "unknown positive")
    quartiles = (0.25, 0.5, 0.75)
    fig = _by_group(runs, groups, part, "probability", lambda counts: 1 / (1 + np.exp(-quantiles(counts, quartiles))))
    fig.axes[0].set_ylim(-0.02, 1.02)
    return fig


def _by_group(runs: Sequence[RunView], groups: Sequence[str], part: str, y: str, of: Any) -> Any:
    fig, shown = panels(runs)
    for ax, run in shown:
        recording = recorded_with_truth(run, part, *groups)
        for group, dash, marker in zip(groups, ("-", (0, (5, 2))), "os", strict=True):
            low, middle, high = of(recording.counts(group, part).sum(1)).T
            x, colour = np.arange(1, len(middle) + 1), style.GROUPS[group]
            ax.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
            ax.plot(x, middle, color=colour, ls=dash, marker=marker, label=group)
        whole_epochs(ax)
    outer(fig, shown, x="epoch", y=y)
    style.legend(fig, shown[-1][0], inside=0, where="upper")
    return fig


@figure("runs", "GR 3a")
def wasserstein_epochs(runs: Sequence[RunView], *, part: str = "train") -> Any:
    """Wasserstein distance between the probabilities of unknown positives and negatives by epoch, classes together."""
    fig, ax = style.canvas()
    for run, look in zip(runs, looks(runs), strict=True):
        y = pooled_distance(recorded_with_truth(run, part, "unknown positive"), part)
        ax.plot(np.arange(1, len(y) + 1), y, color=look.colour, ls=look.dash, marker=look.marker, label=run.label)
    ax.set(xlabel="epoch", ylabel="Wasserstein distance")
    whole_epochs(ax)
    style.legend(fig, ax)
    return fig


def pooled_distance(recording: Recording, part: str = "train") -> Floats:
    """W₁ = ∫ |F₊(p) − F₋(p)| dp per epoch, from hundredths of p (so to about .01)."""
    shares = []
    for group in ("unknown positive", "unknown negative"):
        counts = recording.by_p(group, part).sum(1)
        shares.append(np.cumsum(counts, 1) / np.maximum(counts.sum(1, keepdims=True), 1))
    return np.abs(shares[0] - shares[1])[:, :-1].sum(1) / 100


def recorded_with_truth(run: RunView, part: str, *groups: str) -> Recording:
    """The recording, where it can tell these groups apart in this part."""
    recording = run.recorded()
    if part not in recording.arrays:
        there = [name for name in recording.true if name in recording.arrays]
        raise ValueError(f"{run.path}: its {part} part was not recorded; {other_part(there)}")
    if any(group not in GROUPS for group in groups):
        raise ValueError(f"group: {groups[0]!r}, expected one of {', '.join(GROUPS)}")
    if any(group.startswith("unknown") for group in groups):
        if not recording.true.get(part):
            raise run.untold(part, with_truth(recording))
        if not recording.counts("unknown", part).any():
            raise ValueError(f"{run.path}: every label of its {part} part was observed; nothing is unknown")
    return recording


def with_truth(recording: Recording) -> list[str]:
    """The parts that were recorded with their true labels."""
    return [name for name, known in recording.true.items() if known and name in recording.arrays]


def phases(ax: Any, runs: Sequence[Any]) -> None:
    """A line where a phase ends and the next begins, of the first run that has several."""
    for run in runs:
        names = [row.get("phase", "") for row in run.history]
        begun = [i for i in range(1, len(names)) if names[i] != names[i - 1]]
        for i in begun:
            ax.axvline(i + 0.5, color=style.MUTED, ls=(0, (1, 1.4)), lw=1.2)
            name = PHASES.get(names[i], names[i]).removeprefix("the ")
            ax.annotate(name, (i + 0.5, 1), xycoords=("data", "axes fraction"), rotation=90, va="top", ha="right",
                        fontsize=8, color=style.MUTED)  # fmt: skip
        if begun:
            return


def whole_epochs(ax: Any) -> None:
    """Ticks at whole epochs."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
