"""GR loss (Chen et al. 2024): generalised cross-entropies, a soft pseudo-label and a Gaussian weight on the unknown."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from onelabel.contract import Hyper, Needs, Number, Variant, register
from onelabel.losses.curves import generalised, nll, same, unified
from onelabel.losses.module import ElementWise

PAPER = "Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust Loss"
Pair = tuple[float, float]


def pseudo_label(p: Tensor, w: Number, b: Number) -> Tensor:
    """k̂(p) = σ(w·p + b)."""
    return torch.sigmoid(w * p + b)


def confidence_weight(p: Tensor, mu: Number, sigma: Number) -> Tensor:
    """v(p) = exp(−(p−μ)²/(2σ²))."""
    return torch.exp(-((p - mu) ** 2) / (2 * sigma**2))


def gr(
    logits: Tensor,
    observed: Tensor,
    *,
    q1: Number = 0.01,
    q2: Number = 0.01,
    q3: Number = 1.0,
    w: Number = 2.0,
    b: Number = -2.0,
    mu: Number = 0.8,
    sigma: Number = 0.5,
    eps: float = 0.0,
) -> Tensor:
    """(1−p^q1)/q1 where z=+1; v·[k̂(1−p^q2)/q2 + (1−k̂)(1−(1−p)^q3)/q3] where z=0; −log(1−p) where z=−1.

    k̂ = σ(w·p + b) and v = exp(−(p−μ)²/(2σ²)) take p without gradient. With `eps` (the authors' program) positives cost
    −log(p + eps).
    """
    p = generalised(-logits, 1.0)
    k, v = pseudo_label(p.detach(), w, b), confidence_weight(p.detach(), mu, sigma)
    as_positive = generalised(logits, q2)
    as_negative = p if same(q3, 1.0) else generalised(-logits, q3)
    if eps:
        positive = nll(logits, eps=eps)
    else:
        positive = as_positive if same(q1, q2) else generalised(logits, q1)
    unknown = v * torch.lerp(as_negative, as_positive, k)
    return unified(observed, positive=positive, unknown=unknown, negative=nll(-logits))


@register(
    "gr",
    title="Generalised robust loss",
    paper=PAPER,
    year=2024,
    formula="(1−p^q1)/q1 on positives, v·[k̂(1−p^q2)/q2 + (1−k̂)(1−(1−p)^q3)/q3] on unknown",
)
class GR(ElementWise):
    """GR loss. w, b, μ, σ each move linearly from a start to the end value given here.

    x(t) = x0 + (xT − x0)·t/T. ``variant="paper"`` puts the first epoch at the start and the last at the end;
    "reference" uses e/T for w and b, (e+1)/T for μ and σ. ``trainable=True`` learns them per class by gradient instead
    (SGD, the paper's ablation; only w and b in "reference"), starting from the start values.
    """

    reference_eps: ClassVar[float] = 1e-7
    hyper: ClassVar = {
        "q1": Hyper("robustness on positives", 0, 2, (0.01,)),
        "q2": Hyper("robustness of the positive half of the unknown", 0, 2, (0.01,)),
        "q3": Hyper("robustness of the negative half of the unknown", 0, 2, (0.5, 1.0, 1.5)),
        "w": Hyper("slope of k̂ at the end", -1000, 1000, (2.0, 10.0)),
        "b": Hyper("offset of k̂ at the end", -1000, 1000, (-2.0, -5.0, -8.0)),
        "mu": Hyper("centre of v at the end", -1, 2, (0.6, 0.8, 1.0)),
        "sigma": Hyper("width of v at the end", 1e-3, 1e6, (0.1, 0.5, 1.0)),
    }
    clock: Tensor
    START: ClassVar[dict[str, float]] = {"w": 0.0, "b": -2.0, "mu": 0.5, "sigma": 2.0}

    def __init__(
        self,
        *,
        q1: Any = 0.01,
        q2: Any = 0.01,
        q3: Any = 1.0,
        w: Any = 2.0,
        b: Any = -2.0,
        mu: Any = 0.8,
        sigma: Any = 0.5,
        start: dict[str, float] | None = None,
        trainable: bool = False,
        num_classes: int | None = None,
        variant: Variant = "paper",
        stack: int | None = None,
    ) -> None:
        super().__init__(q1=q1, q2=q2, q3=q3, w=w, b=b, mu=mu, sigma=sigma, variant=variant, stack=stack)
        self.first = {**self.START, **(start or {})}
        if unknown := set(self.first) - set(self.START):
            raise ValueError(f"start takes {', '.join(self.START)}, got {', '.join(sorted(unknown))}")
        for name, value in self.first.items():
            self.hyper[name].check(f"start[{name!r}]", value)
        self.trainable = trainable
        lines = [(self.first["w"], self.first["b"]), *zip(self.each("w"), self.each("b"), strict=True)]
        #: Whether kernels in half precision may approximate p^q2 and k̂: |w| ≤ 2, and k̂ ≥ 0.1 at any p.
        self.gentle = max(self.each("q2")) <= 0.0125 and all(
            abs(slope) <= 2 and min(offset, slope + offset) >= -2.197 for slope, offset in lines
        )
        lead = (self.stack, 1) if self.stack else (1,)
        self.register_buffer("clock", torch.tensor([0, 1]))
        self.begin_epoch(0, 1)
        if trainable:
            if num_classes is None:
                raise ValueError("trainable=True learns per class: give num_classes=")
            for name in ("w", "b") if variant == "reference" else self.START:
                self.register_parameter(
                    f"{name}_learned", nn.Parameter(torch.full((*lead, num_classes), self.first[name]))
                )

    @property
    def needs(self) -> Needs:
        return Needs(epoch=True)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self.clock.copy_(torch.tensor([epoch, epochs]), non_blocking=True)
        for name, first in self.first.items():
            if self.variant == "reference":
                share = (epoch if name in ("w", "b") else epoch + 1) / max(epochs, 1)
            else:
                share = epoch / max(epochs - 1, 1)
            self._column(f"{name}_now", [first + (end - first) * share for end in self.each(name)])

    def _load_from_state_dict(self, *state: Any) -> None:
        super()._load_from_state_dict(*state)
        self.begin_epoch(*self.clock.tolist())

    def now(self, name: str) -> Tensor:
        """The current value of w, b, mu or sigma."""
        learned = getattr(self, f"{name}_learned", None)
        return getattr(self, f"{name}_now") if learned is None else learned

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        values = {name: self.now(name).to(logits.dtype) for name in self.START}
        return gr(logits, observed, q1=self.q1, q2=self.q2, q3=self.q3, eps=self.eps, **values)

    def optimizers(self, lr: float | Tensor) -> list[torch.optim.Optimizer]:
        own = list(self.parameters())
        return [torch.optim.SGD(own, lr=0.1, momentum=0.9, weight_decay=0.001)] if own else []
