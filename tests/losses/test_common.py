"""What every method without memory must do, whatever its formula."""

from __future__ import annotations

import copy
import inspect
import shutil
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

import onelabel
from onelabel import contract
from onelabel.methods import check_method

#: name → settings in common, settings of three models in a stack
CASES: dict[str, tuple[dict[str, Any], dict[str, list[float]]]] = {
    "bce": ({}, {"smoothing": [0.0, 0.1, 0.3]}),
    "bce-ls": ({}, {"smoothing": [0.0, 0.1, 0.3]}),
    "iu": ({"normalise": "observed"}, {}),
    "iun": ({}, {}),
    "an": ({}, {}),
    "an-ls": ({}, {"positive_smoothing": [0.0, 0.1, 0.3], "unknown_smoothing": [0.2, 0.0, 0.1]}),
    "n-ls": ({}, {"unknown_smoothing": [0.0, 0.1, 0.3]}),
    "wan": ({}, {"gamma": [0.0, 0.1, 1.0]}),
    "dw": ({}, {"gamma": [0.02, 0.1, 0.9]}),
    "pseudo-negative": ({}, {}),
    "focal": ({}, {"alpha": [0.25, 0.5, 0.75], "gamma": [0.0, 0.5, 2.0]}),
    "fan": ({}, {"gamma": [0.0, 0.5, 2.0]}),
    "asl": ({}, {"gamma_positive": [0.0, 0.5, 1.0], "gamma_negative": [0.0, 0.3, 4.0], "margin": [0.0, 0.05, 0.2]}),
    "asl-ps": ({"detach_focus": True}, {"gamma_negative": [0.0, 0.3, 4.0], "margin": [0.0, 0.05, 0.2]}),
    "hill": ({}, {"lam": [1.0, 1.5, 2.0], "margin": [0.0, 1.0, 2.0], "gamma": [0.0, 0.5, 2.0]}),
    "splc": ({}, {"tau": [0.3, 0.6, 0.9], "margin": [0.0, 1.0, 2.0], "gamma": [0.0, 0.5, 2.0]}),
    "entmin": ({}, {"alpha": [0.0, 0.1, 0.9]}),
    "em": ({}, {"alpha": [0.0, 0.1, 0.9]}),
    "roll-call": ({}, {"alpha": [0.0, 0.1, 0.9], "gamma": [0.0, 0.3, 1.0]}),
    "gr": (
        {},
        {
            "q1": [0.0, 0.01, 1.0],
            "q2": [0.0, 0.01, 1.0],
            "q3": [1.0, 0.0, 1.5],
            "w": [2.0, 10.0, -1.0],
            "b": [-2.0, -8.0, 0.0],
            "mu": [0.8, 0.5, 1.0],
            "sigma": [0.1, 0.5, 2.0],
        },
    ),
    "las": ({}, {"expected_positives": [1.1, 1.5, 2.9], "gamma_positive": [0.0, 0.5, 1.0]}),
    "lasd": (
        {},
        {
            "expected_positives": [1.1, 1.5, 2.9],
            "lam_positive": [0.0, 0.1, 1.0],
            "tau": [0.5, 0.9, 1.0],
            "alpha": [0.0, 0.1, 0.7],
            "gamma_positive": [0.0, 0.5, 1.0],
            "gamma_negative": [0.0, 0.5, 4.0],
        },
    ),
    "pr": ({}, {}),
    "epr": ({}, {"expected_positives": [0.5, 1.5, 3.0], "lam": [0.0, 1.0, 2.0]}),
    "l1r": ({}, {"strength": [0.0, 0.1, 1.0]}),
    "l2r": ({}, {"strength": [0.0, 0.1, 1.0]}),
}
every = pytest.mark.parametrize("name", list(CASES))
B, L, M = 5, 6, 3


def variants(name: str) -> list[dict[str, str]]:
    both = "variant" in inspect.signature(onelabel.method_info(name).cls.__init__).parameters
    return [{"variant": v} for v in ("paper", "reference")] if both else [{}]


def make(name: str, **hyper: Any) -> contract.Method:
    """A method in the middle of its schedule."""
    made = onelabel.method(name, **{**CASES[name][0], **hyper})
    made.begin_epoch(2, 5)
    return made


