"""Baselines: ignore the unknown, or assume it negative, plain, smoothed or weighted down (Cole et al. 2021)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from onelabel.contract import Hyper, Method, Number, Variant, register
from onelabel.losses.curves import against, cost, pick, same, scale
from onelabel.losses.module import ElementWise

if TYPE_CHECKING:
    from onelabel.labels import Labels

ROLE = "Cole et al., Multi-Label Learning from Single Positive Labels"
EM = "Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels"


def bce(logits: Tensor, observed: Tensor, *, smoothing: Number = 0.0, eps: float = 0.0) -> Tensor:
    """−log p where z=+1, −log(1−p) where z=−1, nothing where z=0 ("ignore unobserved").

    With `smoothing` ε both observed signs are smoothed: (1−ε/2)·(−log p) + (ε/2)·(−log(1−p)) and its mirror image.
    """
    return _smoothed(against(observed > 0, logits), smoothing, eps).masked_fill(observed == 0, 0.0)


def an(
    logits: Tensor,
    observed: Tensor,
    *,
    positive_smoothing: Number = 0.0,
    unknown_smoothing: Number = 0.0,
    gamma: Number = 1.0,
    eps: float = 0.0,
) -> Tensor:
    """Assume negative: −log p where z=+1, γ·(−log(1−p)) elsewhere, each smoothed with its own ε/2.

    ε_p on positives and ε_n on unknown entries; observed negatives are neither smoothed nor weighted.
    """
    smoothing = pick(observed, like=logits, positive=positive_smoothing, unknown=unknown_smoothing, negative=0.0)
    weight = pick(observed, like=logits, positive=1.0, unknown=gamma)
    return scale(weight, _smoothed(against(observed > 0, logits), smoothing, eps))


def _smoothed(u: Tensor, smoothing: Number, eps: float) -> Tensor:
    """(1−ε/2)·cost + (ε/2)·flipped cost; without `eps` the two differ by just −u."""
    right = cost(u, eps=eps)
    if same(smoothing, 0.0):
        return right
    return right + smoothing / 2 * (cost(-u, eps=eps) - right) if eps else right - smoothing / 2 * u


def _half(variant: Variant, smoothing: Any) -> Any:
    """The published programs flip ε itself, the papers ε/2."""
    return smoothing * 2 if variant == "reference" else smoothing


@register(
    "bce-ls",
    title="BCE with label smoothing",
    paper=ROLE,
    year=2021,
    smoothing=0.1,
    formula="(1−ε/2)·BCE + (ε/2)·flipped BCE on observed entries, 0 on unknown",
)
@register(
    "bce",
    title="Binary cross-entropy on full labels",
    paper=ROLE,
    year=2021,
    formula="−log p on positives, −log(1−p) on negatives, 0 on unknown",
)
class BCE(ElementWise):
    """Binary cross-entropy on what is observed: for fully labelled data. Refuses data with positives only."""

    hyper: ClassVar = {"smoothing": Hyper("mass moved to the other sign", 0, 1, (0.1, 0.2, 0.3))}

    def __init__(self, *, smoothing: Any = 0.0, variant: Variant = "paper", stack: int | None = None) -> None:
        super().__init__(smoothing=smoothing, variant=variant, stack=stack)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return bce(logits, observed, smoothing=_half(self.variant, self.smoothing), eps=self.eps)

    def bind(self, labels: Labels) -> Method:
        if labels.is_positive_only:
            raise ValueError(
                "bce was given labels with no negative, on which it learns to say yes to everything; "
                "use method('an'), 'em' or 'gr' for single positives, 'iu' to insist"
            )
        return self


@register(
    "iun",
    title="Ignore unobserved, true negatives supplied (oracle)",
    paper=ROLE,
    year=2021,
    formula="−log p on positives, −log(1−p) on negatives, 0 on unknown",
)
@register(
    "iu",
    title="Ignore unobserved",
    paper=ROLE,
    year=2021,
    formula="−log p on positives, −log(1−p) on negatives, 0 on unknown",
)
class IU(ElementWise):
    """Ignore what is unobserved. With positives only it collapses to "always positive", and says so.

    ``normalise="observed"`` is Durand et al.'s partial BCE: each row counts by its share of observed labels, i.e. it is
    the mean over the row's observed entries.
    """

    def __init__(
        self,
        *,
        normalise: Literal["all", "observed"] = "all",
        variant: Variant = "paper",
        stack: int | None = None,
    ) -> None:
        if normalise not in ("all", "observed"):
            raise ValueError(f"normalise must be 'all' or 'observed', got {normalise!r}")
        super().__init__(normalise=normalise, variant=variant, stack=stack)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        loss = bce(logits, observed, eps=self.eps)
        if self.normalise == "observed":
            seen = (observed != 0).sum(-1, keepdim=True).clamp(min=1)
            loss = loss * (logits.shape[-1] / seen.to(loss.dtype))
        return loss

    def bind(self, labels: Labels) -> Method:
        if labels.is_positive_only:
            warnings.warn(
                "no negative label is observed: ignoring the unknown learns to say yes to everything",
                stacklevel=2,
            )
        return self


@register(
    "n-ls",
    title="Assume negative, smoothing on the unknown only",
    paper=ROLE,
    year=2021,
    fixed={"positive_smoothing": 0.0},
    formula="an-ls with ε on unknown entries only",
)
@register(
    "an-ls",
    title="Assume negative with label smoothing",
    paper=ROLE,
    year=2021,
    formula="(1−ε/2)(−log p) + (ε/2)(−log(1−p)) on positives, its mirror on unknown",
)
class ANLS(ElementWise):
    """Assume negative with label smoothing; the two sides may differ (`positive_smoothing`, `unknown_smoothing`)."""

    hyper: ClassVar = {
        "positive_smoothing": Hyper("ε on positives", 0, 1, (0.0, 0.1, 0.2, 0.3)),
        "unknown_smoothing": Hyper("ε on unknown entries", 0, 1, (0.1, 0.2, 0.3)),
    }

    def __init__(
        self,
        *,
        positive_smoothing: Any = 0.1,
        unknown_smoothing: Any = 0.1,
        variant: Variant = "paper",
        stack: int | None = None,
    ) -> None:
        super().__init__(
            positive_smoothing=positive_smoothing,
            unknown_smoothing=unknown_smoothing,
            variant=variant,
            stack=stack,
        )

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return an(
            logits,
            observed,
            positive_smoothing=_half(self.variant, self.positive_smoothing),
            unknown_smoothing=_half(self.variant, self.unknown_smoothing),
            eps=self.eps,
        )


@register(
    "an",
    title="Assume negative",
    paper=ROLE,
    year=2021,
    fixed={"gamma": 1.0},
    formula="−log p on positives, −log(1−p) on unknown",
)
@register(
    "dw",
    title="Down-weighted assume negative",
    paper=EM,
    year=2022,
    gamma=0.1,
    formula="−log p on positives, γ·(−log(1−p)) on unknown, γ tuned",
)
@register(
    "wan",
    title="Weak assume negative",
    paper=ROLE,
    year=2021,
    formula="−log p on positives, γ·(−log(1−p)) on unknown, γ = 1/(L−1)",
)
class WAN(ElementWise):
    """Assume negative with weight γ on the unknown: 1/(L−1) by default, 1 is plain AN."""

    hyper: ClassVar = {"gamma": Hyper("weight of the unknown", 0, 1, (0.01, 0.02, 0.1, 0.2, 0.4, 0.9))}

    def __init__(self, *, gamma: Any = None, variant: Variant = "paper", stack: int | None = None) -> None:
        super().__init__(gamma=gamma, variant=variant, stack=stack)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        gamma = 1.0 / max(logits.shape[-1] - 1, 1) if self.gamma is None else self.gamma
        return an(logits, observed, gamma=gamma, eps=self.eps)


@register(
    "pseudo-negative",
    title="One random negative per row and step",
    paper=ROLE,
    year=2021,
    formula="−log p on positives, −log(1−p) on one random unknown entry of each row",
)
class PseudoNegative(ElementWise):
    """One unknown entry a row, drawn anew each step, counts as negative: WAN with γ = 1/(unknown in row) on average."""

    def __init__(self, *, stack: int | None = None) -> None:
        super().__init__(stack=stack)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        draw = torch.rand(logits.shape, device=logits.device).masked_fill(observed != 0, -1.0)
        chosen = torch.zeros_like(logits).scatter_(-1, draw.argmax(-1, keepdim=True), 1.0)
        # A row without unknown entries has no entry to draw; its argmax fell on an observed one.
        return an(logits, observed, gamma=chosen)
