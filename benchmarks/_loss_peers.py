"""The losses as people write them: as the authors' programs do, and by hand with binary_cross_entropy_with_logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.functional import logsigmoid

EPS = 1e-5
# Positive and unknown costs of (g, p, log p, log(1−p)), at the methods' defaults.
Curve = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _log_p(g: Tensor, p: Tensor, log_p: Tensor, log_n: Tensor) -> Tensor:
    return -log_p


def _log_n(g: Tensor, p: Tensor, log_p: Tensor, log_n: Tensor) -> Tensor:
    return -log_n


def _margin(g: Tensor, p: Tensor, log_p: Tensor, log_n: Tensor) -> Tensor:
    q = torch.sigmoid(g - 1)
    return (1 - q) ** 2 * -torch.log(q + EPS)


def _shifted(g: Tensor, p: Tensor, log_p: Tensor, log_n: Tensor) -> Tensor:
    shifted = (p - 0.05).clamp(min=0)
    return shifted**4 * -torch.log(1 - shifted + EPS)


def _robust(g: Tensor, p: Tensor, log_p: Tensor, log_n: Tensor) -> Tensor:
    still = p.detach()
    k, v = torch.sigmoid(2 * still - 2), torch.exp(-((still - 0.8) ** 2) / (2 * 0.5**2))
    return v * (k * (1 - p**0.01) / 0.01 + (1 - k) * p)


def _corrected(tau: float, gamma: int, weights: tuple[float, float]) -> Curve:
    def curve(g: Tensor, p: Tensor, log_p: Tensor, log_n: Tensor) -> Tensor:
        positive = (1 - p) ** gamma * -log_p if gamma == 2 else -log_p
        return torch.where(p > tau, weights[0] * positive, weights[1] * p ** (2 if gamma == 2 else 4) * -log_n)

    return curve


FORMULAS: dict[str, tuple[Curve, Curve]] = {
    "bce": (_log_p, lambda g, p, lp, ln: torch.zeros_like(p)),
    "bce-ls": (lambda g, p, lp, ln: -0.95 * lp - 0.05 * ln, lambda g, p, lp, ln: torch.zeros_like(p)),
    "iu": (_log_p, lambda g, p, lp, ln: torch.zeros_like(p)),
    "an": (_log_p, _log_n),
    "an-ls": (lambda g, p, lp, ln: -0.95 * lp - 0.05 * ln, lambda g, p, lp, ln: -0.95 * ln - 0.05 * lp),
    "n-ls": (_log_p, lambda g, p, lp, ln: -0.95 * ln - 0.05 * lp),
    "wan": (_log_p, lambda g, p, lp, ln: -ln / (g.shape[-1] - 1)),
    "focal": (lambda g, p, lp, ln: -0.75 * (1 - p) ** 2 * lp, lambda g, p, lp, ln: -0.25 * p**2 * ln),
    "asl": (_log_p, lambda g, p, lp, ln: -(p**4) * ln),
    "asl-ps": (_log_p, _shifted),
    "hill": (_margin, lambda g, p, lp, ln: (1.5 - p) * p**2),
    "splc": (_margin, _corrected(0.6, 2, (1.0, 1.0))),
    "em": (_log_p, lambda g, p, lp, ln: 0.2 * (p * lp + (1 - p) * ln)),
    "gr": (lambda g, p, lp, ln: (1 - p**0.01) / 0.01, _robust),
    "las": (_log_p, lambda g, p, lp, ln: -(p**4) * ln / (g.shape[-1] - 1.5)),
    "lasd": (_log_p, _corrected(0.9, 0, (0.1, 0.0131))),
}
#: For which no such pair exists: (published, by hand).
WHOLE: dict[str, tuple[Any, Any]] = {}


def published(name: str, logits: Tensor, observed: Tensor) -> Tensor:
    if name in WHOLE:
        return WHOLE[name][0](logits, observed)  # type: ignore[no-any-return]
    positive, unknown = FORMULAS[name]
    p = torch.sigmoid(logits)
    loss = torch.zeros_like(p)
    for label, curve in ((1, positive), (0, unknown), (-1, _log_n)):
        g, q = logits[observed == label], p[observed == label]
        loss[observed == label] = curve(g, q, torch.log(q + EPS), torch.log(1 - q + EPS))
    return loss.mean()


def each(g: Tensor, target: Tensor) -> Tensor:
    return bce(g, target, reduction="none")


def _hand_focal(g: Tensor, y: Tensor) -> Tensor:
    p, yes = torch.sigmoid(g), y > 0
    return (torch.where(yes, 0.75, 0.25) * torch.where(yes, 1 - p, p) ** 2 * each(g, y)).mean()


def _hand_margin(g: Tensor) -> Tensor:
    return (1 - torch.sigmoid(g - 1)) ** 2 * each(g - 1, torch.ones_like(g))


def _hand_shifted(g: Tensor, y: Tensor) -> Tensor:
    shifted = (torch.sigmoid(g) - 0.05).clamp(min=0)
    return torch.where(y > 0, each(g, y), -(shifted**4) * torch.log1p(-shifted)).mean()


def _hand_hill(g: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(g)
    return torch.where(y > 0, _hand_margin(g), (1.5 - p) * p**2).mean()


def _hand_splc(g: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(g)
    found = (p > 0.6).float()
    return torch.where(y > 0, _hand_margin(g), torch.where(found > 0, 1 - p, p) ** 2 * each(g, found)).mean()


def _hand_em(g: Tensor, y: Tensor) -> Tensor:
    return torch.where(y > 0, each(g, y), -0.2 * each(g, torch.sigmoid(g))).mean()


def _hand_gr(g: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(g)
    still, yes = p.detach(), (1 - p**0.01) / 0.01
    k, v = torch.sigmoid(2 * still - 2), torch.exp(-((still - 0.8) ** 2) / (2 * 0.5**2))
    return torch.where(y > 0, yes, v * torch.lerp(p, yes, k)).mean()


def _hand_lasd(g: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(g)
    found = (p > 0.9).float()
    unknown = torch.where(found > 0, 0.1, 0.0131 * p**4) * each(g, found)
    return torch.where(y > 0, each(g, y), unknown).sum(-1).mean()


#: The same of logits and float targets, 1 where a label is observed; at the methods' defaults.
BY_HAND: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bce": lambda g, y: bce(g, y, weight=y),
    "bce-ls": lambda g, y: bce(g, y * 0.9 + 0.05, weight=y),
    "iu": lambda g, y: bce(g, y, weight=y),
    "an": bce,
    "an-ls": lambda g, y: bce(g, y * 0.9 + 0.05),
    "n-ls": lambda g, y: bce(g, y * 0.95 + 0.05),
    "wan": lambda g, y: bce(g, y, weight=torch.where(y > 0, 1.0, 1 / (g.shape[-1] - 1))),
    "focal": _hand_focal,
    "asl": lambda g, y: (torch.where(y > 0, 1.0, torch.sigmoid(g) ** 4) * each(g, y)).mean(),
    "asl-ps": _hand_shifted,
    "hill": _hand_hill,
    "splc": _hand_splc,
    "em": _hand_em,
    "gr": _hand_gr,
    "las": lambda g, y: (
        (torch.where(y > 0, 1.0, torch.sigmoid(g) ** 4 / (g.shape[-1] - 1.5)) * each(g, y)).sum(-1).mean()
    ),
    "lasd": _hand_lasd,
}


def by_hand(name: str, logits: Tensor, observed: Tensor) -> Tensor:
    if name in WHOLE:
        return WHOLE[name][1](logits, observed)  # type: ignore[no-any-return]
    return BY_HAND[name](logits, (observed > 0).float())


def _pairs_published(logits: Tensor, observed: Tensor) -> Tensor:
    p, loss = torch.sigmoid(logits), torch.zeros_like(logits)
    for n in range(len(logits)):
        unknown = p[n][observed[n] == 0]
        for i in (observed[n] == 1).nonzero()[:, 0]:
            loss[n, i] = (1 - p[n, i] + unknown).clamp(min=0).sum()
    return loss.mean()


def _pairs_by_hand(logits: Tensor, observed: Tensor) -> Tensor:
    p, positive, unknown = torch.sigmoid(logits), (observed > 0).float(), (observed == 0).float()
    loss = unknown.sum(-1) * (positive * (1 - p)).sum(-1) + positive.sum(-1) * (unknown * p).sum(-1)
    return (loss + torch.where(observed < 0, -logsigmoid(-logits), 0.0).sum(-1)).mean()


def _expected(known: Tensor, logits: Tensor) -> Tensor:
    return known + ((torch.sigmoid(logits).sum(-1).mean() - 1.5) / logits.shape[-1]) ** 2


def _expected_published(logits: Tensor, observed: Tensor) -> Tensor:
    return _expected(published("iu", logits, observed) * logits.shape[-1], logits)


def _expected_by_hand(logits: Tensor, observed: Tensor) -> Tensor:
    return _expected(by_hand("iu", logits, observed) * logits.shape[-1], logits)


WHOLE |= {"pr": (_pairs_published, _pairs_by_hand), "epr": (_expected_published, _expected_by_hand)}