def inputs(name: str, stack: bool = False, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, dict[str, Any]]:
    rng = torch.Generator().manual_seed(5)
    lead = (M,) if stack else ()
    logits = (torch.randn(*lead, B, L, generator=rng) * 3).to(dtype)
    observed = torch.randint(-1, 2, (B, L), generator=rng, dtype=torch.int8)
    observed[0], observed[1] = 0, torch.tensor([1, -1, 1, 1, -1, -1])  # nothing known, everything known
    call: dict[str, Any] = {}
    if name in ("l1r", "l2r"):
        call["weights"] = [
            torch.randn(*lead, 3, 2, generator=rng).to(dtype),
            torch.randn(*lead, 2, generator=rng).to(dtype),
        ]
    if name == "lasd":
        call["views"] = [(torch.randn(*lead, B, L, generator=rng) * 3).to(dtype) for _ in range(2)]
    return logits.requires_grad_(), observed, call


def run(criterion: Any, logits: Tensor, observed: Tensor, call: dict[str, Any]) -> tuple[Tensor, Tensor]:
    torch.manual_seed(6)
    loss = criterion(logits, observed, **call)
    return loss.detach(), torch.autograd.grad(loss.sum(), logits)[0]


def test_every_method_without_memory_is_here() -> None:
    memoryless = {
        n for n in onelabel.list_methods() if onelabel.method_info(n).cls.__module__.startswith("onelabel.losses")
    }
    assert memoryless == set(CASES)


@every
def test_gradcheck(name: str) -> None:
    """Differences in float64, entry by entry; where p is held still inside the loss (GR) they would move it."""
    if name in ("gr", "pseudo-negative") or CASES[name][0].get("detach_focus"):
        pytest.skip("not the derivative of its value, by design")
    logits, observed, call = inputs(name, dtype=torch.float64)
    for variant in variants(name):
        criterion = make(name, **variant)
        assert torch.autograd.gradcheck(lambda g, c=criterion: c(g, observed, **call), (logits,))


@every
def test_keeps_the_contract(name: str) -> None:
    # Where p is held still inside the loss, differences would move it.
    still = name in ("gr", "pseudo-negative") or CASES[name][0].get("detach_focus")
    for variant in variants(name):
        check_method(name, differences=not still, **variant, **CASES[name][0], **CASES[name][1])


# -- numbers --------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_finite_and_right_out_to_a_hundred(name: str, dtype: torch.dtype) -> None:
    """Against float64 on the same logits: the value to float32's digits, the gradient to those of its own dtype."""
    g = torch.tensor([-100, -89, -88, -60, -17, -16, -5, -1e-3, 0, 1e-3, 2.5, 16, 17, 60, 88, 89, 100]).to(dtype)
    logits = g.repeat(3, 1).requires_grad_()
    observed = torch.tensor([[-1], [0], [1]], dtype=torch.int8).expand(3, 17).clone()
    observed[1, ::2], observed[2, 1::3] = 0, -1
    _, _, call = inputs(name)
    if name == "lasd":
        call = {"views": [logits.detach() * 0.5, -logits.detach()]}
    for variant in variants(name):
        got, slope = run(make(name, **variant), logits, observed, call)
        exact = {k: [x.double() for x in v] for k, v in call.items()}
        want, right = run(make(name, **variant), logits.detach().double().requires_grad_(), observed, exact)
        assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert slope.dtype == dtype
        assert got.isfinite()
        assert slope.isfinite().all()
        if dtype == torch.float64:
            continue
        torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2e-6)
        digits = torch.finfo(dtype).eps
        smallest = torch.finfo(dtype).smallest_normal * digits * 2  # below which float16 rounds to nothing
        scale = right.abs().max().item()
        torch.testing.assert_close(slope.double(), right, rtol=max(2 * digits, 2e-5), atol=max(smallest, 2e-7 * scale))


@every
def test_memory_of_any_layout(name: str) -> None:
    """Rows that share their memory, and columns before rows."""
    logits, observed, call = inputs(name)
    rows = observed[2:3].expand(B, L)
    flipped = (logits.detach().T.contiguous().T.requires_grad_(), observed.T.contiguous().T)
    for a, b in (
        (run(make(name), logits, rows, call), run(make(name), logits, rows.clone(), call)),
        (run(make(name), logits, observed, call), run(make(name), *flipped, call)),
    ):
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y)


