"""Loss landscapes with filter normalisation (EM Fig. 5a, 5b, after Li et al. 2018), from a run's weights and data.

What was computed stays in the run folder, `landscape.safetensors`, and is drawn again without weights or data.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onelabel.losses.curves import nll
from onelabel.losses.module import ElementWise
from onelabel.methods import method
from onelabel.report import style
from onelabel.report.figures.registry import figure
from onelabel.report.runs import RunView, splits_of
from onelabel.system import progress, reading
from onelabel.training.files import read_tensors, write_tensors
from onelabel.training.recording import SCHEMA, metadata

Floats = NDArray[np.float64]
FILE = "landscape.safetensors"


def filter_directions(module: nn.Module, seed: int) -> list[Tensor]:
    """A random direction per parameter, each filter scaled to the norm of the weights' own: dᵢ·‖wᵢ‖/‖dᵢ‖.

    Biases and the parameters of normalisations are not moved, as in the authors' program.
    """
    generator = torch.Generator().manual_seed(seed)
    made = []
    for weight in module.parameters():
        if weight.ndim < 2:
            made.append(torch.zeros_like(weight))
            continue
        d = torch.randn(weight.shape, generator=generator).to(weight)
        size = (-1, *[1] * (weight.ndim - 1))
        scale = weight.detach().flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1).clamp(min=1e-12)
        made.append(d * scale.reshape(size))
    return made


@torch.no_grad()
def loss_surface(
    network: Any,
    inputs: Tensor,
    loss: Any,
    *,
    grid: int = 11,
    span: float = 1.0,
    seed: int = 0,
    title: str = "landscape",
) -> tuple[Floats, Floats]:
    """The loss at the weights plus a·d₁ + b·d₂, a and b in `grid` steps of [−span, span]: steps, and grid×grid values.

    The network is in eval mode and has its weights back afterwards.
    """
    steps = np.linspace(-span, span, grid)
    own = list(network.parameters())
    before = [p.detach().clone() for p in own]
    one, two = filter_directions(network, seed), filter_directions(network, seed + 1)
    values = np.zeros((grid, grid))
    network.eval()
    try:
        with progress(title, grid * grid) as advance:
            for i, a in enumerate(steps):
                for j, b in enumerate(steps):
                    for p, w, d, e in zip(own, before, one, two, strict=True):
                        p.copy_(w + float(a) * d + float(b) * e)
                    logits = torch.cat([network(part).float() for part in inputs.split(64)])
                    values[i, j] = float(loss(logits))
                    advance(1)
    finally:
        for p, w in zip(own, before, strict=True):
            p.copy_(w)
    return steps, values


def run_surface(
    run: RunView,
    *,
    data: Any = None,
    rows: int = 256,
    grid: int = 11,
    span: float = 1.0,
    seed: int = 0,
    loss: str = "own",
) -> tuple[Floats, Floats]:
    """A run's landscape on `rows` training examples: of its own loss, or of BCE with all true labels ("true").

    A loss that is not a function of logits and observed labels alone (ROLE's) has no landscape of its own: use "true".
    Computed on a GPU where there is one, once: the run folder keeps the last.
    """
    if loss not in ("own", "true"):
        raise ValueError(f"loss: {loss!r}, expected 'own' or 'true'")
    asked: dict[str, Any] = {"rows": rows, "grid": grid, "span": float(span), "seed": seed, "loss": loss}
    before = kept_surface(run.path)
    if before is not None and before[2] == asked:
        return before[:2]
    found = _computed(run, data, **asked)
    with contextlib.suppress(OSError):  # a folder that cannot be written to is no reason not to draw
        write_surface(run.path, *found, asked)
    return found


def write_surface(folder: Path, steps: Floats, values: Floats, settings: dict[str, Any]) -> None:
    """Keep a landscape in a run folder."""
    about = json.dumps({"schema_version": SCHEMA, "settings": settings})
    tensors = {"steps": torch.from_numpy(steps), "values": torch.from_numpy(values)}
    write_tensors(folder / FILE, tensors, {"onelabel": about})


def kept_surface(folder: Path) -> tuple[Floats, Floats, dict[str, Any]] | None:
    """Steps, grid×grid losses and settings of the landscape in a run folder; None where none is of its weights."""
    path, weights = folder / FILE, folder / "weights-best.safetensors"
    if not path.is_file() or (weights.is_file() and weights.stat().st_mtime > path.stat().st_mtime):
        return None
    with reading(path, "the landscape of a run", remedy="delete it"):
        about, found = dict(metadata(path)["settings"]), read_tensors(path)
        steps, values = (found[name].numpy() for name in ("steps", "values"))
        if steps.ndim != 1 or values.shape != (len(steps), len(steps)):
            raise ValueError(f"{values.shape} losses at {steps.shape} steps")
        return steps, values, about


def _computed(
    run: RunView, data: Any, *, rows: int, grid: int, span: float, seed: int, loss: str
) -> tuple[Floats, Floats]:
    from onelabel.training import Feed, Run

    splits = data if data is not None else splits_of(run)
    if splits is None:
        raise ValueError(f"{run.path}: its data are not there, and a landscape needs them; run it where they are")
    made = method(run.method, **run.config.hyper)
    if loss == "own" and not isinstance(made, ElementWise):
        raise ValueError(f"{run.path}: the loss of {run.method} has memory; give loss='true'")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(splits.train))[:rows])
    feed = Feed(splits.train.take(chosen), device, size=run.config.size)
    inputs = torch.cat(list(feed.batches(torch.arange(feed.rows), 64)))
    observed = torch.from_numpy(run.labels["train"].observed[chosen]).to(device)
    true = None if feed.true is None else feed.true > 0
    made.begin_epoch((run.config.epochs or 1) - 1, run.config.epochs or 1)
    made.to(device)

    def value(logits: Tensor) -> Tensor:
        if loss == "own":
            return made.reduce(made.entries(logits, observed))
        if true is None:
            raise ValueError(f"{run.path}: nobody knows its true labels")
        return torch.where(true, nll(logits), nll(-logits)).mean()

    network = Run.load(run.path).classifier.to(device)
    return loss_surface(network, inputs, value, grid=grid, span=span, seed=seed, title=run.label)


def _rise(values: Floats) -> Floats:
    """Above the least; where the loss overflowed, the highest that did not."""
    finite = np.isfinite(values)
    if not finite.any():
        raise ValueError("a landscape without a finite loss")
    return np.asarray(np.where(finite, values, values[finite].max()) - values[finite].min(), np.float64)


def _kept(runs: Sequence[RunView]) -> list[tuple[Floats, Floats]]:
    found = []
    for run in runs:
        surface = kept_surface(run.path)
        if surface is None:
            raise ValueError(f"{run.path}: no landscape was computed yet; onelabel figure landscape does")
        found.append(surface)
        if surface[2] != found[0][2]:
            raise ValueError(f"{run.path}: its landscape was computed with other settings than that of {runs[0].path}")
    return [surface[:2] for surface in found]


@figure("runs", "EM 5a, EM 5b")
def landscape(
    runs: Sequence[RunView],
    *,
    rows: int = 256,
    grid: int = 11,
    span: float = 1.0,
    seed: int = 0,
    loss: str = "own",
    kept: bool = False,
    data: Any = None,
) -> Any:
    """The loss around the weights that a run ended with, along two filter-normalised random directions; one z-axis.

    Costs grid² evaluations of `rows` training examples a run; `kept` draws what the run folders keep, whatever it is.
    """
    from matplotlib.ticker import MaxNLocator

    settings: dict[str, Any] = {"rows": rows, "grid": grid, "span": span, "seed": seed, "loss": loss}
    found = _kept(runs[:3]) if kept else [run_surface(r, data=data, **settings) for r in runs[:3]]
    span = max(float(steps[-1]) for steps, _ in found)
    rises = [_rise(values) for _, values in found]
    top = max(float(rise.max()) for rise in rises)
    fig, axes = style.canvas(len(found), width=4.2, height=3.6, subplot_kw={"projection": "3d"})
    for ax, run, (steps, _), rise in zip(np.atleast_1d(axes).flat, runs, found, rises, strict=False):
        x, y = np.meshgrid(steps, steps, indexing="ij")
        ax.plot_surface(
            x, y, rise, cmap="cividis", vmin=0, vmax=top, rstride=1, cstride=1, lw=0.2, edgecolor=style.MUTED
        )
        ax.set(zlim=(0, top), title=run.label, xlabel="d₁", ylabel="d₂")
        ax.set_zlabel("loss above its least")
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.set_pane_color((1, 1, 1, 0))
        ax.set(xticks=(-span, 0, span), yticks=(-span, 0, span))
        ax.zaxis.set_major_locator(MaxNLocator(4))
        ax.tick_params(labelsize=8, pad=0)
        ax.set_box_aspect(None, zoom=0.9)  # room for its label
    return fig
