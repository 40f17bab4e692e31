"""The Triton kernels, under Triton's interpreter in a process of its own (it is chosen before triton is imported)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
inside = pytest.mark.skipif(not INTERPRETED, reason="runs in the process that test_in_the_interpreter starts")


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="starts the others")
def test_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert done.stdout.count(".") > 40


@pytest.mark.skipif(INTERPRETED, reason="the compiler, not the interpreter")
@pytest.mark.parametrize("name", ["an", "asl-ps", "gr", "splc"])
def test_compiles_for_a_gpu(name: str) -> None:
    """What the interpreter lets pass and the compiler does not; needs no GPU."""
    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    from onelabel.kernels import entries, tiled
    from onelabel.kernels.form import LOG_ONCE, MIRROR
    from onelabel.losses.forms import form_of

    form = form_of(made(name), torch.randn(2, 3), torch.zeros(2, 3, dtype=torch.int8))
    assert form is not None
    numbers, _, pointers, stacked = tiled._arguments(form)
    flags = ("has_rows", "has_target", "has_pull", "has_sum", "has_grad", "skims", "log_once")
    constants = {
        **dict.fromkeys(flags, True),
        "log_once": form.unknown.kind % MIRROR in LOG_ONCE,
        "factor_from": tiled.CHECK,
        "pointers": pointers,
        "stacked": stacked,
        "one_model": False,
        "even": False,
        "aligned": False,
        "block": 256,
        "width": 4,
        "positive": form.positive.kind,
        "unknown": form.unknown.kind,
        "negative": form.negative.kind,
        "two_sided": form.two_sided,
    }
    kernel = entries.entries
    given = ["*fp32", "*i8", *["*fp32"] * 7, *["i64"] * 6, "i32", "i32", "fp32"]
    given += ["*fp32" if pointers >> i & 1 else "fp32" for i in range(len(numbers))]
    types = dict(zip(kernel.arg_names, given, strict=False)) | dict.fromkeys(constants, "constexpr")
    values = {(kernel.arg_names.index(k),): v for k, v in constants.items()}
    try:
        source = compiler.ASTSource(kernel, types, values)
    except TypeError:
        pytest.skip("another Triton's way of saying this")
    built = compiler.compile(source, target=target, options={"num_warps": 4})
    assert "ex2.approx.ftz.f32" in built.asm["ptx"]


def test_importing_the_package_does_not_import_triton() -> None:
    code = "import sys, onelabel, onelabel.losses.fused, onelabel.losses.chunked; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def made(name: str, **hyper: Any) -> Any:
    import onelabel

    if name == "lasd":
        hyper["alpha"] = 0.0
    criterion = onelabel.method(name, **hyper)
    criterion.begin_epoch(5, 8)
    return criterion


def reference(criterion: Any, logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    from onelabel.losses import fused

    exact = logits.double().requires_grad_()
    with fused.using("off"):
        loss = criterion(exact, observed)
    (slope,) = torch.autograd.grad(loss.sum(), exact)
    return loss.detach(), slope


def check(criterion: Any, logits: Tensor, observed: Tensor, *, turns: int = 1, **options: Any) -> None:
    from onelabel.kernels import tiled
    from onelabel.losses.forms import form_of

    want, slope = reference(criterion, logits, observed)
    form = form_of(criterion, logits, observed)
    assert form is not None
    out = torch.full_like(logits, torch.nan)
    loss, grad = tiled.evaluate(logits, observed, form, out=out, choice=(64, 4, turns), **options)
    assert loss is not None
    assert loss.dtype == torch.float32
    assert grad is out
    assert torch.allclose(loss.double(), want, rtol=3e-6, atol=1e-7)
    coarse = {torch.float32: 3e-6, torch.bfloat16: 8e-3, torch.float16: 2e-3}[logits.dtype]
    assert ((out.double() - slope).norm() / slope.norm()).item() < coarse


NAMES = ("bce", "bce-ls", "iu", "an", "an-ls", "n-ls", "wan", "em", "entmin", "focal", "fan", "asl", "asl-ps", "hill")


@inside
@pytest.mark.parametrize("name", [*NAMES, "splc", "las", "lasd", "gr"])
def test_methods(name: str) -> None:
    torch.manual_seed(1)
    observed = torch.randint(-1, 2, (5, 27), dtype=torch.int8)
    for scale in (1.0, 30.0):
        logits = (torch.randn(5, 27) * scale).clamp(-100, 100)
        check(made(name), logits, observed)


@inside
@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("an", {"variant": "reference"}),
        ("an-ls", {"variant": "reference"}),
        ("em", {"variant": "reference"}),
        ("gr", {"variant": "reference"}),
        ("gr", {"q3": 1.5}),
        ("gr", {"q1": 0.0, "q2": 0.0, "q3": 0.0}),
        ("iu", {"normalise": "observed"}),
        ("asl", {"detach_focus": True}),
        ("asl-ps", {"detach_focus": True}),
        ("hill", {"margin": None}),
        ("splc", {"negative": "hill"}),
        ("splc", {"start": 7}),
    ],
)
def test_settings(name: str, hyper: dict[str, Any]) -> None:
    torch.manual_seed(2)
    check(made(name, **hyper), torch.randn(5, 27) * 3, torch.randint(-1, 2, (5, 27), dtype=torch.int8))


@inside
@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("wan", {"gamma": [0.1, 1.0]}),
        ("an-ls", {"unknown_smoothing": [0.0, 0.3]}),
        ("em", {"alpha": [0.1, 0.9]}),
        ("asl-ps", {"margin": [0.0, 0.2]}),
        ("splc", {"tau": [0.5, 0.9]}),
        ("gr", {"w": [2.0, 10.0], "q3": [1.0, 1.5]}),
        ("iu", {"stack": 2, "normalise": "observed"}),
    ],
)
def test_stacks(name: str, hyper: dict[str, Any]) -> None:
    torch.manual_seed(3)
    shared = torch.randint(-1, 2, (5, 27), dtype=torch.int8)
    check(made(name, **hyper), torch.randn(2, 5, 27), shared)
    check(made(name, **hyper), torch.randn(2, 5, 27), torch.randint(-1, 2, (2, 5, 27), dtype=torch.int8))


@inside
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (3, 129), (16, 80)])
def test_sizes_and_dtypes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    check(made("em"), torch.randn(shape).to(dtype), torch.randint(-1, 2, shape))
    check(made("an"), torch.randn(shape).to(dtype), torch.randint(-1, 2, shape).float())


@inside
def test_rows_target_pull_upstream_and_in_place() -> None:
    from onelabel.kernels import blocked, tiled
    from onelabel.kernels.form import PROBABILITY, Curve, Form, nll

    torch.manual_seed(5)
    g, z = torch.randn(4, 33), torch.randint(-1, 2, (4, 33), dtype=torch.int8)
    target = torch.where(torch.rand(4, 33) < 0.5, torch.rand(4, 33), -1.0)
    form = Form(
        nll(),
        Curve(PROBABILITY, (1.0,)),
        nll().mirrored(),
        rows=torch.rand(3, 4),
        target=target,
        target_weight=0.7,
        pull=torch.tensor(0.3),
    )
    for upstream in (None, torch.tensor(2.5)):
        want, slope = blocked.evaluate(g, z, form, upstream=upstream)
        mine = g.clone()
        loss, grad = tiled.evaluate(mine, z, form, upstream=upstream, out=mine, choice=(32, 4, 1))
        assert grad is mine
        assert loss is not None
        assert want is not None
        assert slope is not None
        assert torch.allclose(loss, want, rtol=1e-5)
        assert torch.allclose(grad, slope, atol=1e-6)
    assert tiled.evaluate(g, z, form, grad=False)[1] is None
    assert tiled.evaluate(g, z, form, loss=False)[0] is None


@inside
@pytest.mark.parametrize("skims", [False, True])
@pytest.mark.parametrize("name", ["an", "an-ls", "wan", "em", "focal", "asl", "asl-ps", "hill", "splc", "las", "gr"])
def test_tiles_without_observed_labels(name: str, skims: bool) -> None:
    torch.manual_seed(6)
    hyper = {"expected_positives": 0.5} if name == "las" else {}
    for shape, turns in (((3, 128), 1), ((2, 215), 3)):  # whole tiles, and a last one that is not
        observed = torch.zeros(shape, dtype=torch.int8)
        observed[0, 3], observed[1, 200 % shape[1]] = 1, -1
        for scale in (1.0, 6.0):
            check(made(name, **hyper), torch.randn(shape) * scale, observed, skims=skims, turns=turns)
    if name in ("an", "an-ls", "wan", "em"):  # the sum as logarithm of a product keeps what is small
        check(made(name, **hyper), torch.full((2, 128), -15.0), torch.zeros(2, 128, dtype=torch.int8), skims=skims)


@inside
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("gr", {}),
        ("gr", {"w": -2.0, "b": 0.0, "q2": 0.0125, "sigma": 0.1}),
        ("gr", {"b": -8.0}),
        ("gr", {"q2": 0.0}),
        ("gr", {"w": 10.0, "b": -8.0}),
        ("gr", {"w": [2.0, 1.0], "sigma": [0.5, 1.0]}),
        ("asl-ps", {"margin": 0.2}),
        ("asl-ps", {"gamma_negative": 2.0}),
    ],
)
def test_half_precision(name: str, hyper: dict[str, Any], dtype: torch.dtype) -> None:
    """The gradient before it is rounded would not do here: what is looked at is every entry's own error."""
    from onelabel.kernels import tiled
    from onelabel.losses.forms import form_of

    torch.manual_seed(12)
    criterion = made(name, **hyper)
    lead = () if criterion.stack is None else (criterion.stack,)
    logits = torch.cat([torch.linspace(-80, 80, 1024), 2 * torch.randn(1024)]).to(dtype).expand(*lead, 1, 2048)
    observed = torch.zeros(1, 2048, dtype=torch.int8)
    want, slope = reference(criterion, logits, observed)
    form = form_of(criterion, logits, observed)
    assert form is not None
    loss, out = tiled.evaluate(logits, observed, form, scale=1.0, choice=(256, 1, 4), skims=True)
    assert torch.allclose(loss.double() / 2048, want, rtol=5e-6)
    exact = slope * 2048
    # The interpreter cuts bfloat16 off, where a GPU rounds.
    allowed = {torch.bfloat16: 8e-3, torch.float16: 6e-4}[dtype]
    tiny = {torch.bfloat16: 1e-30, torch.float16: 6e-5}[dtype]
    assert ((out.double() - exact).abs() <= allowed * exact.abs() + tiny * 1e-3 + 2e-6 * exact.abs().max()).all()


