"""Value and gradient of every method without memory against plain loops in float64 (`loss_reference`)."""

from __future__ import annotations

from typing import Any

import loss_reference as ref
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import onelabel

unit = st.floats(0, 1)
exponent = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 4.0]), st.floats(0.05, 6))
margin = st.one_of(st.none(), st.floats(0, 3))
variant = st.sampled_from(["paper", "reference"])
robustness = st.one_of(st.sampled_from([0.0, 0.01, 1.0]), st.floats(1e-3, 2))
epochs = st.integers(1, 9).flatmap(lambda t: st.tuples(st.integers(0, t - 1), st.just(t)))

#: name → strategies of its settings
SETTINGS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "bce": {"smoothing": unit, "variant": variant},
    "bce-ls": {"smoothing": unit, "variant": variant},
    "iu": {"normalise": st.sampled_from(["all", "observed"]), "variant": variant},
    "iun": {"normalise": st.sampled_from(["all", "observed"]), "variant": variant},
    "an": {"variant": variant},
    "an-ls": {"positive_smoothing": unit, "unknown_smoothing": unit, "variant": variant},
    "n-ls": {"unknown_smoothing": unit, "variant": variant},
    "wan": {"gamma": unit, "variant": variant},
    "dw": {"gamma": unit, "variant": variant},
    "focal": {"alpha": st.one_of(st.none(), unit), "gamma": exponent},
    "fan": {"gamma": exponent},
    "asl": {"gamma_positive": exponent, "gamma_negative": exponent, "detach_focus": st.booleans()},
    "asl-ps": {
        "gamma_positive": exponent,
        "gamma_negative": exponent,
        "margin": st.floats(0.001, 0.95),
        "detach_focus": st.booleans(),
    },
    "hill": {"lam": st.floats(0, 3), "margin": margin, "gamma": exponent},
    "splc": {"tau": unit, "margin": margin, "gamma": exponent, "negative": st.sampled_from(["focal", "hill"])},
    "em": {"alpha": st.floats(0, 3), "variant": variant},
    "entmin": {"alpha": st.floats(0, 3), "variant": variant},
    "roll-call": {"alpha": st.floats(0, 3), "pull": st.sampled_from(["coin", "entropy"])},
    "gr": {
        "q1": robustness,
        "q2": robustness,
        "q3": robustness,
        "w": st.floats(-20, 20),
        "b": st.floats(-20, 20),
        "mu": st.floats(-1, 2),
        "sigma": st.floats(0.1, 10),
        "variant": variant,
    },
    "las": {"gamma_positive": exponent, "gamma_negative": exponent},
    "lasd": {
        "lam_positive": unit,
        "lam_negative": st.one_of(st.none(), st.floats(0, 2)),
        "tau": unit,
        "alpha": st.one_of(st.just(0.0), st.floats(0.01, 2)),
        "gamma_positive": exponent,
        "gamma_negative": exponent,
    },
    "pr": {"variant": variant},
    "epr": {"lam": st.floats(0, 3), "variant": variant},
    "l1r": {"strength": st.floats(0, 1)},
    "l2r": {"strength": st.floats(0, 1)},
    "pseudo-negative": {},
}
NAMES = list(SETTINGS)


@st.composite
def batches(draw: Any, limit: float = 30) -> tuple[ref.Rows, list[list[int]]]:
    rows, classes = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    labels = draw(st.sampled_from([[-1, 0, 1], [0, 1], [0], [1], [-1], [-1, 1]]))
    entries = st.lists(st.floats(-limit, limit), min_size=classes, max_size=classes)
    g = draw(st.lists(entries, min_size=rows, max_size=rows))
    z = [[draw(st.sampled_from(labels)) for _ in range(classes)] for _ in range(rows)]
    return g, z


