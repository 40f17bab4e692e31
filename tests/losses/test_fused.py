"""Fused losses equal the methods' own expressions, and step aside where they cannot."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import onelabel
from onelabel.kernels.form import ENTROPY, Curve, Form, nll
from onelabel.losses import ASL, BCE, EM, GR, IU, LASD, SPLC, WAN, Hill, fused
from onelabel.losses.forms import form_of
from onelabel.losses.module import ElementWise

B, L = 6, 17


def elementwise() -> list[str]:
    made = {name: onelabel.method(name) for name in onelabel.list_methods() if name != "smile"}
    return [name for name, m in made.items() if isinstance(m, ElementWise) and name != "pseudo-negative"]


def settings_of(name: str) -> list[dict[str, Any]]:
    cls = onelabel.method_info(name).cls
    own: list[dict[str, Any]] = [{}]
    if "variant" in cls.__init__.__code__.co_varnames:
        own.append({"variant": "reference"})
    extra: dict[type, list[dict[str, Any]]] = {
        IU: [{"normalise": "observed"}],
        ASL: [{"detach_focus": True}, {"gamma_positive": 1.0, "margin": 0.3}],
        Hill: [{"margin": None}],
        SPLC: [{"negative": "hill"}, {"margin": None}, {"start": 7}],
        GR: [{"q1": 0.0, "q2": 0.0, "q3": 0.0}, {"q3": 1.5, "w": 10.0, "b": -8.0}],
        LASD: [{"lam_negative": 0.3, "alpha": 0.0}],
    }
    own += [e for e in extra.get(cls, []) if not set(e) & set(onelabel.method_info(name).fixed)]
    return [{"alpha": 0.0, **s} if name == "lasd" else s for s in own]


CASES = [(name, hyper) for name in elementwise() for hyper in settings_of(name)]


def both(criterion: Any, logits: Tensor, observed: Tensor, factor: Any = 1.0) -> list[tuple[Tensor, Tensor]]:
    results = []
    for mode in ("off", "on"):
        live = logits.clone().requires_grad_()
        with fused.using(mode):  # type: ignore[arg-type]
            loss = criterion(live, observed)
        (slope,) = torch.autograd.grad((loss * factor).sum(), live)
        results.append((loss.detach(), slope))
    return results


@pytest.mark.parametrize(("name", "hyper"), CASES)
def test_every_element_wise_method_in_float64(name: str, hyper: dict[str, Any]) -> None:
    torch.manual_seed(0)
    criterion = onelabel.method(name, **hyper)
    criterion.begin_epoch(3, 8)
    for scale in (1.0, 10.0):
        logits = torch.randn(B, L, dtype=torch.float64) * scale
        observed = torch.randint(-1, 2, (B, L), dtype=torch.int8)
        assert form_of(criterion, logits, observed) is not None
        (loss, slope), (got, got_slope) = both(criterion, logits, observed, 3.0)
        # softplus is linear beyond 20 in torch, an error of e⁻²⁰
        assert torch.allclose(got, loss, rtol=1e-8, atol=1e-12)
        assert torch.allclose(got_slope, slope, rtol=1e-7, atol=1e-11)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([c for c in CASES if not c[1]]), st.integers(1, 9), st.integers(1, 40), st.integers(0, 99999))
def test_float32_up_to_100(case: tuple[str, dict[str, Any]], rows: int, classes: int, seed: int) -> None:
    name, hyper = case
    if name in ("las", "lasd"):
        hyper = {**hyper, "expected_positives": 0.5}
    rng = torch.Generator().manual_seed(seed)
    logits = torch.empty(rows, classes).uniform_(-100, 100, generator=rng)
    observed = torch.randint(-1, 2, (rows, classes), generator=rng)
    criterion = onelabel.method(name, **hyper)
    if criterion.needs.views > 1:
        return
    (loss, slope), _ = both(criterion, logits.double(), observed)
    _, (got, got_slope) = both(criterion, logits, observed)
    assert torch.isfinite(got_slope).all()
    assert torch.allclose(got.double(), loss, rtol=2e-5, atol=1e-6)
    assert torch.allclose(got_slope.double(), slope, rtol=2e-5, atol=1e-6)


STACKS: list[tuple[str, dict[str, Any]]] = [
    ("wan", {"gamma": [0.1, 0.5, 1.0]}),
    ("an", {"stack": 3}),
    ("an-ls", {"positive_smoothing": [0.0, 0.1, 0.2]}),
    ("em", {"alpha": [0.1, 0.2, 0.9]}),
    ("focal", {"alpha": [0.25, 0.5, 0.75]}),
    ("asl-ps", {"margin": [0.0, 0.05, 0.2]}),
    ("hill", {"lam": [1.0, 1.5, 2.0]}),
    ("splc", {"tau": [0.5, 0.6, 0.9]}),
    ("las", {"expected_positives": [1.0, 1.5, 3.0]}),
    ("gr", {"w": [2.0, 10.0, 5.0], "q3": [1.0, 1.5, 0.0]}),
    ("iu", {"stack": 3, "normalise": "observed"}),
]


@pytest.mark.parametrize(("name", "hyper"), STACKS)
def test_stacks(name: str, hyper: dict[str, Any]) -> None:
    torch.manual_seed(1)
    criterion = onelabel.method(name, **hyper)
    criterion.begin_epoch(3, 8)
    logits = torch.randn(3, B, L, dtype=torch.float64)
    for shape in ((B, L), (3, B, L)):
        observed = torch.randint(-1, 2, shape, dtype=torch.int8)
        (loss, slope), (got, got_slope) = both(criterion, logits, observed, torch.tensor([1.0, -2.0, 3.0]))
        assert got.shape == (3,)
        assert torch.allclose(got, loss, atol=1e-10)
        assert torch.allclose(got_slope, slope, atol=1e-10)


SPARSE: list[tuple[str, dict[str, Any]]] = [
    ("pr", {}),
    ("pr", {"variant": "reference"}),
    ("epr", {}),
    ("epr", {"variant": "reference", "lam": 3.0}),
    ("iu", {"normalise": "observed"}),
    ("an-ls", {}),
    ("wan", {}),
    ("gr", {}),
]


@pytest.mark.parametrize(("name", "hyper"), SPARSE)
@pytest.mark.parametrize("shape", [(3, 5), (40, 1500)])
def test_few_observed_labels(name: str, hyper: dict[str, Any], shape: tuple[int, int]) -> None:
    """The larger size is several blocks, where observed entries are computed apart from the others."""
    torch.manual_seed(5)
    observed = torch.zeros(shape, dtype=torch.int8)
    for sign in (1, 1, -1):
        observed.scatter_(1, torch.randint(shape[1], (shape[0], 1)), sign)
    logits = 3 * torch.randn(shape, dtype=torch.float64)
    (loss, slope), (fused_loss, fused_slope) = both(onelabel.method(name, **hyper), logits, observed, 0.7)
    torch.testing.assert_close(fused_loss, loss, rtol=1e-10, atol=0)
    torch.testing.assert_close(fused_slope, slope, rtol=1e-8, atol=1e-12 * slope.abs().max().item())


@pytest.mark.parametrize("name", ["pr", "epr"])
def test_losses_of_a_batch_in_a_stack(name: str) -> None:
    torch.manual_seed(6)
    logits = torch.randn(3, B, L, dtype=torch.float64)
    observed = torch.randint(-1, 2, (B, L), dtype=torch.int8)
    (loss, slope), (fused_loss, fused_slope) = both(onelabel.method(name, stack=3), logits, observed)
    torch.testing.assert_close(fused_loss, loss)
    torch.testing.assert_close(fused_slope, slope)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    logits = (torch.randn(64, 500) * 3).to(dtype)
    observed = torch.randint(-1, 2, logits.shape)
    (loss, slope), (got, got_slope) = both(EM(), logits, observed, 2.0**14)
    assert got.dtype == torch.float32
    assert got_slope.dtype == dtype
    assert torch.allclose(got, loss, rtol=1e-5)
    assert torch.allclose(got_slope.float(), slope.float(), rtol=1e-2, atol=1e-4)


def test_float16_gradients_survive_a_mean_over_many_entries() -> None:
    """1/N of 10⁶ entries is under float16's least number; a loss scale must reach the gradient before it is rounded."""
    logits = torch.zeros(1000, 1000, dtype=torch.float16, requires_grad=True)
    with fused.using("on"):
        (onelabel.method("an")(logits, torch.zeros(1000, 1000)) * 2.0**16).backward()
    assert logits.grad is not None
    assert torch.allclose(logits.grad.float(), torch.tensor(0.5 * 2**16 / 1e6), rtol=1e-3)


