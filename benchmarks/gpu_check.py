"""Whether what runs on a GPU is right: the checks that continuous integration, having none, cannot make.

    PYTHONPATH=src python3 benchmarks/gpu_check.py --device cuda --json out.json      # about a minute
    python benchmarks/gpu_check.py                                                    # the part a CPU can do

Fresh random inputs, float64 references, poisoned outputs; prints one table and exits 1 if a line of it says FAIL.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import _gpu_kernels as gpu
import torch
from torch import Tensor

import onelabel
from onelabel.contract import list_methods
from onelabel.losses import fused

Check = tuple[str, Callable[[], str]]


def arguments(name: str, n: int, classes: int) -> tuple[Any, dict[str, Any], Tensor]:
    """A method bound to random labels, with what it needs beside logits, and the batch's observed labels."""
    z = torch.zeros(n, classes, dtype=torch.int8)
    z[torch.arange(n), torch.randint(classes, (n,))] = 1
    z[torch.arange(n), torch.randint(classes, (n,))] -= 1
    labels = onelabel.Labels.from_matrix(z.clamp(-1, 1).numpy())
    criterion = onelabel.method(name, **gpu.SETTINGS.get(name, {})).to(gpu.DEVICE)
    criterion.bind(labels)
    features = torch.randn(n, 24, device=gpu.DEVICE)
    if hasattr(criterion, "bind_features"):
        criterion.bind_features(features)
    criterion.begin_epoch(2, 8)
    index, needs = torch.arange(32, device=gpu.DEVICE), criterion.needs
    more: dict[str, Any] = {"index": index} if needs.index else {}
    if needs.features:
        more["features"] = features[:32]
    if needs.weights:
        more["weights"] = [torch.randn(5, 7, device=gpu.DEVICE, requires_grad=True)]
    return criterion, more, labels.rows(slice(0, 32)).to(gpu.DEVICE)


def every_method(name: str) -> str:
    criterion, more, observed = arguments(name, 64, 40)
    layer = torch.nn.Linear(24, 40).to(gpu.DEVICE)
    inputs = torch.randn(32, 24, device=gpu.DEVICE)
    views = criterion.needs.views

    def step() -> Tensor:
        logits = layer(inputs)
        loss = criterion(logits, observed, views=[layer(inputs + i) for i in range(1, views)], **more)
        loss.backward()
        return loss.detach()

    done = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for _ in range(2):  # the first may compile
            layer.zero_grad()
            with torch.autocast(gpu.DEVICE, dtype=dtype, enabled=dtype != torch.float32):
                loss = step()
        assert loss.dtype == torch.float32 and torch.isfinite(loss), (dtype, loss)  # noqa: PT018
        assert layer.weight.grad is not None and torch.isfinite(layer.weight.grad).all()  # noqa: PT018
        done.append(str(dtype).rsplit(".", 1)[-1])
    if gpu.DEVICE == "cuda":
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        done.append("no sync")
    return ", ".join(done)


def updates(name: str) -> str:
    """A step with the method's own optimisers, and the updates between epochs, without waiting for the host."""
    hyper = {"warmup": 1} if name in ("em-apl", "en") else {}
    z = torch.zeros(500, 40, dtype=torch.int8)
    z[torch.arange(500), torch.randint(40, (500,))] = 1
    labels = onelabel.Labels.from_matrix(z.numpy())
    criterion = onelabel.method(name, **hyper).to(gpu.DEVICE).bind(labels)
    optimizers = criterion.optimizers(1e-3)
    index = torch.randint(500, (64,), device=gpu.DEVICE)  # some twice
    observed = z.to(gpu.DEVICE)[index]
    scores = torch.rand(500, 40, device=gpu.DEVICE)
    more = {"index": index} if criterion.needs.index else {}

    def epoch(number: int) -> None:
        criterion.begin_epoch(number, 4)
        logits = torch.randn(64, 40, device=gpu.DEVICE, requires_grad=True)
        criterion(logits, observed, **more).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        criterion.end_epoch((lambda: scores) if criterion.needs.scores else None)

    for number in range(2):  # optimisers make their state
        epoch(number)
    if gpu.DEVICE == "cuda":
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
    try:
        epoch(2)
    finally:
        if gpu.DEVICE == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    return "a step and the updates of an epoch"


def compiled(name: str, backend: str) -> str:
    criterion, more, observed = arguments(name, 64, 40)
    logits = torch.randn(32, 40, device=gpu.DEVICE)
    views = [logits + i for i in range(1, criterion.needs.views)]
    criterion.eval()
    want, got = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    with fused.using("off"):
        first = criterion(want, observed, views=views, **more)
        first.backward()
    second = torch.compile(criterion, backend=backend)(got, observed, views=views, **more)
    second.backward()
    assert want.grad is not None and got.grad is not None  # noqa: PT018
    gpu.near("loss", second, first.double(), 1e-5)
    gpu.near("gradient", got.grad, want.grad.double(), 1e-5)
    return backend


