"""Forward and backward of every loss without memory, and a step of ROLE, beside what people write.

    python benchmarks/losses.py                                    # 16×80 and 1024×10000
    PYTHONPATH=src python3 benchmarks/losses.py --device cuda      # and 4096×20000
    python benchmarks/losses.py --sizes 64x312 --json out.json

Two ratios a method, both over our time, so over 1 is in our favour. "published" assigns through boolean masks with
log(p + ε), as the authors' programs do. "by hand" is the same loss in the fewest torch operations one would write:
binary_cross_entropy_with_logits on targets made of the labels, weighted or joined by torch.where. It knows no observed
negative and checks nothing; ours does. At the end stands which methods miss 5× the one or 1× the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from _loss_peers import EPS, FORMULAS, WHOLE, by_hand, published
from _timing import machine, milliseconds, race, row, write
from torch import Tensor

import onelabel
from onelabel import Labels


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
    out = []
    for name in names:
        hyper = {"alpha": 0.0, "expected_positives": 1.5} if name == "lasd" else {}
        criterion = onelabel.method(name, **hyper).to(device)
        criterion.begin_epoch(1, 2)
        contenders: dict[str, Callable[[], Tensor]] = {
            "ours": lambda c=criterion: c(logits, observed),
            "by hand": lambda n=name: by_hand(n, logits, observed),
        }
        if not (name == "pr" and rows > 64):  # a Python loop over rows, minutes long
            contenders["published"] = lambda n=name: published(n, logits, observed)
        works = {who: both(loss, logits) for who, loss in contenders.items()}
        times = race(works, device, budget=budget, at_least=repeats)
        out.append(row(f"{name} {rows}×{classes}", times.pop("ours"), peers=times))
    return out


def verdict(rows: list[dict[str, Any]]) -> str:
    """Which rows miss 5× the published way, and which are slower than the composition by hand."""
    slow = [f"{r['case']} {r['ratio']['published']:.1f}" for r in rows if r["ratio"].get("published", 5) < 5]
    hand = [f"{r['case']} {r['ratio']['by hand']:.2f}" for r in rows if r["ratio"].get("by hand", 1) < 1]
    return f"under 5× published: {', '.join(slow) or 'none'}\nslower than by hand: {', '.join(hand) or 'none'}"


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
    print(verdict(rows))
    rows.append(role(asked.device))
    write(asked.json, "losses", asked.device, rows)


if __name__ == "__main__":
    main()