def test_retained_graph_and_no_grad_and_strides() -> None:
    logits = torch.randn(B, 2 * L, dtype=torch.float64).T[::2].T
    observed = torch.randint(-1, 2, (B, L)).T.contiguous().T
    (loss, slope), (got, got_slope) = both(EM(), logits, observed)
    assert torch.allclose(got, loss)
    assert torch.allclose(got_slope, slope)
    live = logits.clone().requires_grad_()
    with fused.using("on"):
        loss = EM()(live, observed)
        loss.backward(retain_graph=True)
        loss.backward()
        assert live.grad is not None
        assert torch.allclose(live.grad, 2 * slope)
        with torch.no_grad():
            assert torch.equal(EM()(live, observed), loss)


def test_second_derivatives_go_through_the_expression() -> None:
    criterion, observed = EM(), torch.randint(-1, 2, (2, 3))
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    with fused.using("on"):
        assert torch.autograd.gradcheck(lambda g: criterion(g, observed), logits)
        assert torch.autograd.gradgradcheck(lambda g: criterion(g, observed), logits)
        bare = fused.apply(form_of(criterion, logits, observed), logits, observed)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(bare, logits, create_graph=True)


def test_schedules_are_followed() -> None:
    criterion, logits, observed = GR(), torch.randn(4, 5), torch.zeros(4, 5)
    with fused.using("on"):
        criterion.begin_epoch(0, 8)
        first = criterion(logits, observed)
        criterion.begin_epoch(7, 8)
        last = criterion(logits, observed)
    assert not torch.equal(first, last)


