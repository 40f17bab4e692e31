"""mAP of more data than a GPU should hold at once: exact by chunks of classes, and from bounded counts.

    python benchmarks/streaming.py                       # 20,000×200
    python benchmarks/streaming.py --device cuda --json out.json      # 40,137×80 and 1,000,000×1,000

Prints time, the peak of memory (inputs included) and the streaming variant's stated and true error. The limit is one
reading of scores and labels at the copy bandwidth.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from _timing import copy_bandwidth, machine, race, row, write
from torch import Tensor

from onelabel.metrics import average_precision
from onelabel.metrics.streaming import StreamingAveragePrecision


def problem(rows: int, classes: int, device: str) -> tuple[Tensor, Tensor]:
    """Scores about as good as a trained model's; made in parts, for memory."""
    scores = torch.empty(rows, classes, device=device)
    true = torch.empty(rows, classes, dtype=torch.bool, device=device)
    rarity = torch.linspace(0.15, 0.002, classes, device=device)
    for at in range(0, rows, 1 << 14):
        part = slice(at, at + (1 << 14))
        true[part] = torch.rand(scores[part].shape, device=device) < rarity
        scores[part] = torch.randn(scores[part].shape, device=device) + 2.5 * true[part] - 3
    return scores, true


def case(rows: int, classes: int, device: str, bandwidth: float) -> list[dict[str, Any]]:
    cuda = device == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    scores, true = problem(rows, classes, device)
    limit = rows * classes * 5 / bandwidth * 1e3
    budget = 0.3 if rows * classes < 1e8 else 0.0
    sketch = StreamingAveragePrecision(classes, bits=14, range=(-20, 20), device=device)

    def stream() -> Any:
        sketch.counts.zero_()
        return sketch.update(scores, true).compute()

    exact = average_precision(scores, true)
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    contenders = {"exact": lambda: average_precision(scores, true), "streaming": stream}
    times = race(contenders, device, budget=budget, at_least=3)
    table = [row(f"AP exact {rows}×{classes}", times["exact"], limit_ms=limit)]
    if cuda:
        table[0]["peak_gib"] = peak
        print(f"{'':44s} {peak:.2f} GiB at the peak, inputs included")
    got = stream()
    entry = row(f"AP streaming {rows}×{classes}", times["streaming"], peers={"exact": times["exact"]}, limit_ms=limit)
    inside = bool(((got.lower <= exact) & (exact <= got.upper)).all())
    stated, real = got.error.max().item(), (got.value - exact).abs().max().item()
    mean = got.mean()
    size, off = sketch.nbytes / 2**20, (mean.value - exact.mean()).abs()
    print(f"{'':44s} {size:.0f} MiB; AP off by at most {stated:.1e} (stated), {real:.1e} (true);")
    print(f"{'':44s} mAP by {mean.error:.1e}, {off:.1e}; the bounds {'hold' if inside else 'FAIL'}")
    assert inside
    return [*table, {**entry, "stated_error": stated, "true_error": real, "mib": sketch.nbytes / 2**20}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.manual_seed(0)
    bandwidth = copy_bandwidth(args.device)
    print(machine(args.device), f"copy {bandwidth / 1e12:.2f} TB/s")
    sizes = ((40_137, 80), (1_000_000, 1_000)) if args.device == "cuda" else ((5_000, 80), (20_000, 200))
    table = [entry for size in sizes for entry in case(*size, args.device, bandwidth)]
    write(args.json, "streaming", args.device, table)


if __name__ == "__main__":
    main()
