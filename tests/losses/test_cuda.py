"""On a GPU: the same numbers out to a hundred, no step that waits for the host, steps a CUDA graph can hold."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import onelabel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
NAMES = [n for n in onelabel.list_methods() if onelabel.method_info(n).cls.__module__.startswith("onelabel.losses")]
STACKED = {
    "asl-ps": {"margin": [0.0, 0.05], "gamma_negative": [0.5, 4.0]},
    "em": {"alpha": [0.1, 0.2]},
    "gr": {"q2": [0.0, 0.01], "w": [2.0, 10.0]},
    "lasd": {"tau": [0.9, 1.0], "alpha": [0.0, 0.7]},
    "splc": {"tau": [0.6, 0.9]},
}


def variants(name: str) -> list[dict[str, Any]]:
    both = "variant" in inspect.signature(onelabel.method_info(name).cls.__init__).parameters
    return [{"variant": v} for v in ("paper", "reference")] if both else [{}]


def make(name: str, device: str, **hyper: Any) -> Any:
    made = onelabel.method(name, **hyper).to(device)
    made.begin_epoch(2, 5)
    return made


def inputs(name: str, device: str, dtype: torch.dtype, lead: tuple[int, ...] = ()) -> tuple[Any, Any, dict[str, Any]]:
    g = torch.tensor([-100, -89, -60, -17, -5, -1e-3, 0, 0.4, 2.5, 17, 60, 89, 100]).to(device, dtype)
    logits = g.expand(*lead, 3, 13).clone().requires_grad_()
    observed = torch.tensor([[-1], [0], [1]], dtype=torch.int8, device=device).expand(3, 13).clone()
    call: dict[str, Any] = {}
    if name == "lasd":
        call["views"] = [logits.detach() * 0.5, -logits.detach()]
    if name in ("l1r", "l2r"):
        call["weights"] = [torch.ones(*lead, 3, device=device)]
    return logits, observed, call


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", [n for n in NAMES if n != "pseudo-negative"])
def test_same_as_on_a_cpu(name: str, dtype: torch.dtype) -> None:
    for variant in variants(name):
        got = []
        for device, kind in (("cuda", dtype), ("cpu", torch.float64)):
            logits, observed, call = inputs(name, device, dtype)
            logits = logits.detach().to(kind).requires_grad_()
            call = {k: [x.to(kind) for x in v] for k, v in call.items()}
            loss = make(name, device, **variant)(logits, observed, **call)
            loss.backward()
            got.append((loss.detach().cpu().double(), logits.grad.cpu().double()))
        torch.testing.assert_close(got[0][0], got[1][0], rtol=2e-6, atol=2e-6)
        digits = torch.finfo(dtype).eps
        scale = got[1][1].abs().max().item()
        torch.testing.assert_close(got[0][1], got[1][1], rtol=max(2 * digits, 2e-5), atol=max(1.2e-7, 2e-7 * scale))


@pytest.mark.parametrize("stack", [False, True], ids=["one", "stack"])
@pytest.mark.parametrize("name", NAMES)
def test_no_step_waits_for_the_host(name: str, stack: bool) -> None:
    for variant in variants(name):
        hyper = {**variant, **(STACKED.get(name, {"stack": 2}) if stack else {})}
        criterion = make(name, "cuda", **hyper)
        logits, observed, call = inputs(name, "cuda", torch.float32, (2,) if stack else ())
        upstream = torch.ones((2,) if stack else (), device="cuda")
        criterion(logits, observed, **call).backward(upstream)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            criterion(logits, observed, **call).backward(upstream)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", NAMES)
def test_a_captured_step_follows_its_schedule(name: str) -> None:
    criterion = make(name, "cuda")
    logits, observed, call = inputs(name, "cuda", torch.float32)

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        loss = criterion(logits, observed, **call)
        return loss, torch.autograd.grad(loss, logits)[0]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    criterion.begin_epoch(4, 5)
    graph.replay()
    if name != "pseudo-negative":
        for a, b in zip(captured, step(), strict=True):
            torch.testing.assert_close(a, b)
