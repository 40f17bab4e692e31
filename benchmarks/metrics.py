"""Time the metrics beside scikit-learn, SciPy and torchmetrics, in one run, and compare the values.

    python benchmarks/metrics.py                  # 2 CPU cores
    python benchmarks/metrics.py --device cuda    # a GPU; scikit-learn and SciPy stay on the CPU
    python benchmarks/metrics.py --size 5823x20 --only mAP --json out.json

All contenders of a row take turns, so that a loaded machine slows them alike; best and median are printed. Peers
on the CPU get NumPy arrays and do not pay for a copy from the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.stats import wasserstein_distance
from sklearn import metrics as sk
from torchmetrics.functional import classification as tm

from onelabel import metrics

Work = Callable[[], object]


def problem(rows: int, classes: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits about as good as a trained model's, labels about as rare as COCO's, one positive a row observed."""
    torch.manual_seed(0)
    rarity = torch.linspace(0.15, 0.002, classes)
    true = torch.rand(rows, classes) < rarity
    true[torch.arange(rows), torch.randint(classes, (rows,))] = True
    scores = torch.randn(rows, classes) + 2.5 * true - 3
    observed = torch.zeros(rows, classes, dtype=torch.int8)
    observed[torch.arange(rows), (true * torch.rand(rows, classes)).argmax(1)] = 1
    return scores.to(device), true.to(device), observed.to(device)


def cases(rows: int, classes: int, device: str) -> dict[str, dict[str, Work]]:
    """Name of the metric → contender → what it does; the first peer is the one speed is compared with."""
    scores, true, observed = problem(rows, classes, device)
    probs, labels, double, half = scores.sigmoid(), true.int(), scores.double(), scores.half()
    s, y, p, z = (x.cpu().numpy() for x in (scores, true, probs, observed))
    d, said = s.astype(np.float64), (p > 0.5).astype(int)

    def ap_loop(values: np.ndarray) -> object:
        return np.mean([sk.average_precision_score(y[:, c], values[:, c]) for c in range(classes)])

    def wasserstein_loop() -> object:
        hidden = [z[:, c] == 0 for c in range(classes)]
        return [wasserstein_distance(p[h & y[:, c], c], p[h & ~y[:, c], c]) for c, h in enumerate(hidden)]

    many = torch.stack([scores + 0.1 * i for i in range(8)])
    return {
        "mAP float32": {
            "scikit-learn": lambda: ap_loop(s),
            "torchmetrics": lambda: tm.multilabel_average_precision(scores, labels, classes),
            "ours": lambda: metrics.mean_average_precision(scores, true),
        },
        "mAP float64": {
            "scikit-learn": lambda: ap_loop(d),
            "torchmetrics": lambda: tm.multilabel_average_precision(double, labels, classes),
            "ours": lambda: metrics.mean_average_precision(double, true),
        },
        "mAP float16": {
            "scikit-learn": lambda: ap_loop(s.astype(np.float16)),
            "ours": lambda: metrics.mean_average_precision(half, true),
        },
        "mAP of 8 models": {
            "scikit-learn": lambda: [ap_loop(m) for m in many.cpu().numpy()],
            "ours": lambda: metrics.mean_average_precision(many, true),
        },
        "micro AP": {
            "scikit-learn": lambda: sk.average_precision_score(y.ravel(), s.ravel()),
            "torchmetrics": lambda: tm.multilabel_average_precision(scores, labels, classes, average="micro"),
            "ours": lambda: metrics.mean_average_precision(scores, true, micro=True),
        },
        "macro F1": {
            "scikit-learn": lambda: sk.f1_score(y.astype(int), said, average="macro", zero_division=0),
            "torchmetrics": lambda: tm.multilabel_f1_score(probs, labels, classes),
            "ours": lambda: metrics.f1_score(probs, true),
        },
        "ranking loss": {
            "scikit-learn": lambda: sk.label_ranking_loss(y, s),
            "torchmetrics": lambda: tm.multilabel_ranking_loss(scores, labels, classes),
            "ours": lambda: metrics.ranking_loss(scores, true),
        },
        "Wasserstein": {
            "scipy": wasserstein_loop,
            "ours": lambda: metrics.wasserstein(probs, true, observed),
        },
        "calibration error": {
            "torchmetrics": lambda: tm.binary_calibration_error(probs.flatten(), labels.flatten()),
            "ours": lambda: metrics.calibration_error(probs, true),
        },
    }


def measure(contenders: dict[str, Work], rounds: int, device: str) -> dict[str, dict[str, float]]:
    """Milliseconds of every contender (best, median), its difference from the first, and our memory on a GPU."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    first = np.asarray(_numbers(next(iter(contenders.values()))()))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    out: dict[str, dict[str, float]] = {}
    for name, work in contenders.items():
        wait()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
        off = float(np.abs(np.asarray(_numbers(work())) - first).max())
        out[name] = {"off": off}
        if device == "cuda":
            out[name]["MiB"] = (torch.cuda.max_memory_allocated() - held) / 2**20
    for _ in range(rounds):
        for name, work in contenders.items():
            wait()
            start = time.perf_counter()
            work()
            wait()
            times[name].append(1e3 * (time.perf_counter() - start))
    for name, each in times.items():
        out[name] |= {"best": min(each), "median": statistics.median(each)}
    return out


def _numbers(value: object) -> object:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", nargs="*", default=["40137x80", "5823x20"], help="examples x classes")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of torch on the CPU; its own choice by default")
    parser.add_argument("--json", type=Path, help="write everything here too")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"torch {torch.__version__}, {where}, {load}, {options.rounds} rounds")
    print(
        f"{'metric':<18} {'size':>9} {'contender':<13} {'best ms':>9} {'median':>9} {'ours is':>8} {'off by':>8}  MiB"
    )
    results = []
    for size in options.size:
        rows, classes = map(int, size.split("x"))
        for metric, contenders in cases(rows, classes, options.device).items():
            if options.only.lower() not in metric.lower():
                continue
            found = measure(contenders, options.rounds, options.device)
            ours = found["ours"]
            for name, row in found.items():
                speed = "" if name == "ours" else f"{row['median'] / ours['median']:.1f}x"
                memory = f"{row['MiB']:.0f}" if "MiB" in row else ""
                print(
                    f"{metric:<18} {size:>9} {name:<13} {row['best']:>9.2f} {row['median']:>9.2f} {speed:>8} "
                    f"{row['off']:>8.0e}  {memory}",
                    flush=True,
                )
                results.append({"metric": metric, "size": size, "contender": name, **row})
    if options.json:
        about = {"torch": torch.__version__, "where": where, "load": load, "rounds": options.rounds}
        temporary = options.json.with_name(options.json.name + ".part")
        temporary.write_text(json.dumps({**about, "results": results}, indent=1))
        os.replace(temporary, options.json)


if __name__ == "__main__":
    main()