@inside
@pytest.mark.parametrize("q3", [0.5, 0.999999, 1.0])
@pytest.mark.parametrize("q2", [0.01, 0.5, 0.999999, 1.0])
def test_slopes_keep_their_sign_and_digits(q2: float, q3: float) -> None:
    """As tests/losses/test_robust.py has it for torch: entry by entry, far below float32's 1e-7."""
    from onelabel.kernels import tiled
    from onelabel.losses.forms import form_of

    x = torch.linspace(-40, 40, 481)
    own, other = (torch.logaddexp(torch.zeros(()), s * x.double()) for s in (-1, 1))
    k = torch.sigmoid(torch.tensor(-0.1)).item()
    down, up = (1 - k) * torch.exp(-q3 * other - own), k * torch.exp(-q2 * own - other)
    how: dict[str, Any] = {"w": 0.0, "b": -0.1, "mu": 0.5, "sigma": 1e6}
    observed = torch.zeros(1, len(x), dtype=torch.int8)
    form = form_of(made("gr", q2=q2, q3=q3, start=how, **how), x[None], observed)
    assert form is not None
    _, out = tiled.evaluate(x[None], observed, form, scale=1.0, choice=(64, 4, 1))
    assert ((out[0].double() - (down - up)).abs() <= 2e-5 * (down + up)).all()


