"""On a GPU: the same numbers, no step that waits for the host, and steps that can be captured in a CUDA graph."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def test_same_as_on_a_cpu(case: str, kit: Any) -> None:
    noise = case not in ("mime", "smile")
    runs = [kit.Run(kit.stacked(case), seed=[0, 1, 2], noise=noise, device=d).until() for d in ("cpu", "cuda")]
    tolerance = 0.02 if "bfloat16" in case else 1e-3
    for cpu, gpu in zip(runs[0].losses, runs[1].losses, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("stack", [False, True])
def test_no_step_waits_for_the_host(case: str, stack: bool, kit: Any) -> None:
    make = {"seed": [0, 1, 2], "device": "cuda"} if stack else {"device": "cuda"}
    run = kit.Run(kit.stacked(case) if stack else kit.single(case), **make).until(9)
    index = run.batch(1, 4)
    x, observed, scores = run.features[index], run.observed[index], run.score()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run.criterion(run.logits(x), observed, index=index, features=x).sum().backward()
        for optimizer in run.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        scored = case.startswith("mime") and stack  # which tells the device once an epoch who is past the warm-up
        if not scored and not case.startswith("em-apl"):
            run.criterion.end_epoch(lambda: scores)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", ["role", "role-bfloat16", "role-factorised", "ll-r", "ll-cp", "em-apl", "en", "smile"])
@pytest.mark.parametrize("stack", [False, True])
def test_a_captured_step_does_what_it_does_plainly(name: str, stack: bool, kit: Any) -> None:
    make = {"seed": [0, 1, 2], "device": "cuda"} if stack else {"device": "cuda"}
    if name == "smile":
        make["noise"] = False
    run, other = (kit.Run(kit.stacked(name) if stack else kit.single(name), **make).until(5) for _ in range(2))
    for one in (run, other):
        one.criterion.begin_epoch(1, 3)
    logits = run.logits(run.features[run.batch(1, 0)]).detach().clone().requires_grad_()
    index, observed = run.batch(1, 0).clone(), run.observed[run.batch(1, 0)].clone()
    x = run.features[index].clone()

    def step(r: Any) -> torch.Tensor:
        loss = r.criterion(logits, observed, index=index, features=x)
        loss.sum().backward()
        for optimizer in r.optimizers[1:]:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    start = [copy.deepcopy(run.criterion.state_dict()), *(copy.deepcopy(o.state_dict()) for o in run.optimizers[1:])]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(run)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(run)
    # back to the start, in place: the graph knows the tensors by their addresses
    run.criterion.load_state_dict(start[0])
    for optimizer, saved in zip(run.optimizers[1:], start[1:], strict=True):
        for p, old in zip(optimizer.state.values(), saved["state"].values(), strict=True):
            for key, value in old.items():
                p[key].copy_(value)
    for i in range(3):
        at = run.batch(1, i)
        index.copy_(at)
        observed.copy_(run.observed[at])
        x.copy_(run.features[at])
        with torch.no_grad():
            logits.copy_(run.logits(run.features[at]))
        logits.grad = None
        plain = step(other)
        graph.replay()
        torch.testing.assert_close(captured, plain, rtol=1e-4, atol=1e-5)
    for (key, a), b in zip(run.criterion.state_dict().items(), other.criterion.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=lambda s, key=key: f"{key}: {s}")


def test_rows_outside_the_batch_are_not_touched_at_any_size() -> None:
    import onelabel
    from onelabel import Labels

    labels = Labels.from_classes(torch.arange(100_000) % 80, num_classes=80)
    criterion = onelabel.method("role", expected_positives=2.9).to("cuda").bind(labels)
    (optimizer,) = criterion.optimizers(1e-3)
    index = torch.randperm(100_000)[:16].cuda()
    observed = labels.rows(index.cpu(), device="cuda")
    logits = torch.randn(16, 80, device="cuda", requires_grad=True)
    for _ in range(2):
        criterion(logits, observed, index=index).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    criterion(logits, observed, index=index).backward()
    optimizer.step()
    optimizer.zero_grad()
    assert torch.cuda.max_memory_allocated() - before < 2**20  # the table alone is 32 MB