def chunked(name: str) -> str:
    from onelabel.losses.chunked import chunked_loss

    rows, classes, width = 48, 5000, 32
    hyper: dict[str, Any] = {"estimator": "factorised", "rank": 4} if name == "role" else {}
    z = torch.zeros(rows, classes, dtype=torch.int8)
    z[torch.arange(rows), torch.randint(classes, (rows,))] = 1
    criterion = onelabel.method(name, **hyper).to(gpu.DEVICE).bind(onelabel.Labels.from_matrix(z.numpy()))
    criterion.begin_epoch(3, 8)
    more = {"index": torch.arange(rows, device=gpu.DEVICE)} if criterion.needs.index else {}
    z = z.to(gpu.DEVICE)
    sparse = z.to_sparse_coo().coalesce()
    shapes = ((rows, width), (classes, width), (classes,))
    x, w, b = ((torch.randn(shape, device=gpu.DEVICE) / 4).requires_grad_() for shape in shapes)
    double = [t.detach().double().requires_grad_() for t in (x, w, b)]
    with fused.using("off"):
        want = criterion(double[0] @ double[1].T + double[2], z, **more)
    slopes = torch.autograd.grad(want, double)
    errors = []
    for half in (False, True):
        with torch.autocast(gpu.DEVICE, dtype=torch.bfloat16, enabled=half):
            loss = chunked_loss(x, w, b, sparse, criterion, chunk=1234, **more)
        got = torch.autograd.grad(2 * loss, (x, w, b))
        gpu.near(f"{name} loss", loss, want, 2e-2 if half else 1e-5)
        limit = 5e-2 if half else 1e-4
        errors += [gpu.near(f"{name} gradient", g / 2, s, limit) for g, s in zip(got, slopes, strict=True)]
    if gpu.DEVICE == "cuda":
        from onelabel.losses.observed import Observed

        entries = Observed(*sparse.indices(), sparse.values(), (rows, classes))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            chunked_loss(x, w, b, entries, criterion, chunk=1234, **more).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return f"gradients within {max(errors):.0e} (bfloat16)"


def streaming() -> str:
    from onelabel.metrics import average_precision
    from onelabel.metrics.streaming import StreamingAveragePrecision

    scores, true = torch.randn(20_000, 50, device=gpu.DEVICE), torch.rand(20_000, 50, device=gpu.DEVICE) < 0.05
    got = StreamingAveragePrecision(50, range=(-6, 6), device=gpu.DEVICE).update(scores, true).compute()
    exact = average_precision(scores.cpu().double(), true.cpu()).to(gpu.DEVICE)
    assert ((got.lower <= exact) & (exact <= got.upper)).all()
    gpu.near("exact", average_precision(scores, true), exact, 1e-9)
    return f"stated error {got.error.max().item():.1e}"


def checks(quick: bool) -> Iterator[Check]:
    for name in gpu.forms():
        yield f"fused {name}", lambda n=name: gpu.against_reference(n, {})
    for name, hyper in gpu.STACKS.items():
        yield f"fused stack of {name}", lambda n=name, h=hyper: gpu.against_reference(n, h)
    yield "inputs", gpu.odd_inputs
    yield "repeatable", gpu.repeatable
    if gpu.DEVICE == "cuda":
        yield "kernels at 16×80", gpu.kernels
        yield "CUDA graph", gpu.captured
        if not quick:
            yield "beyond 2³¹ entries", gpu.beyond_int32
    for name in ("an", "em", "asl-ps", "las", "gr", "pr", "epr", "role"):
        yield f"chunked {name}", lambda n=name: chunked(n)
    yield "streaming AP", streaming
    for name in list_methods():
        if name != "bce":  # refuses such labels
            yield f"method {name}", lambda n=name: every_method(n)
    for name in ("em-apl", "en", "ll-r", "ll-ct", "ll-cp", "role"):
        yield f"updates of {name}", lambda n=name: updates(n)
    for name in ("an", "gr", "epr", "role") if gpu.DEVICE == "cuda" else ():
        yield f"compiled {name}", lambda n=name: compiled(n, "inductor")
    for name in () if quick else ("em", "splc", "asl-ps", "em-apl", "ll-ct", "en", "pr"):
        yield f"compiled {name}", lambda n=name: compiled(n, "aot_eager")


def run(name: str, device: str) -> dict[str, Any]:
    gpu.DEVICE = device
    torch.manual_seed(time.time_ns() % 2**31)
    torch.set_num_threads(1)
    check = dict(checks(False))[name]
    start = time.perf_counter()
    try:
        verdict, detail = "PASS", check()
    except Exception as error:
        verdict, detail = "FAIL", f"{type(error).__name__}: {error}".splitlines()[0][:200]
        traceback.print_exc(limit=-3)
    return {"check": name, "verdict": verdict, "detail": detail, "s": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="without the huge tensor and torch.compile in eager mode")
    parser.add_argument("--only", default="", help="checks whose name contains this")
    parser.add_argument("--jobs", type=int, default=8 if (os.cpu_count() or 1) > 8 else 1)
    parser.add_argument("--json")
    args = parser.parse_args()
    gpu.DEVICE = args.device
    names = [name for name, _ in checks(args.quick) if args.only in name]
    results = []
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:  # compiling takes most of the time
        for result in pool.map(run, names, [args.device] * len(names)):
            results.append(result)
            print("{verdict}  {check:28s} {s:6.1f} s  {detail}".format(**result), flush=True)
    failed = sum(r["verdict"] == "FAIL" for r in results)
    print(f"{len(results) - failed} of {len(results)} passed")
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
