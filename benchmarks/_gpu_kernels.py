"""The checks of gpu_check that are about the fused kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import onelabel
from onelabel.contract import list_methods
from onelabel.losses import fused
from onelabel.losses.forms import form_of

#: Set by gpu_check.
DEVICE = "cpu"
SETTINGS: dict[str, dict[str, Any]] = {"smile": {"feature_dim": 24}, "mime": {"bottleneck": False}}
STACKS: dict[str, dict[str, list[float]]] = {
    "wan": {"gamma": [0.1, 0.5, 1.0]},
    "an-ls": {"unknown_smoothing": [0.0, 0.1, 0.3]},
    "em": {"alpha": [0.1, 0.2, 0.9]},
    "asl-ps": {"margin": [0.0, 0.05, 0.2], "gamma_negative": [1.0, 2.0, 4.0]},
    "splc": {"tau": [0.5, 0.6, 0.9]},
    "gr": {"w": [2.0, 10.0, 5.0], "q3": [1.0, 1.5, 0.0]},
}
# Few, because every combination of method, dtype and divisibility is compiled.
SIZES = {
    torch.float32: ((16, 80), (33, 4097), (7, 13)),
    torch.bfloat16: ((33, 4097),),
    torch.float16: ((16, 80), (33, 4097)),
}


def made(name: str, **hyper: Any) -> Any:
    if name in ("las", "lasd"):
        hyper["expected_positives"] = 0.5
    if name == "lasd":
        hyper["alpha"] = 0.0
    criterion = onelabel.method(name, **hyper).to(DEVICE)
    criterion.begin_epoch(3, 8)
    return criterion


def batch(*shape: int, dtype: torch.dtype, scale: float = 4.0, share: float = 1.0) -> tuple[Tensor, Tensor]:
    """Logits, and labels of which a `share` is drawn from {−1, 0, 1} and the rest unknown."""
    logits = (torch.randn(shape, device=DEVICE) * scale).clamp(-100, 100).to(dtype)
    observed = torch.randint(-1, 2, shape[-2:], device=DEVICE, dtype=torch.int8)
    return logits, observed * (torch.rand(shape[-2:], device=DEVICE) < share)


def reference(criterion: Any, logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    exact = logits.detach().double().requires_grad_()
    with fused.using("off"):
        loss = criterion(exact, observed)
    loss.sum().backward()
    assert exact.grad is not None
    return loss.detach(), exact.grad


def near(name: str, got: Tensor, want: Tensor, tolerance: float) -> float:
    error = ((got.double() - want).norm() / want.norm().clamp(min=1e-300)).item()
    if not error <= tolerance:
        raise AssertionError(f"{name}: relative error {error:.1e}, allowed {tolerance:.0e}")
    return error


def tolerance(dtype: torch.dtype) -> float:
    return {torch.float32: 3e-6, torch.bfloat16: 4e-3, torch.float16: 6e-4, torch.float64: 1e-9}[dtype]


def against_reference(name: str, hyper: dict[str, Any]) -> str:
    worst = 0.0
    for variant in ("paper", "reference"):
        try:
            criterion = made(name, variant=variant, **hyper)
        except TypeError:
            if variant == "reference":
                continue
            criterion = made(name, **hyper)
        for dtype, sizes in SIZES.items():
            # Observed labels everywhere, and so few that most tiles have none.
            for size, share in ((s, share) for s in sizes for share in ((1.0, 3e-4) if s[1] > 4000 else (1.0,))):
                worst = max(worst, one(criterion, size, dtype, share, 1.0 if name != "an" else 30.0))
    return f"gradients within {worst:.0e}"


def one(criterion: Any, size: tuple[int, int], dtype: torch.dtype, share: float, scale: float) -> float:
    what = f"{criterion.name} {dtype} {size} {share}"
    shape = size if criterion.stack is None else (criterion.stack, *size)
    logits, observed = batch(*shape, dtype=dtype, scale=scale, share=share)
    want, slope = reference(criterion, logits, observed)
    form = form_of(criterion, logits, observed)
    assert form is not None, "no form"
    out = torch.full_like(logits, float("nan"))
    loss, grad = fused.engine(logits).evaluate(logits, observed, form, out=out, scale=1.0)
    factor = form.scale(*size)
    near(f"{what} loss", loss * factor, want, 3e-6)
    error = near(f"{what} gradient", grad.double() * factor, slope, tolerance(dtype))
    unit = 2.0 ** round(math.log2(factor**-1))  # float16 would lose the gradient of a mean
    for upstream in (unit, unit, unit / 2):  # guessed wrong, right, and wrong again
        live = logits.clone().requires_grad_()
        with fused.using("on"):
            (criterion(live, observed).sum() * upstream).backward()
        assert live.grad is not None and live.grad.dtype == dtype  # noqa: PT018
        near(f"{what} backward", live.grad.double() / upstream, slope, 2 * tolerance(dtype))
    return error


def odd_inputs() -> str:
    criterion = made("em")
    wide, observed = batch(64, 200, dtype=torch.float32)
    logits, observed = wide[:, ::2], observed[:, ::2]
    want, slope = reference(criterion, logits, observed)
    live = logits.clone().requires_grad_()
    with fused.using("on"):
        loss = criterion(live.T.contiguous().T, observed)
    loss.backward(retain_graph=True)
    assert live.grad is not None
    near("strided loss", loss, want, 3e-6)
    near("strided gradient", live.grad, slope, 3e-6)
    loss.backward()
    near("second backward on a retained graph", live.grad, 2 * slope, 3e-6)
    with torch.no_grad(), fused.using("on"):
        near("without gradient", criterion(live, observed.float()), want, 3e-6)
    return "strided, float labels, retained graph, no_grad"


def repeatable() -> str:
    logits, observed = batch(512, 5000, dtype=torch.float32)
    criterion = made("gr")
    seen = set()
    for _ in range(3):
        live = logits.clone().requires_grad_()
        with fused.using("on"):
            loss = criterion(live, observed)
        loss.backward()
        assert live.grad is not None
        seen.add((loss.item(), live.grad.double().sum().item()))
    assert len(seen) == 1, seen
    return "three runs, the same bits"


def beyond_int32() -> str:
    from onelabel.kernels import tiled

    rows, classes = 524_289, 4099  # 2.149e9 entries, an odd number
    logits = torch.empty(rows, classes, dtype=torch.bfloat16, device=DEVICE).normal_()
    observed = torch.randint(-1, 2, (rows, classes), dtype=torch.int8, device=DEVICE)
    criterion = made("an")
    out = torch.full_like(logits, float("nan"))
    form = form_of(criterion, logits, observed)
    assert form is not None
    loss, _ = tiled.evaluate(logits, observed, form, out=out, scale=1.0)
    total, parts = 0.0, 2048
    for i in range(0, rows, rows // parts + 1):
        some = slice(i, i + rows // parts + 1)
        value, slope = reference(criterion, logits[some].contiguous(), observed[some].contiguous())
        total += value.item() * slope.numel()
        near(f"rows from {i}", out[some].double(), slope * slope.numel(), 4e-3)
        if i // (rows // parts + 1) % 256 == 0:
            torch.cuda.empty_cache()
    assert loss is not None
    near("sum", loss, torch.tensor(total, device=DEVICE).double(), 1e-5)
    return f"{rows * classes:,} entries"


def step_of(criterion: Any, logits: Tensor, observed: Tensor) -> Callable[[], Tensor]:
    def step() -> Tensor:
        logits.grad = None
        loss = criterion(logits, observed)
        loss.backward()
        return loss

    return step


def captured() -> str:
    for name in ("an", "em", "splc", "gr"):
        criterion = made(name)
        logits, observed = batch(16, 80, dtype=torch.float32)
        live = logits.requires_grad_()
        step = step_of(criterion, live, observed)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        live.grad = None
        with torch.cuda.graph(graph):
            loss = criterion(live, observed)
            loss.backward()
        for epoch in (0, 7):
            criterion.begin_epoch(epoch, 8)
            fresh, labels = batch(16, 80, dtype=torch.float32)
            with torch.no_grad():
                live.copy_(fresh)
                observed.copy_(labels)
            graph.replay()
            want, slope = reference(criterion, fresh, labels)
            assert live.grad is not None
            near(f"{name} replayed loss", loss, want, 3e-6)
            near(f"{name} replayed gradient", live.grad, slope, 3e-6)
    return "replays follow new inputs and new epochs"


def kernels() -> str:
    from torch.profiler import ProfilerActivity, profile

    counts = {}
    for name in forms():
        criterion = made(name)
        logits, observed = batch(16, 80, dtype=torch.float32)
        step = step_of(criterion, logits.requires_grad_(), observed)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            step()
            torch.cuda.synchronize()
        events = [e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA and "Sync" not in e.name]
        counts[name] = len(events)
        assert len(events) <= 3, f"{name}: {[e.name for e in events]}"
    return f"{min(counts.values())}–{max(counts.values())} kernels a step"


def forms() -> list[str]:
    logits, observed = batch(2, 5, dtype=torch.float32)
    elementwise = [n for n in list_methods() if n not in SETTINGS and hasattr(made_quietly(n), "entries")]
    return [n for n in elementwise if form_of(made(n), logits, observed) is not None]


def made_quietly(name: str) -> Any:
    return onelabel.method(name, **SETTINGS.get(name, {}))
