"""Everything about speed that wants a GPU, in one go of some two minutes: checks, losses, head, mAP.

    PYTHONPATH=src python3 benchmarks/gpu_speed.py --out $OUT [--tune]

Writes gpu_check, captured, host, tune, chunked, streaming and fused.json into the folder, each as soon as it is
measured; `run_all.py --results FOLDER` makes the table of them and compares it with the baseline.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fused as benchmark
import torch
from _timing import copy_bandwidth, machine, milliseconds, replayed, row, write
from torch import Tensor

from onelabel.kernels import tiled
from onelabel.losses.forms import form_of

STAGES = ("check", "captured", "host", "chunked", "streaming", "fused")
HERE = Path(__file__).resolve().parent
SIZE = (4096, 20000)
#: block, warps, tiles a program, most registers a thread (0: as many as it likes)
SWEEP = (
    *((512, 1, 8, 0), (512, 1, 16, 0), (512, 1, 16, 64), (1024, 1, 8, 0), (512, 2, 8, 0), (1024, 2, 4, 0)),
    *((1024, 2, 8, 0), (1024, 2, 16, 0), (1024, 2, 8, 64), (1024, 4, 8, 0), (2048, 4, 4, 0), (2048, 4, 4, 64)),
)
TUNED = ("an", "gr", "splc", "asl-ps")
FULL_SWEEP = ((512, 2, 8, 0), (1024, 2, 4, 0), (1024, 4, 4, 0), (1024, 4, 4, 64), (1024, 8, 4, 0), (2048, 8, 4, 0))
FULL_TUNED = ("an", "gr", "splc")
#: What the captured table is measured with beside the present choice.
OTHERS = ((512, 1, 16), (512, 1, 8))


def kernel(name: str, logits: Tensor, observed: Tensor, out: Tensor, choice: Any = None) -> Any:
    form = form_of(benchmark.made(name).cuda(), logits, observed)
    assert form is not None
    options = {"choice": choice[:3], "registers": choice[3]} if choice else {}
    pending = tiled.Pending(out, 1)
    return lambda: tiled.evaluate(logits, observed, form, out=out, pending=pending, **options)


def others(bandwidth: float) -> list[dict[str, Any]]:
    own, table = tiled.SKIMMED, []
    for choice in OTHERS:
        tiled.SKIMMED = choice
        table += captured(bandwidth, "block {} warps {} turns {}".format(*choice))
    tiled.SKIMMED = own
    return table


def compile_only(task: tuple[str, str, Any]) -> None:
    """Leave a kernel in Triton's cache on disk."""
    name, dtype, choice = task
    classes = 80 if choice in FULL_SWEEP else SIZE[1]
    logits, observed = benchmark.problem(SIZE[0] * SIZE[1] // classes, classes, "cuda", benchmark.DTYPES[dtype])
    if choice is not None and len(choice) == 4:
        kernel(name, logits.detach(), observed, torch.empty_like(logits), choice)()
    else:
        tiled.SKIMMED = choice or tiled.SKIMMED
        benchmark.step(benchmark.made(name).cuda(), logits, observed)()
    torch.cuda.synchronize()


def in_graph(work: Any) -> float:
    return milliseconds(replayed(work), "cuda", budget=0.03, at_least=20)


def captured(bandwidth: float, what: str = "graph") -> list[dict[str, Any]]:
    """Forward and backward as a graph: one observed positive a row, and positives everywhere."""
    table = []
    for dtype in benchmark.DTYPES:
        logits, observed = benchmark.problem(*SIZE, "cuda", benchmark.DTYPES[dtype])
        dense = (torch.rand(SIZE, device="cuda") < 0.01).to(torch.int8)
        limit = observed.numel() * (2 * logits.element_size() + 1) / bandwidth * 1e3
        for name in benchmark.METHODS:
            criterion = benchmark.made(name).cuda()
            ms = in_graph(benchmark.step(criterion, logits, observed))
            table.append(row(f"{name} {dtype}, {what}", ms, limit_ms=limit))
            ms = in_graph(benchmark.step(criterion, logits, dense))
            table.append(row(f"{name} {dtype}, labels in every tile, {what}", ms, limit_ms=limit))
        if what != "graph":
            continue
        few = torch.randn(SIZE[0] * 250, 80, device="cuda").to(benchmark.DTYPES[dtype]).requires_grad_()
        labels = torch.zeros(few.shape, dtype=torch.int8, device="cuda").scatter_(
            1, torch.randint(80, (len(few), 1), device="cuda"), 1
        )
        for name in ("an", "gr", "splc") if dtype != "float16" else ():
            ms = in_graph(benchmark.step(benchmark.made(name).cuda(), few, labels))
            table.append(row(f"{name} {dtype}, L = 80, graph", ms, limit_ms=limit))
    return table


def host() -> list[dict[str, Any]]:
    """What a call costs the host, at 16×80: forward and backward queued without waiting, and replayed."""
    from torch.nn.functional import binary_cross_entropy_with_logits as bce

    logits, observed = benchmark.problem(16, 80, "cuda", torch.float32)
    target = (observed > 0).float()

    def queued(work: Any) -> float:
        for _ in range(20):
            work()
        torch.cuda.synchronize()
        times = []
        for _ in range(200):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        torch.cuda.synchronize()
        return sorted(times)[100] * 1e3

    table = []
    peer = queued(benchmark.step(lambda g, z: bce(g, target), logits, observed))
    for name in benchmark.METHODS:
        criterion = benchmark.made(name).cuda()
        ms = queued(benchmark.step(criterion, logits, observed))
        with torch.no_grad():
            forward = queued(lambda c=criterion: c(logits, observed))
        eager = queued(benchmark.moded("off", criterion, logits, observed))
        again = in_graph(benchmark.step(criterion, logits, observed))
        table.append(row(f"{name} 16×80, host", ms, peers={"eager": eager, "bce": peer}))
        table.append(row(f"{name} 16×80, host, loss alone", forward))
        table.append(row(f"{name} 16×80, graph", again))
    return table


def tune(bandwidth: float) -> list[dict[str, Any]]:
    """The forward kernel alone: few observed labels, and some in every tile (80 classes)."""
    table = []
    for dtype in ("float32", "bfloat16"):
        for classes, sweep, names in ((SIZE[1], SWEEP, TUNED), (80, FULL_SWEEP, FULL_TUNED)):
            logits, observed = benchmark.problem(SIZE[0] * SIZE[1] // classes, classes, "cuda", benchmark.DTYPES[dtype])
            logits = logits.detach()
            out = torch.empty_like(logits)
            limit = observed.numel() * (2 * logits.element_size() + 1) / bandwidth * 1e3
            for name, choice in ((n, c) for n in names for c in sweep):
                try:
                    ms = in_graph(kernel(name, logits, observed, out, choice))
                except Exception as error:
                    print(name, dtype, choice, f"{type(error).__name__}: {error}"[:200], flush=True)
                    continue
                what = "L {} block {} warps {} turns {} registers {}".format(classes, *choice)
                table.append({"choice": choice, **row(f"{name} {dtype} {what}", ms, limit_ms=limit)})
    return table


def script(name: str, path: Path, seconds: float, *more: str) -> None:
    command = [sys.executable, str(HERE / name), "--device", "cuda", "--json", str(path), *more]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)])}
    started = time.perf_counter()
    try:
        done = subprocess.run(command, env=environment, timeout=seconds, check=False)
        print(f"== {name}: exit code {done.returncode}, {time.perf_counter() - started:.0f} s", flush=True)
    except subprocess.TimeoutExpired:
        print(f"== {name}: stopped after {seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=STAGES)
    parser.add_argument("--tune", action="store_true", help="also over block sizes (more compiling)")
    args = parser.parse_args()
    args.only = [*args.only, "others", "tune"] if args.tune else args.only
    args.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    if "check" in args.only:
        script("gpu_check.py", args.out / "gpu_check.json", 120, "--jobs", "14")
    tasks: list[tuple[str, str, Any]] = []
    if "captured" in args.only:
        tasks += [(name, dtype, None) for name in benchmark.METHODS for dtype in benchmark.DTYPES]
    if "others" in args.only:
        tasks += [(n, d, choice) for n in benchmark.METHODS for d in benchmark.DTYPES for choice in OTHERS]
    if "tune" in args.only:
        tasks += [(n, d, choice) for n in TUNED for d in ("float32", "bfloat16") for choice in SWEEP]
        tasks += [(n, d, choice) for n in FULL_TUNED for d in ("float32", "bfloat16") for choice in FULL_SWEEP]
    if tasks:
        with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
            for task, failure in zip(tasks, [pool.submit(compile_only, t) for t in tasks], strict=True):
                if failure.exception() is not None:
                    print("compiling", task, f"{failure.exception()}"[:300], flush=True)
        print(f"== compiled, {time.perf_counter() - started:.0f} s", flush=True)
    bandwidth = copy_bandwidth("cuda")
    print(machine("cuda"), f"copy {bandwidth / 1e12:.2f} TB/s", flush=True)
    stages = {
        "captured": lambda: captured(bandwidth),
        "host": host,
        "others": lambda: others(bandwidth),
        "tune": lambda: tune(bandwidth),
    }
    for name, stage in stages.items():
        if name in args.only:
            write(str(args.out / f"{name}.json"), name, "cuda", stage(), copy_bandwidth=bandwidth)
            torch.cuda.empty_cache()
            print(f"== {name}, {time.perf_counter() - started:.0f} s", flush=True)
    for name in ("chunked", "streaming", "fused"):
        if name in args.only:
            script(f"{name}.py", args.out / f"{name}.json", 60)
    print(f"== all, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