@inside
def test_labels_that_are_not_aligned() -> None:
    """A view that begins in the middle of a word."""
    observed = torch.zeros(1 + 4 * 64, dtype=torch.int8)
    observed[5] = 1
    check(made("em"), torch.randn(4, 64), observed[1:].view(4, 64), skims=True)


@inside
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_upstream_gradient_is_guessed(dtype: torch.dtype) -> None:
    from onelabel.kernels import tiled
    from onelabel.losses.forms import form_of

    torch.manual_seed(7)
    criterion, logits = made("em"), torch.randn(2, 4, 40).to(dtype)
    criterion.stack = 2
    observed = torch.randint(-1, 2, (4, 40), dtype=torch.int8)
    form = form_of(criterion, logits, observed)
    assert form is not None
    tiled._guesses.clear()
    seen = []
    for factors in ((1.0, 1.0), (2.0, 0.5), (2.0, 0.5), (2.0, 3.0)):
        upstream = torch.tensor(factors)
        want = tiled.evaluate(logits, observed, form, upstream=upstream)[1]
        assert want is not None
        _, pending = tiled.begin(logits, observed, form)
        seen.append(pending.used.tolist())
        early = pending.gradient.clone()
        assert torch.equal(tiled.finish(logits, observed, form, pending, upstream), want)
        assert torch.equal(early, want) == (seen[-1] == list(factors))
        assert torch.equal(tiled.finish(logits, observed, form, None, upstream), want)
    assert seen == [[1.0, 1.0], [1.0, 1.0], [2.0, 0.5], [2.0, 0.5]]


@inside
def test_placing_labels() -> None:
    from onelabel.kernels.placing import put

    rows, cols = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([3, 4, 9, 6, 12])  # the last one is padding
    values = torch.tensor([1, -1, 1, -1, 1], dtype=torch.int8)
    block = torch.zeros(3, 6, dtype=torch.int8)
    put(rows, cols, values, block, 4, clear=False)
    want = torch.zeros(3, 6, dtype=torch.int8)
    want[0, 0], want[1, 5], want[2, 2] = -1, 1, -1
    assert torch.equal(block, want)
    put(rows, cols, values, block, 4, clear=True)
    assert not block.any()


@inside
def test_rescaling() -> None:
    from onelabel.kernels import tiled

    x = torch.randn(2, 5, 3000)
    assert torch.allclose(tiled.rescale_(x.clone(), torch.tensor(3.0)), 3 * x)
    assert torch.equal(tiled.rescale_(x.clone(), torch.tensor(1.0)), x)
    both = torch.tensor([1.0, -2.0])
    assert torch.allclose(tiled.rescale_(x.clone(), both), x * both[:, None, None])
    one, two = torch.randn(5000), torch.randn(3, 4)
    three = [one.clone(), two.clone()]
    tiled.rescale_all_(three, torch.tensor(2.0))
    assert torch.equal(three[0], 2 * one)
    assert torch.equal(three[1], 2 * two)
    spread = torch.tensor(0.5).expand(2)
    assert torch.allclose(tiled.rescale_(x.clone(), spread), x / 2)
