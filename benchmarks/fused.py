"""Element-wise losses, forward and backward, beside what people write, and against the memory's speed.

    python benchmarks/fused.py                     # CPU, 1024×10000
    python benchmarks/fused.py --device cuda       # 4096×20000 in float32, bfloat16, float16, and 16×80
    python benchmarks/fused.py --device cuda --json out.json

The limit is what the copy bandwidth measured in the same run allows: logits and int8 labels read once, the gradient
written once (9 bytes an entry in float32, 5 in bfloat16). "published" is the masked assignment with log(p + ε) of the
authors' programs, "bce" is torch's binary_cross_entropy_with_logits on targets made from the labels.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from _timing import copy_bandwidth, machine, milliseconds, race, row, write
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import onelabel
from onelabel.losses import fused

METHODS = ("an", "an-ls", "wan", "em", "focal", "asl", "asl-ps", "hill", "splc", "las", "gr")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def problem(rows: int, classes: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    logits = torch.randn(rows, classes, device=device, dtype=torch.float32).mul_(3).to(dtype).requires_grad_()
    observed = torch.zeros(rows, classes, dtype=torch.int8, device=device)
    observed.scatter_(1, torch.randint(classes, (rows, 1), device=device), 1)
    return logits, observed


def published(logits: Tensor, observed: Tensor) -> Tensor:
    """ROLE's and EM's assume-negative loss, as their programs write it."""
    p, loss = torch.sigmoid(logits), torch.zeros_like(logits)
    loss[observed == 1] = -torch.log(p[observed == 1] + 1e-5)
    loss[observed == 0] = -torch.log(1 - p[observed == 0] + 1e-5)
    return loss.mean()


def published_em(logits: Tensor, observed: Tensor) -> Tensor:
    p, loss = torch.sigmoid(logits), torch.zeros_like(logits)
    loss[observed == 1] = -torch.log(p[observed == 1] + 1e-5)
    q = p[observed == 0]
    loss[observed == 0] = 0.2 * (q * torch.log(q + 1e-5) + (1 - q) * torch.log(1 - q + 1e-5))
    return loss.mean()


def step(loss: Any, logits: Tensor, observed: Tensor) -> Any:
    def work() -> None:
        logits.grad = None
        loss(logits, observed).backward()

    return work


def made(name: str) -> Any:
    criterion = onelabel.method(name)
    criterion.begin_epoch(3, 8)
    return criterion


def large(rows: int, classes: int, device: str, dtype: str, bandwidth: float, compiled: bool) -> list[dict[str, Any]]:
    logits, observed = problem(rows, classes, device, DTYPES[dtype])
    limit = rows * classes * (2 * logits.element_size() + 1) / bandwidth * 1e3
    table = []
    for name in METHODS:
        criterion = made(name).to(device)
        contenders = {"ours": moded("on", criterion, logits, observed)}
        if name in ("an", "em", "gr"):
            contenders["eager"] = moded("off", criterion, logits, observed)
            if compiled:
                contenders["compile"] = moded("compile", criterion, logits, observed)
        if name == "an":
            contenders["bce"] = step(_bce, logits, observed)
        if name in ("an", "em") and dtype == "float32":
            contenders["published"] = step(published if name == "an" else published_em, logits, observed)
        peers = race(contenders, device, at_least=3)
        table.append(row(f"{name} {rows}×{classes} {dtype}", peers.pop("ours"), peers=peers, limit_ms=limit))
    return table


def moded(mode: Any, criterion: Any, logits: Tensor, observed: Tensor) -> Any:
    work = step(criterion, logits, observed)

    def in_mode() -> None:
        with fused.using(mode):
            work()

    return in_mode


def _bce(logits: Tensor, observed: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, (observed > 0).to(logits.dtype))


def small(device: str) -> list[dict[str, Any]]:
    """16×80, where launching is everything: as called, and as a captured graph."""
    logits, observed = problem(16, 80, device, torch.float32)
    table = []
    for name in ("an", "em", "gr"):
        criterion = made(name).to(device)
        contenders = {"ours": step(criterion, logits, observed), "eager": moded("off", criterion, logits, observed)}
        if name in ("an", "em"):
            contenders["published"] = step(published if name == "an" else published_em, logits, observed)
        if name == "an":
            contenders["bce"] = step(_bce, logits, observed)
        peers = race(contenders, device, at_least=50)
        table.append(row(f"{name} 16×80 float32", peers.pop("ours"), peers=peers))
        if device == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step(criterion, logits, observed)()
            table.append(row(f"{name} 16×80 float32, graph replay", milliseconds(graph.replay, device), peers=peers))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", help="rows x classes; default 1024x10000, on a GPU 4096x20000")
    parser.add_argument("--dtypes", default=None, help="comma-separated; default float32, on a GPU all three")
    parser.add_argument("--compile", action="store_true", help="also torch.compile (seconds for each method)")
    parser.add_argument("--json")
    args = parser.parse_args()
    cuda = args.device == "cuda"
    rows, classes = (int(n) for n in (args.size or ("4096x20000" if cuda else "1024x10000")).split("x"))
    bandwidth = copy_bandwidth(args.device)
    print(machine(args.device), f"copy {bandwidth / 1e12:.2f} TB/s")
    table = []
    for dtype in (args.dtypes or ("float32,bfloat16,float16" if cuda else "float32")).split(","):
        table += large(rows, classes, args.device, dtype, bandwidth, args.compile)
    table += small(args.device)
    write(args.json, "fused", args.device, table, copy_bandwidth=bandwidth)


if __name__ == "__main__":
    main()
