"""How right the model is about what it was never told, from recordings (GR Fig. 5, LASD Fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.methods import method
from onelabel.report import style
from onelabel.report.figures.epochs import looks, outer, panels, recorded_with_truth, whole_epochs, with_truth
from onelabel.report.figures.registry import figure
from onelabel.report.runs import RunView, other_part
from onelabel.training.recording import Recording

Floats = NDArray[np.float64]
MIDDLES = (np.arange(100) + 0.5) / 100


def share_by_confidence(recording: Recording, epoch: int, part: str = "train") -> tuple[Floats, NDArray[np.int64]]:
    """FN/(FN+TN) of the unknown entries in hundredths of p (NaN where there are none), and how many there are."""
    positive = recording.by_p("unknown positive", part)[epoch].sum(0)
    total = positive + recording.by_p("unknown negative", part)[epoch].sum(0)
    return np.divide(positive, total, out=np.full(100, np.nan), where=total > 0), total


def expected_share(p: Any, k: float) -> Floats:
    """GR Eq. 6: k(p) = (1−a)p/(1−a·p), a = P(observed | positive) = 1/k for one observed label of k positives."""
    a = min(1 / max(k, 1e-9), 1.0)
    p = np.asarray(p, np.float64)
    return np.asarray((1 - a) * p / np.maximum(1 - a * p, 1e-12))


def pseudo_label_of(run: RunView, epoch: int, p: Any) -> Floats | None:
    """k̂(p) = σ(w·p + b) of a GR run as its schedule stood in an epoch; None for other methods."""
    if run.method != "gr" or run.config.hyper.get("trainable"):
        return None
    made = method("gr", **run.config.hyper)
    made.begin_epoch(epoch, run.config.epochs or 1)
    w, b = (float(made.now(name).reshape(-1)[0]) for name in ("w", "b"))
    return np.asarray(1 / (1 + np.exp(-(w * np.asarray(p, np.float64) + b))))


@figure("runs", "GR 5")
def false_negative_share(runs: Sequence[RunView], *, part: str = "train", epochs: Sequence[int] = (0, -1)) -> Any:
    """FN/(FN+TN) of unknown entries by confidence, first and last epoch, with Eq. 6 and a GR run's own k̂."""
    fig, shown = panels(runs)
    for ax, run in shown:
        recording = recorded_with_truth(run, part, "unknown positive")
        rows = recording.counts("unknown", part)[0].sum() + recording.counts("observed positive", part)[0].sum()
        rows = (rows + recording.counts("observed negative", part)[0].sum()) / len(run.class_names)
        positives = sum(recording.counts(g, part)[0].sum() for g in ("observed positive", "unknown positive"))
        for epoch, colour, marker in zip(epochs, (style.ORANGE, style.BLUE), "sD", strict=False):
            share, total = share_by_confidence(recording, epoch, part)
            number = range(recording.epochs)[epoch] + 1
            size = 6 + 9 * np.log10(np.maximum(total, 1))
            ax.scatter(MIDDLES, share, size, color=colour, marker=marker, alpha=0.75, lw=0, label=f"epoch {number}")
        p = np.linspace(0, 1, 200)
        k = positives / max(rows, 1)
        ax.plot(p, expected_share(p, k), color=style.INK, ls=(0, (5, 2)), lw=1.4, label=f"Eq. 6, k = {k:.2f}")
        own = pseudo_label_of(run, int(recording.arrays["epoch"][-1]), p)
        if own is not None:
            ax.plot(p, own, color=run.look.colour, label="k̂ at the end")
        ax.set(ylim=(-0.03, 1.03))
    most = max((ax for ax, _ in shown), key=lambda ax: len(ax.get_legend_handles_labels()[1]))
    if len(shown) == 1:
        style.legend(fig, most, inside=0, where="upper")
    else:
        for ax, _ in shown:
            ax.legend(fontsize=8, handlelength=1.6, loc="upper left")
    outer(fig, shown, x="probability p", y="FN / (FN + TN)")
    return fig


def predictive_values_by_epoch(recording: Recording, tau: float, part: str) -> tuple[Floats, Floats]:
    """PPV = TP/(TP+FP) and NPV = TN/(TN+FN) at p ≥ τ (a hundredth) per epoch: per class, then the mean over classes.

    Of validation all entries count, of training those that were unknown.
    """
    groups = ("unknown positive", "unknown negative")
    yes, no = (recording.by_p(group, part) for group in groups)
    if part != "train":
        yes, no = (x + recording.by_p(g, part) for x, g in ((yes, "observed positive"), (no, "observed negative")))
    at = round(tau * 100)
    right = [yes[..., at:].sum(-1), no[..., :at].sum(-1)]
    wrong = [no[..., at:].sum(-1), yes[..., :at].sum(-1)]
    found = []
    for hit, miss in zip(right, wrong, strict=True):
        each = np.divide(hit, hit + miss, out=np.full(hit.shape, np.nan), where=hit + miss > 0)
        some = ~np.isnan(each)
        counted = some.sum(1)
        found.append(np.where(counted > 0, np.where(some, each, 0).sum(1) / np.maximum(counted, 1), np.nan))
    return found[0], found[1]


@figure("runs", "LASD 2")
def predictive_values(runs: Sequence[RunView], *, tau: float | None = None, part: str = "validation") -> Any:
    """Positive and negative predictive value at τ by epoch (τ as given, else the method's own, else 0.5)."""
    fig, axes = style.canvas(2, width=3.2, sharex=True)
    for run, look in zip(runs, looks(runs), strict=True):
        recording = run.recorded()
        if part not in recording.arrays or not recording.true.get(part):
            remedy = other_part(with_truth(recording))
            raise ValueError(f"{run.path}: the true labels of its {part} part were not recorded; {remedy}")
        own = method(run.method, **run.config.hyper)
        limit = tau if tau is not None else getattr(own, "tau", 0.5)
        if not 0 < limit < 1:
            limit = 0.5
        for ax, y in zip(axes.flat, predictive_values_by_epoch(recording, limit, part), strict=True):
            name = f"{run.label}, τ = {limit:g}"
            ax.plot(np.arange(1, len(y) + 1), y, color=look.colour, ls=look.dash, marker=look.marker, label=name)
    for ax, name in zip(axes.flat, ("PPV", "NPV"), strict=True):
        ax.set(title=name, xlabel="epoch")
        ax.set_ylim(top=1.001)  # no tick above 1
        whole_epochs(ax)
    style.legend(fig, axes.flat[0], inside=0)
    return fig