def pair(
    name: str, hyper: dict[str, Any], g: ref.Rows, seed: int = 0
) -> tuple[torch.nn.Module, dict[str, Any], ref.Loss]:
    """The method, what its call takes beside logits and labels, and the loss in plain loops; by default at its end."""
    classes, hyper, call = len(g[0]), dict(hyper), {}
    epoch, of = hyper.pop("epoch", (4, 5))
    plain = {k: v for k, v in hyper.items() if k not in ("start",)}
    rng = torch.Generator().manual_seed(seed)
    if name in ("las", "lasd", "epr"):
        hyper.setdefault("expected_positives", min(1.5, 0.6 * classes))
        plain["expected_positives"] = hyper["expected_positives"]
    if name in ("l1r", "l2r"):
        theta = torch.randn(2, 3, generator=rng, dtype=torch.float64)
        call["weights"] = [theta[0], theta[1:].reshape(3, 1)]
        plain = {"strength": 1e-6, **plain, "order": int(name[1]), "theta": theta.flatten().tolist()}
    if name == "lasd" and hyper.get("alpha", 0.7) != 0:
        views = [torch.randn(len(g), classes, generator=rng, dtype=torch.float64) * 3 for _ in range(2)]
        call["views"] = views
        plain["views"] = tuple(v.tolist() for v in views)
    if name in ("wan",) and plain.get("gamma") is None:
        plain["gamma"] = 1 / max(classes - 1, 1)
    if name == "gr":
        ends = {"w": 2.0, "b": -2.0, "mu": 0.8, "sigma": 0.5}
        for k, end in ends.items():
            now = ref.gr_schedule(k, plain.pop(k, end), epoch, of, plain.get("variant", "paper"))
            plain["sigma_" if k == "sigma" else k] = now
    if name == "splc":
        plain["started"] = epoch >= 1
    criterion = onelabel.method(name, **hyper)
    criterion.begin_epoch(epoch, of)
    defaults = {
        "bce-ls": {"smoothing": 0.1},
        "an-ls": {"positive_smoothing": 0.1, "unknown_smoothing": 0.1},
        "n-ls": {"unknown_smoothing": 0.1},
        "dw": {"gamma": 0.1},
        "fan": {"alpha": None},
        "asl-ps": {"margin": 0.05},
    }
    same = {"bce-ls": "bce", "iun": "iu", "an-ls": "an", "n-ls": "an", "wan": "an", "dw": "an", "fan": "focal"}
    same |= {"asl-ps": "asl", "l1r": "penalised", "l2r": "penalised", "roll-call": "roll_call"}
    loss = getattr(ref, same.get(name, name))(**{**defaults.get(name, {}), **plain})
    return criterion, call, loss


def agree(criterion: Any, call: dict[str, Any], loss: ref.Loss, g: ref.Rows, z: list[list[int]]) -> None:
    logits = torch.tensor(g, dtype=torch.float64, requires_grad=True)
    got = criterion(logits, torch.tensor(z, dtype=torch.int8), **call)
    got.backward()
    want = loss(g, z, g)
    assert got.item() == pytest.approx(want, rel=1e-11, abs=1e-12)
    slope = torch.tensor(ref.slopes(loss, g, z), dtype=torch.float64)
    torch.testing.assert_close(logits.grad, slope, rtol=1e-6, atol=2e-10 * (1 + abs(want)))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "pseudo-negative"])
@settings(deadline=None, max_examples=25)
@given(data=st.data(), batch=batches())
def test_value_and_gradient(name: str, data: Any, batch: Any) -> None:
    g, z = batch
    hyper = {k: data.draw(v, label=k) for k, v in SETTINGS[name].items()}
    if name in ("gr", "splc"):
        hyper["epoch"] = data.draw(epochs, label="epoch")
    # Steps of the loss, where no gradient is defined or floats may fall on either side.
    edges = [hyper[k] for k in ("tau", "margin") if name in ("splc", "lasd", "asl-ps") and hyper.get(k) is not None]
    assume(all(abs(ref.sigma(x) - edge) > 2e-3 for row in g for x in row for edge in edges))
    agree(*pair(name, hyper, g), g, z)


@settings(deadline=None, max_examples=25)
@given(batch=batches(), seed=st.integers(0, 99))
def test_pseudo_negative(batch: Any, seed: int) -> None:
    g, z = batch
    torch.manual_seed(seed)
    draws = torch.rand(len(g), len(g[0])).tolist()
    torch.manual_seed(seed)
    agree(onelabel.method("pseudo-negative"), {}, ref.pseudo_negative(draws=draws), g, z)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 1), (3, 4)])
@pytest.mark.parametrize("labels", [[0], [1], [-1], [0, 1, -1]], ids=["unknown", "positive", "negative", "mixed"])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "pseudo-negative"])
def test_defaults_on_every_kind_of_row(name: str, labels: list[int], shape: tuple[int, int]) -> None:
    values = [-100.0, -17.3, -2.0, -0.4, 0.0, 0.7, 3.1, 21.0, 88.8, 100.0, -88.8, 41.0]
    g = [[values[(i * shape[1] + j) % 12] for j in range(shape[1])] for i in range(shape[0])]
    z = [[labels[(i + j) % len(labels)] for j in range(shape[1])] for i in range(shape[0])]
    agree(*pair(name, {}, g), g, z)


@given(x=st.floats(-50, 50))
@example(x=0.0)
@settings(deadline=None, max_examples=50)
def test_the_reference_itself(x: float) -> None:
    """Its gradients, by closed forms: AN is p−1 and p."""
    p = ref.sigma(x)
    assert ref.slopes(ref.an(), [[x]], [[1]])[0][0] == pytest.approx(p - 1, rel=1e-8, abs=1e-10)
    assert ref.slopes(ref.an(), [[x]], [[0]])[0][0] == pytest.approx(p, rel=1e-8, abs=1e-10)
