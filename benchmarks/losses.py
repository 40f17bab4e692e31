"""Forward and backward of every loss without memory, and a step of ROLE, beside what people write.

    python benchmarks/losses.py                                    # 16×80 and 1024×10000
    PYTHONPATH=src python3 benchmarks/losses.py --device cuda      # and 4096×20000
    python benchmarks/losses.py --sizes 64x312 --json out.json

Ratios are the peer's time over ours. "ours" is what a caller gets, "unfused" the same with
``onelabel.losses.fused`` switched off (the formula written with torch operations, which is what torch.compile,
float64 and second derivatives use). "published" assigns through boolean masks with log(p + ε), as the authors' programs
do; "composed" is what one writes in torch without thinking about speed: logsigmoid for both signs, torch.where for the
labels; "bce" is torch's binary_cross_entropy_with_logits on float targets that are there already, which for AN is less
work than any of them does, and "bce made" the same with the targets made of the labels: AN as one composes it by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from _timing import machine, milliseconds, race, row, write
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

import onelabel
from onelabel import Labels
from onelabel.losses import fused

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
#: For which no such pair exists: (published, composed), either None.
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


def composed(name: str, logits: Tensor, observed: Tensor) -> Tensor:
    if name in WHOLE:
        return WHOLE[name][1](logits, observed)  # type: ignore[no-any-return]
    positive, unknown = FORMULAS[name]
    all_of = (logits, torch.sigmoid(logits), logsigmoid(logits), logsigmoid(-logits))
    negative = torch.where(observed < 0, _log_n(*all_of), unknown(*all_of))
    return torch.where(observed > 0, positive(*all_of), negative).mean()


def _pairs_published(logits: Tensor, observed: Tensor) -> Tensor:
    p, loss = torch.sigmoid(logits), torch.zeros_like(logits)
    for n in range(len(logits)):
        unknown = p[n][observed[n] == 0]
        for i in (observed[n] == 1).nonzero()[:, 0]:
            loss[n, i] = (1 - p[n, i] + unknown).clamp(min=0).sum()
    return loss.mean()


def _pairs_composed(logits: Tensor, observed: Tensor) -> Tensor:
    p, positive, unknown = torch.sigmoid(logits), (observed > 0).float(), (observed == 0).float()
    loss = unknown.sum(-1) * (positive * (1 - p)).sum(-1) + positive.sum(-1) * (unknown * p).sum(-1)
    return (loss + torch.where(observed < 0, -logsigmoid(-logits), 0.0).sum(-1)).mean()


def _expected(known: Tensor, logits: Tensor) -> Tensor:
    return known + ((torch.sigmoid(logits).sum(-1).mean() - 1.5) / logits.shape[-1]) ** 2


def _expected_published(logits: Tensor, observed: Tensor) -> Tensor:
    return _expected(published("iu", logits, observed) * logits.shape[-1], logits)


def _expected_composed(logits: Tensor, observed: Tensor) -> Tensor:
    return _expected(composed("iu", logits, observed) * logits.shape[-1], logits)


WHOLE |= {"pr": (_pairs_published, _pairs_composed), "epr": (_expected_published, _expected_composed)}


def problem(rows: int, classes: int, device: str) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    logits = torch.randn(rows, classes, device=device).mul_(3).requires_grad_()
    observed = torch.zeros(rows, classes, dtype=torch.int8, device=device)
    return logits, observed.scatter_(1, torch.randint(classes, (rows, 1), device=device), 1)


def both(loss: Callable[[], Tensor], logits: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(loss(), logits)


def losses(
    rows: int, classes: int, device: str, names: list[str], *, budget: float, repeats: int
) -> list[dict[str, Any]]:
    logits, observed = problem(rows, classes, device)
    target = (observed > 0).float()

    def unfused(criterion: Any) -> Callable[[], Tensor]:
        def loss() -> Tensor:
            with fused.using("off"):
                return criterion(logits, observed)  # type: ignore[no-any-return]

        return loss

    out = []
    for name in names:
        hyper = {"alpha": 0.0, "expected_positives": 1.5} if name == "lasd" else {}
        criterion = onelabel.method(name, **hyper).to(device)
        criterion.begin_epoch(1, 2)
        contenders: dict[str, Callable[[], Tensor]] = {
            "ours": lambda c=criterion: c(logits, observed),
            "unfused": unfused(criterion),
            "composed": lambda n=name: composed(n, logits, observed),
            "bce": lambda: binary_cross_entropy_with_logits(logits, target),
        }
        if name == "an":
            contenders["bce made"] = lambda: binary_cross_entropy_with_logits(logits, (observed > 0).float())
        if not (name == "pr" and rows > 64):  # a Python loop over rows, minutes long
            contenders["published"] = lambda n=name: published(n, logits, observed)
        works = {who: both(loss, logits) for who, loss in contenders.items()}
        times = race(works, device, budget=budget, at_least=repeats)
        out.append(row(f"{name} {rows}×{classes}", times.pop("ours"), peers=times))
    return out


def role(device: str, n: int = 100_000, classes: int = 80, batch: int = 16) -> dict[str, Any]:
    """A whole step: loss, gradients of logits and estimates, the estimates' update. Published: Adam on all N rows."""
    torch.manual_seed(0)
    labels = Labels.from_classes(torch.randint(classes, (n,)).tolist(), num_classes=classes)
    index = torch.randperm(n)[:batch]
    observed = labels.rows(index, device=device)
    index = index.to(device)
    logits = torch.randn(batch, classes, device=device).requires_grad_()

    def ours(**hyper: Any) -> Callable[[], None]:
        criterion = onelabel.method("role", **hyper).to(device).bind(labels)
        optimizers = criterion.optimizers(1e-5)

        def step() -> None:
            logits.grad = None
            criterion(logits, observed, index=index).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

        return step

    table = torch.nn.Parameter(torch.rand(n, classes, device=device) - 0.5)
    adam = torch.optim.Adam([table], lr=1e-4)

    def half(p: Tensor, other: Tensor) -> Tensor:
        known = torch.zeros_like(p)
        known[observed == 1] = -torch.log(p[observed == 1] + EPS)
        cross = other * -torch.log(p + EPS) + (1 - other) * -torch.log(1 - p + EPS)
        return (known + cross).mean() + ((p.sum(1).mean() - 1.5) / classes) ** 2

    def theirs() -> None:
        logits.grad = None
        p, q = torch.sigmoid(logits), torch.sigmoid(table[index])
        ((half(p, q.detach()) + half(q, p.detach())) / 2).backward()
        adam.step()
        adam.zero_grad()

    mine = milliseconds(ours(), device)
    peers = {
        "dense variant": milliseconds(ours(variant="reference"), device),
        "published": milliseconds(theirs, device),
    }
    return row(f"role N={n} L={classes} B={batch}", mine, peers=peers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sizes", nargs="*", help="as 1024x10000")
    parser.add_argument("--methods", nargs="*", default=[*FORMULAS, *WHOLE])
    parser.add_argument("--budget", type=float, default=0.4, help="seconds for each time")
    parser.add_argument("--repeats", type=int, default=5, help="at least so many for each time")
    parser.add_argument("--json", metavar="OUT", help="write the table there")
    asked = parser.parse_args()
    sizes = asked.sizes or ["16x80", "1024x10000", *(["4096x20000"] if asked.device == "cuda" else [])]
    print(machine(asked.device))
    rows = []
    for size in sizes:
        b, n = (int(x) for x in size.lower().replace("×", "x").split("x"))
        rows += losses(b, n, asked.device, asked.methods, budget=asked.budget, repeats=asked.repeats)
    rows.append(role(asked.device))
    write(asked.json, "losses", asked.device, rows)


if __name__ == "__main__":
    main()
