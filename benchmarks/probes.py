"""Probes together against probes one by one, and the linear half of ROLE's Table 1.

    python benchmarks/probes.py                     # speed, ours against a plain loop (extrapolated from a few)
    python benchmarks/probes.py --role-table        # the table: ours beside the published column
    python benchmarks/probes.py --check             # on a GPU: graphs, streams and eager steps agree with the CPU

`--device cuda` on a machine with a GPU; `--data DIR` is the folder of labels.npz and features-resnet50-448.npz.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch

import onelabel
from onelabel.probes import fit_probes, grid
from onelabel.probes.role_table import (
    FURTHER,
    FeatureSplits,
    format_rows,
    label_sets,
    load_voc_features,
    role_rows,
    role_specs,
    run_role_table,
    write_rows,
)
from onelabel.probes.spec import ProbeSpec

HERE = Path(__file__).resolve().parents[1]


def one_by_one(data: FeatureSplits, spec: ProbeSpec, device: torch.device, steps: int) -> np.ndarray:
    """Seconds (wall, CPU) of one probe alone for all its epochs, extrapolated from `steps` steps and one evaluation.

    nn.Linear, torch.optim.Adam (its fastest form), our loss; rows indexed from tensors on the device, no DataLoader.
    """
    labels = label_sets(data)[spec.labels]
    X, observed = torch.from_numpy(data.train[0]).to(device), labels.rows(slice(None)).to(device)
    Xv, Yv = (torch.from_numpy(part).to(device) for part in data.validation)
    model = torch.nn.Linear(X.shape[1], observed.shape[1]).to(device)
    criterion = onelabel.method(spec.method, **spec.hyper)
    criterion.bind(labels)
    criterion.to(device).begin_epoch(1, spec.epochs)
    optimizers = [torch.optim.Adam(model.parameters(), lr=spec.lr, fused=True), *criterion.optimizers(spec.lr)]
    order = torch.randperm(len(X), device=device)

    def step(i: int) -> None:
        index = order[i * spec.batch_size : (i + 1) * spec.batch_size]
        for optimizer in optimizers:
            optimizer.zero_grad()
        criterion(model(X[index]), observed[index], index=index).backward()
        for optimizer in optimizers:
            optimizer.step()

    def clock() -> np.ndarray:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return np.array([time.perf_counter(), time.process_time()])

    def evaluate() -> None:
        with torch.no_grad():
            onelabel.metrics.mean_average_precision(model(Xv), Yv)

    per_epoch = math.ceil(len(X) / spec.batch_size)
    for i in range(10):
        step(i)
    evaluate()
    start = clock()
    for i in range(10, 10 + steps):
        step(i % (per_epoch - 1))
    middle = clock()
    evaluate()
    end = clock()
    return spec.epochs * ((middle - start) / steps * per_epoch + (end - middle))


def speed(data: FeatureSplits, args: argparse.Namespace, device: torch.device) -> None:
    specs = role_specs(epochs=args.epochs)
    kinds = {}
    for spec in specs:  # one of each method and batch size stands for its learning rates and seeds
        kinds.setdefault((spec.method, spec.batch_size), spec)
    alone = np.zeros(2)
    for (method, size), spec in kinds.items():
        count = sum(s.method == method and s.batch_size == size for s in specs)
        seconds = one_by_one(data, spec, device, args.steps)
        alone += count * seconds
        print(f"  one by one {method:8} batch {size:2}: {seconds[0]:7.1f} s a probe, {count} of them", flush=True)
    start = np.array([time.perf_counter(), time.process_time()])
    results, test = run_role_table(data, specs, device=device, graph=args.graph, streams=args.streams)
    ours = np.array([time.perf_counter(), time.process_time()]) - start
    print(format_rows(role_rows(results, test)))
    for name, theirs, mine in zip(("wall", "CPU"), alone, ours, strict=True):
        print(
            f"{len(specs)} probes, {name} seconds: one by one {theirs:.0f} (extrapolated), together {mine:.1f}: "
            f"{theirs / mine:.1f}×"
        )
    print(f"{machine(device)}; {args.epochs} epochs; load {os.getloadavg()[0]:.1f} at the end")


def table(data: FeatureSplits, args: argparse.Namespace, device: torch.device) -> None:
    further = list(FURTHER) if args.further else []
    specs = role_specs(further=further, epochs=args.epochs, seeds=range(args.seeds))
    cpu, start = time.process_time(), time.perf_counter()
    results, test = run_role_table(data, specs, device=device, graph=args.graph, streams=args.streams)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    rows = role_rows(results, test)
    print(format_rows(rows))
    write_rows(rows, args.out)
    print(f"{len(specs)} probes in {seconds:.1f} s ({cpu:.0f} CPU seconds) on {machine(device)}; written to {args.out}")


def check(data: FeatureSplits, device: torch.device) -> None:
    """A small grid of every kind of method: CPU, eager steps on the device, graphs, graphs with parallel losses."""
    names = ["an", "em", "gr", "epr", "role", "ll-r", "ll-ct", "ll-cp", "em-apl", "en", "splc", "l2r"]
    hyper = {name: {"warmup": 1} if name == "em-apl" else {} for name in names}
    specs = grid(hyper, lr=[1e-3, 1e-4], batch_size=[16], seeds=[0, 1], epochs=3)
    rows = np.arange(500)
    X, labels = data.train[0][rows], data.observed.take(rows)
    runs = {"cpu": {"device": "cpu"}}
    if device.type == "cuda":
        runs["eager"] = {"device": device, "graph": False}
        runs["graph"] = {"device": device, "streams": 1}
        runs["graph, 4 streams"] = {"device": device, "streams": 4}
    weights = {name: fit_probes(X, labels, specs, **how).weight for name, how in runs.items()}  # type: ignore[arg-type]
    for name, each in weights.items():
        gap = np.abs(each - weights["cpu"]).reshape(len(specs), -1).max(1)
        worst = int(gap.argmax())
        print(
            f"{name:18} largest difference from the CPU {gap.max():.1e} ({specs[worst]}), median {np.median(gap):.1e}"
        )


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{os.cpu_count()} CPU cores ({platform.machine()}), torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", "--features", default=HERE.parent / "shared" / "data" / "voc2012", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--role-table", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--further", action="store_true", help="also the appendix's and later methods")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--steps", type=int, default=200, help="steps timed of each probe run alone")
    parser.add_argument("--streams", type=int, default=4, help="losses abreast inside a CUDA graph")
    parser.add_argument("--no-graph", dest="graph", action="store_false", default=None)
    parser.add_argument("--out", type=Path, default=HERE / "docs" / "results" / "role-table-linear.csv")
    args = parser.parse_args()
    device = torch.device(args.device)
    data = load_voc_features(args.data)
    if args.check:
        check(data, device)
    elif args.role_table:
        table(data, args, device)
    else:
        speed(data, args, device)


if __name__ == "__main__":
    main()