# -- shapes ---------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("shared", [True, False], ids=["labels shared", "labels each"])
def test_a_stack_is_its_members_alone_to_the_last_digits(name: str, shared: bool) -> None:
    if name == "pseudo-negative":
        pytest.skip("draws for each model")
    logits, observed, call = inputs(name, stack=True, dtype=torch.float64)
    if not shared:
        observed = torch.stack([observed, -observed, observed.flip(0)])
    for variant in variants(name):
        many = make(name, **variant, **(CASES[name][1] or {"stack": M}))
        losses, slopes = run(many, logits, observed, call)
        assert losses.shape == (M,)
        assert losses.dtype == torch.float64
        for m in range(M):
            mine = {k: [x[m] for x in v] for k, v in call.items()}
            one = make(name, **variant, **{k: v[m] for k, v in CASES[name][1].items()})
            if name == "lasd" and one.needs.views == 1:
                mine = {}
            labels = observed if shared else observed[m]
            loss, slope = run(one, logits[m].detach().requires_grad_(), labels, mine)
            torch.testing.assert_close(losses[m], loss, rtol=1e-13, atol=1e-14)
            torch.testing.assert_close(slopes[m], slope, rtol=1e-13, atol=1e-14)


def test_stacked_settings_follow_the_precision_of_the_logits() -> None:
    """Float32's 0.1 in float64 arithmetic would be wrong in the ninth digit, float64's would make float32 slow."""
    criterion = make("em", alpha=[0.1, 0.2, 0.3])
    want = [-a * 0.6931471805599453 for a in (0.1, 0.2, 0.3)]
    unknown = torch.zeros(1, 1)
    for how in (lambda c: c, lambda c: c.double(), lambda c: c.half(), lambda c: copy.deepcopy(c).bfloat16()):
        changed = how(criterion)
        for dtype, digits in (
            (torch.float32, 1e-7),
            (torch.float64, 1e-15),
            (torch.float16, 1e-7),
            (torch.float32, 1e-7),
        ):
            got = changed(torch.zeros(3, 1, 1, dtype=dtype), unknown)
            assert got.tolist() == pytest.approx(want, rel=digits)
            assert changed.alpha.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


# -- how it runs ----------------------------------------------------------------------------------------------------


class NoWaiting(TorchDispatchMode):
    """Refuses what would make the host wait for a GPU: reading a value, shapes made of values, fresh constants."""

    forbidden = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "lift_fresh")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        if name in self.forbidden or "unique" in name:
            raise AssertionError(f"{func} makes the host wait")
        if name in ("index", "index_put", "_index_put_impl", "_unsafe_index"):
            masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
            assert not masks, f"{func} with a mask makes the host wait"
        return func(*args, **(kwargs or {}))


def test_the_watch_itself() -> None:
    x = torch.tensor([1.0, 0.0])
    bad = [
        lambda: x.sum().item(),
        lambda: bool(x.any()),
        lambda: x.nonzero(),
        lambda: x[x > 0],
        lambda: x.masked_select(x > 0),
        lambda: x.unique(),
        lambda: torch.tensor(1.0) * x,
        lambda: torch.as_tensor(0.05, dtype=x.dtype, device=x.device) * x,
        lambda: x.__setitem__(x > 0, x[:1]),
    ]
    for f in bad:
        with pytest.raises(AssertionError, match="wait"), NoWaiting():
            f()
    with NoWaiting():
        torch.where(x > 0, x, 0.0).masked_fill(x > 0, 1.0).sum()


@every
@pytest.mark.parametrize("stack", [False, True], ids=["one", "stack"])
def test_no_step_waits_for_the_host(name: str, stack: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "diagnose", lambda *_: None)  # which only looks where looking is free
    for variant in variants(name):
        logits, observed, call = inputs(name, stack=stack)
        criterion = make(name, **variant, **((CASES[name][1] or {"stack": M}) if stack else {}))
        with NoWaiting():
            criterion(logits, observed, **call).sum().backward()
        assert logits.grad.isfinite().all()


