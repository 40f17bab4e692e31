"""The head fused with its loss over chunks of classes, beside the layer and the loss apart.

    python benchmarks/chunked.py                       # CPU
    python benchmarks/chunked.py --device cuda --json out.json

The limit is the three matrix products of a step at the rate a large product reaches in the same run. A million classes
are trained with AdamW; memory is what the step needs at its peak beyond weights and optimiser state.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from _timing import machine, milliseconds, race, replayed, row, write
from torch import Tensor, nn

import onelabel
from onelabel.losses import fused
from onelabel.losses.chunked import ChunkedHead
from onelabel.losses.observed import Observed

Step = Any


def one_positive(batch: int, classes: int, device: str) -> Observed:
    rows = torch.arange(batch, device=device)
    cols = torch.randint(classes, (batch,), device=device)
    return Observed(rows, cols, torch.ones(batch, dtype=torch.int8, device=device), (batch, classes))


def dense(observed: Observed) -> Tensor:
    result = torch.zeros(observed.shape, dtype=torch.int8, device=observed.rows.device)
    result[observed.rows, observed.cols] = observed.values
    return result


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    n = 8192 if device == "cuda" else 1024
    a, b = torch.randn(n, n, device=device, dtype=dtype), torch.randn(n, n, device=device, dtype=dtype)
    return 2 * n**3 / (milliseconds(lambda: a @ b, device) / 1e3)


def beside_unfused(batch: int, width: int, classes: int, device: str, half: bool) -> list[dict[str, Any]]:
    features = torch.randn(batch, width, device=device, requires_grad=True)
    observed = one_positive(batch, classes, device)
    z, criterion = dense(observed), onelabel.method("an")
    head = ChunkedHead(width, classes, criterion).to(device)

    def run(fuse: bool, apart: bool) -> Step:
        def work() -> None:
            features.grad = head.weight.grad = head.bias.grad = None  # type: ignore[union-attr]
            with torch.autocast(device, dtype=torch.bfloat16, enabled=half), fused.using("auto" if fuse else "off"):
                if apart:
                    loss = criterion(nn.functional.linear(features, head.weight, head.bias), z)
                else:
                    loss = head(features, observed)
            loss.backward()

        return work

    contenders = {"ours": run(True, False), "layer, fused loss": run(True, True), "layer, eager loss": run(False, True)}
    rate = matrix_rate(device, torch.bfloat16 if half else torch.float32)
    limit = 6 * batch * width * classes / rate * 1e3
    name = f"an {batch}×{classes}, D={width}, {'bfloat16' if half else 'float32'}"
    peers = race(contenders, device)
    table = [row(name, peers.pop("ours"), peers=peers, limit_ms=limit)]
    if device == "cuda":  # as training runs it, without what the host adds
        peers = {who: milliseconds(replayed(work), device) for who, work in contenders.items()}
        table.append(row(f"{name}, graph", peers.pop("ours"), peers=peers, limit_ms=limit))
    return table


def whole_step(name: str, batch: int, width: int, classes: int, device: str, half: bool) -> dict[str, Any]:
    """A training step with AdamW, and the memory it takes."""
    features = torch.randn(batch, width, device=device, requires_grad=True)
    observed = one_positive(batch, classes, device)
    head = ChunkedHead(width, classes, onelabel.method(name)).to(device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=True)

    def work() -> Tensor:
        features.grad = None
        with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
            loss: Tensor = head(features, observed)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    first = work()
    memory = 0.0
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    for _ in range(3):
        last = work()
    if device == "cuda":
        torch.cuda.synchronize()
        memory = (torch.cuda.max_memory_allocated() - before) / 2**30
    assert torch.isfinite(last) and last < first, (first, last)  # noqa: PT018
    ms = milliseconds(work, device, budget=1.0)
    rate = matrix_rate(device, torch.bfloat16 if half else torch.float32)
    label = f"{name} step, {batch}×{classes}, D={width}, {'bfloat16' if half else 'float32'}"
    entry = row(label, ms, limit_ms=(8 if name == "epr" else 6) * batch * width * classes / rate * 1e3)
    if device == "cuda":
        print(f"{'':44s} {memory:.2f} GiB beyond weights and optimiser state; loss {first:.4f} → {last:.4f}")
        entry["gib_beyond_weights"] = memory
    with torch.no_grad():
        top = milliseconds(lambda: head.predict_topk(features, 10), device)
    return {**entry, "topk_ms": top}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--tf32", action="store_true", help="let float32 products use the matrix units")
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
    cuda = args.device == "cuda"
    print(machine(args.device))
    table = []
    for half in (False, True) if cuda else (False,):
        table += beside_unfused(1024 if cuda else 128, 768 if cuda else 64, 20_000, args.device, half)
    sizes = (1024, 768, 1_000_000) if cuda else (64, 32, 100_000)
    table.append(whole_step("an", *sizes, args.device, cuda))
    table.append(whole_step("epr", *sizes, args.device, cuda))
    if cuda:
        table.append(whole_step("gr", *sizes, args.device, True))
        table.append(whole_step("an", *sizes, args.device, False))
    write(args.json, "chunked", args.device, table)


if __name__ == "__main__":
    main()