class Doubled(EM):
    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return 2 * super().entries(logits, observed)


class Plus(WAN):
    def compute(self, batch: Any) -> Tensor:
        return super().compute(batch) + 1


def test_what_has_no_form_keeps_its_own_expression() -> None:
    logits, observed = torch.randn(4, 5), torch.zeros(4, 5)
    for criterion in (Doubled(), Plus(), GR(trainable=True, num_classes=5), onelabel.method("pseudo-negative")):
        assert form_of(criterion, logits, observed) is None
    (loss, _), (got, _) = both(Doubled(), logits, observed)
    assert torch.equal(loss, got)
    learned = GR(trainable=True, num_classes=5)
    with fused.using("on"):
        learned(logits, observed).backward()
    assert learned.w_learned.grad is not None


def test_consistency_of_views_is_kept() -> None:
    criterion, observed = LASD(), torch.zeros(B, L)
    logits = torch.randn(3, B, L)
    with fused.using("on"):
        got = criterion(logits[0], observed, views=[logits[1], logits[2]])
    with fused.using("off"):
        assert torch.equal(got, criterion(logits[0], observed, views=[logits[1], logits[2]]))


def test_pseudo_labels_of_methods_with_memory() -> None:
    """EM with soft targets (em-apl): what `mean` is for."""
    torch.manual_seed(0)
    logits = torch.randn(B, L, dtype=torch.float64, requires_grad=True)
    observed = torch.randint(-1, 2, (B, L), dtype=torch.int8)
    target = torch.where(torch.rand(B, L) < 0.5, torch.rand(B, L), -1.0).double()

    def expression(g: Tensor, z: Tensor) -> Tensor:
        p = torch.sigmoid(g)
        soft = 0.3 * (-target * p.log() - (1 - target) * (1 - p).log())
        return torch.where((target >= 0) & (z == 0), soft, EM().entries(g, z)).mean()

    form = Form(nll(), Curve(ENTROPY, (-0.2,)), nll().mirrored(), target=target, target_weight=0.3)
    results = []
    for mode in ("off", "on"):
        with fused.using(mode):  # type: ignore[arg-type]
            loss = fused.mean(form, logits, observed, expression)
        results.append((loss, *torch.autograd.grad(loss, logits)))
    assert torch.allclose(results[0][0], results[1][0])
    assert torch.allclose(results[0][1], results[1][1])


def test_transforms_and_compilers_see_the_expression() -> None:
    logits, observed, criterion = torch.randn(B, L), torch.randint(-1, 2, (B, L)), EM()
    with fused.using("on"):
        (_, slope), _ = both(criterion, logits, observed)
        assert torch.allclose(torch.func.grad(lambda g: criterion(g, observed))(logits), slope)
        live = logits.clone().requires_grad_()
        torch.compile(criterion, backend="aot_eager")(live, observed).backward()
        assert live.grad is not None
        assert torch.allclose(live.grad, slope, atol=1e-7)


def test_compile_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: real(f, backend="aot_eager", **k))
    for criterion in (EM(alpha=[0.1, 0.4]), WAN()):
        shape = (2, B, L) if criterion.stack else (B, L)
        logits, observed = torch.randn(shape, dtype=torch.float64), torch.randint(-1, 2, (B, L))
        (loss, slope), _ = both(criterion, logits, observed, 2.0)
        live = logits.clone().requires_grad_()
        with fused.using("compile"):
            got = criterion(live, observed)
        (got * 2).sum().backward()
        assert live.grad is not None
        assert torch.allclose(got, loss)
        assert torch.allclose(live.grad, slope)


def test_modes() -> None:
    small, large = torch.zeros(2, 3), torch.zeros(1024, 1024)
    with fused.using("auto"):
        assert not fused.chosen(small)
        assert fused.chosen(large)
    with fused.using("off"):
        assert not fused.chosen(large)
    with fused.using("on"):
        assert fused.chosen(small)
        assert not fused.chosen(torch.zeros(0, 3))
    with pytest.raises(ValueError, match="mode must be one of"):
        fused.enable("fast")  # type: ignore[arg-type]


def test_environment() -> None:
    code = "from onelabel.losses import fused; import torch; print(fused.chosen(torch.zeros(2000, 2000)))"
    run = subprocess.run([sys.executable, "-c", code], env={"ONELABEL_FUSED": "off"}, capture_output=True, check=True)
    assert run.stdout.strip() == b"False"


def test_errors_are_the_same() -> None:
    with fused.using("on"):
        with pytest.raises(ValueError, match="observed must have the shape"):
            BCE()(torch.zeros(2, 3), torch.zeros(2, 4))
        with pytest.raises(ValueError, match="not finite"):
            EM()(torch.full((2, 3), torch.nan), torch.zeros(2, 3))
        with pytest.raises(ValueError, match="expected_positives"):
            onelabel.method("las")(torch.zeros(2, 1), torch.zeros(2, 1))