@every
@pytest.mark.parametrize("stack", [False, True], ids=["one", "stack"])
def test_runs_where_there_are_no_values(name: str, stack: bool) -> None:
    """On "meta", where reading one is impossible."""
    logits, observed, call = inputs(name, stack=stack)
    criterion = make(name, **((CASES[name][1] or {"stack": M}) if stack else {})).to("meta")
    call = {k: [x.to("meta") for x in v] for k, v in call.items()}
    logits = logits.detach().to("meta").requires_grad_()
    loss = criterion(logits, observed.to("meta"), **call)
    assert loss.shape == ((M,) if stack else ())
    loss.sum().backward()
    assert logits.grad.shape == logits.shape


@every
def test_compiles_whole(name: str) -> None:
    logits, observed, call = inputs(name)
    for variant in variants(name):
        criterion = make(name, **variant)
        want = run(criterion, logits, observed, call)
        torch._dynamo.reset()
        compiled = torch.compile(criterion, backend="aot_eager", fullgraph=True)
        if name == "pseudo-negative":  # which draws otherwise there
            assert run(compiled, logits, observed, call)[0].isfinite()
            continue
        for a, b in zip(run(compiled, logits, observed, call), want, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["em", "gr", "lasd", "asl"])
def test_a_stack_compiles_whole(name: str) -> None:
    for dtype in (torch.float32, torch.float64):
        logits, observed, call = inputs(name, stack=True, dtype=dtype)
        want = run(make(name, **CASES[name][1]), logits, observed, call)
        torch._dynamo.reset()
        compiled = torch.compile(make(name, **CASES[name][1]), backend="aot_eager", fullgraph=True)
        for a, b in zip(run(compiled, logits, observed, call), want, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["gr", "splc"])
def test_a_compiled_schedule_moves_without_compiling_again(name: str) -> None:
    logits, observed, call = inputs(name)
    criterion, plain = make(name), make(name)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(criterion, backend=counter, fullgraph=True)
    for epoch in range(4):
        for c in (criterion, plain):
            c.begin_epoch(epoch, 4)
        for a, b in zip(run(compiled, logits, observed, call), run(plain, logits, observed, call), strict=True):
            torch.testing.assert_close(a, b)
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler here")
@pytest.mark.parametrize("name", ["em", "gr", "asl-ps"])
def test_inductor_gives_the_same_numbers(name: str) -> None:
    logits, observed, call = inputs(name)
    want = run(make(name), logits, observed, call)
    torch._dynamo.reset()
    for a, b in zip(run(torch.compile(make(name), fullgraph=True), logits, observed, call), want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@every
def test_autocast_changes_nothing(name: str) -> None:
    _, observed, call = inputs(name)
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(4, L), torch.randn(B, 4)
    for variant in variants(name):
        criterion = make(name, **variant)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = layer(x)
            assert logits.dtype == torch.bfloat16
            torch.manual_seed(6)
            inside = criterion(logits, observed, **call)
        inside.backward()
        torch.manual_seed(6)
        outside = criterion(logits.detach().float(), observed, **call)
        assert inside.dtype == torch.float32
        assert torch.equal(inside, outside)
        assert layer.weight.grad.isfinite().all()


@every
def test_losses_and_gradients_of_many_at_once_by_vmap(name: str) -> None:
    """As torch.func has them, on a CPU, too, where values are looked at for mistakes otherwise."""
    if name in ("lasd", "l1r", "l2r", "pseudo-negative"):
        pytest.skip("takes more than logits, or draws")
    criterion = make(name)
    logits, observed, _ = inputs(name, stack=True)
    logits = logits.detach()
    both = torch.func.vmap(torch.func.grad_and_value(lambda g: criterion(g, observed)), randomness="error")
    slopes, losses = both(logits)
    for m in range(M):
        loss, slope = run(criterion, logits[m].clone().requires_grad_(), observed, {})
        torch.testing.assert_close(losses[m], loss)
        torch.testing.assert_close(slopes[m], slope)


@every
def test_neither_inputs_nor_state_are_written_to(name: str) -> None:
    logits, observed, call = inputs(name)
    criterion = make(name)
    before = copy.deepcopy((logits.detach(), observed, call, dict(criterion.named_buffers())))
    run(criterion, logits, observed, call)
    after = (logits.detach(), observed, call, dict(criterion.named_buffers()))
    assert all(torch.equal(a, b) for a, b in zip(_tensors(before), _tensors(after), strict=True))


def _tensors(tree: Any) -> list[Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, Tensor)]
