"""The picture of a method: what one entry costs and how hard it pulls, by its logit."""

from __future__ import annotations

import io
import re
from typing import Any

import torch

import onelabel
from onelabel.losses.module import ElementWise

SIGNS = {1: ("observed positive", "#0072b2"), 0: ("unknown", "#d55e00"), -1: ("observed negative", "#009e73")}
CLASSES = 20  #: VOC's, for methods whose weights depend on L


def has_curve(name: str) -> bool:
    """Whether an entry's cost depends on its own logit and label alone."""
    return isinstance(onelabel.method(name), ElementWise) and name != "pseudo-negative"


def entry(name: str, sign: int, logits: torch.Tensor, *, end: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient of entries with these logits, at the last epoch of ten or the first."""
    method: Any = onelabel.method(name)
    method.begin_epoch(9 if end else 0, 10)
    column = logits.double()[:, None].expand(-1, CLASSES).clone().requires_grad_()
    cost = method.entries(column, torch.full(column.shape, sign, dtype=torch.int8))
    (slope,) = torch.autograd.grad(cost.sum(), column)
    return cost.detach()[:, 0], slope[:, 0]


def curve_svg(name: str) -> str:
    """Loss and gradient against the logit, as SVG that takes the page's text colour."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    logits = torch.linspace(-6, 6, 241)
    scheduled = bool(onelabel.method(name).needs.epoch)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10}):
        figure = Figure(figsize=(8, 3), layout="constrained")
        panels = figure.subplots(1, 2)
        for sign, (label, colour) in SIGNS.items():
            for end in (True, False) if scheduled and sign == 0 else (True,):
                said = label + (", last epoch" if end else ", first epoch") * (scheduled and sign == 0)
                for panel, values in zip(panels, entry(name, sign, logits, end=end), strict=True):
                    panel.plot(logits, values, color=colour, ls="-" if end else "--", lw=1.8, label=said)
        for panel, title in zip(panels, ("loss", "gradient"), strict=True):
            panel.set(xlabel="logit", title=title)
            panel.axhline(0, color="k", lw=0.5, alpha=0.4)
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylim(top=min(panels[0].get_ylim()[1], 4))
        panels[0].legend(frameon=False, fontsize=8)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return themed(file.getvalue())


def themed(svg: str) -> str:
    """The svg element alone, as wide as the page lets it, with black drawn in the page's colour."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1), count=1)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"(stroke|fill): ?#000000", r"\1: currentColor", body)
    return body.replace("<svg ", '<svg role="img" ', 1)
