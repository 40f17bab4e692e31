"""Loss and gradient of one entry: the curves of any set of methods (EM Fig. 2a, GR Fig. 1a, 1b)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.losses.module import ElementWise
from onelabel.methods import Method, list_methods, method, method_info
from onelabel.report import style
from onelabel.report.figures.registry import figure

Over = Literal["logit", "p"]
What = Literal["loss", "gradient"]
When = Literal["start", "end"]
SIGNS = {"observed positive": 1, "unknown": 0, "observed negative": -1}


class Curve(NamedTuple):
    """The loss of one entry and its derivative by the logit, at logits g (p = σ(g))."""

    g: NDArray[np.float64]
    loss: NDArray[np.float64]
    gradient: NDArray[np.float64]


def has_curve(name: str) -> bool:
    """Whether a method's loss is a function of each entry alone, and so has curves."""
    return issubclass(method_info(name).cls, ElementWise)


def entry_curve(
    given: str | Method,
    sign: int,
    g: Any,
    *,
    epoch: When | int = "start",
    epochs: int = 10,
    num_classes: int = 20,
) -> Curve:
    """A method's loss of an entry with observed label `sign` (+1, 0, −1) at logits `g`, and its gradient, float64.

    `epoch` is where its schedules stand: the first, the last, or a 0-based number of `epochs`. A weight that depends on
    the number of classes (WAN, LASD) takes `num_classes`.
    """
    made = method(given) if isinstance(given, str) else given
    if not isinstance(made, ElementWise):
        known = ", ".join(name for name in list_methods() if has_curve(name))
        raise ValueError(
            f"{made.name}: its loss is not a function of one entry, so it has no curve; these have: {known}"
        )
    made.begin_epoch({"start": 0, "end": epochs - 1}.get(epoch, epoch), epochs)  # type: ignore[arg-type]
    points = torch.as_tensor(np.asarray(g, np.float64))
    logits = points[:, None].expand(-1, num_classes).clone().requires_grad_()
    observed = torch.full((len(points), num_classes), sign, dtype=torch.int8)
    made._match(logits.dtype)
    state = torch.get_rng_state()  # pseudo-negative draws
    entries = made.entries(logits, observed)
    torch.set_rng_state(state)
    (slope,) = torch.autograd.grad(entries.sum(), logits) if entries.requires_grad else (torch.zeros_like(logits),)
    return Curve(points.numpy(), entries.detach().mean(1).numpy(), slope.mean(1).numpy())


@figure("methods", "EM 2a, GR 1a, GR 1b")
def curves(
    methods: Sequence[str | Method] | Mapping[str, Method],
    *,
    over: Over = "logit",
    what: What = "loss",
    epoch: When | int = "start",
    signs: Sequence[str] = ("observed positive", "unknown"),
    epochs: int = 10,
    num_classes: int = 20,
    limit: float = 6.0,
) -> Any:
    """Loss, or its gradient by the logit, of one entry over its logit or its probability.

    Args:
        methods: names or made methods; a mapping gives them names of its own ("GR, q3=1.5": method(...)).
        over: "logit" (−limit … limit) or "p" (0 … 1).
        what: "loss" or "gradient".
        epoch: where schedules stand: "start", "end", or a 0-based epoch of `epochs`.
        signs: one panel each: "observed positive", "unknown", "observed negative".
    """
    if over not in ("logit", "p") or what not in ("loss", "gradient"):
        raise ValueError(f"over: {over!r}, what: {what!r}, expected 'logit' or 'p', and 'loss' or 'gradient'")
    if isinstance(signs, str):
        signs = [signs]
    if unknown := [sign for sign in signs if sign not in SIGNS]:
        raise ValueError(f"signs: {unknown[0]!r}, expected some of {', '.join(SIGNS)}")
    if over == "logit":
        g = np.linspace(-limit, limit, 401)
        x = g
    else:
        x = np.linspace(0.002, 0.998, 499)
        g = np.log(x) - np.log1p(-x)
    named = _named(methods)
    fig, axes = style.canvas(len(signs), width=4.2)
    for ax, sign in zip(np.atleast_1d(axes).flat, signs, strict=True):
        highest = []
        for name, (made, look) in named.items():
            curve = entry_curve(made, SIGNS[sign], g, epoch=epoch, epochs=epochs, num_classes=num_classes)
            y = curve.loss if what == "loss" else curve.gradient
            highest.append(np.abs(y).max())
            ax.plot(x, y, color=look.colour, ls=look.dash, label=name)
        ax.axhline(0, color=style.MUTED, lw=0.8)
        if what == "loss" and max(highest) > 5:
            ax.set_ylim(top=5.2)  # −log of a vanishing probability would hide everything else
        ax.set(title=sign, xlabel="logit g" if over == "logit" else "probability p")
    first = np.atleast_1d(axes).flat[0]
    first.set_ylabel("loss" if what == "loss" else "gradient ∂loss/∂g")
    if len(named) > 6:
        fig.legend(*first.get_legend_handles_labels(), loc="outside right center")
    else:
        first.legend()
    return fig


def _named(methods: Any) -> dict[str, tuple[Method, style.Look]]:
    if isinstance(methods, Mapping):
        looks = style.apart([style.look(made.name) for made in methods.values()])
        return {name: (made, look) for (name, made), look in zip(methods.items(), looks, strict=True)}
    if isinstance(methods, (str, Method)):
        methods = [methods]
    if not methods:
        raise ValueError("methods: none given; onelabel methods lists them")
    made_all = [method(m) if isinstance(m, str) else m for m in methods]
    return {style.title(m.name): (m, style.look(m.name)) for m in made_all}
