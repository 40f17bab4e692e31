"""ROLE by hand: loss, gradients, table, optimiser; and what a step may touch."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import onelabel
from onelabel import Labels
from onelabel.methods import RowAdam


def by_hand(g: list[list[float]], phi: list[list[float]], z: list[list[int]], k: float, lam: float, ref: bool) -> float:
    """Eq. 5, 10 and 11 of the paper entry by entry; with `ref`, losses.py of the authors."""
    eps = 1e-5 if ref else 0.0
    rows, classes = len(g), len(g[0])

    def half(own: list[list[float]], other: list[list[float]]) -> float:
        cross = known = total = 0.0
        for n in range(rows):
            for i in range(classes):
                f, y = 1 / (1 + math.exp(-own[n][i])), 1 / (1 + math.exp(-other[n][i]))
                cross += -(y * math.log(f + eps) + (1 - y) * math.log(1 - f + eps))
                known += -math.log(f + eps) if z[n][i] == 1 else -math.log(1 - f + eps) if z[n][i] == -1 else 0.0
                total += f
        penalty = ((total / rows - k) / classes) ** 2
        return cross / (rows * classes) + known / (rows * (classes if ref else 1)) + lam * penalty

    return (half(g, phi) + half(phi, g)) / 2


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_loss_and_both_gradients(variant: str, labels: Labels) -> None:
    criterion = onelabel.method("role", expected_positives=1.7, lam=0.8, variant=variant).bind(labels).double()
    index = torch.tensor([0, 1, 7, 12])
    z = labels.rows(index)
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    loss = criterion(logits, z, index=index)
    loss.backward()
    table = criterion.estimator.weight
    grad = table.grad.to_dense()
    g, phi, z = logits.detach().tolist(), table.detach()[index].tolist(), z.tolist()
    args = (z, 1.7, 0.8, variant == "reference")
    assert loss.item() == pytest.approx(by_hand(g, phi, *args), rel=1e-12)
    h = 1e-5
    for n in range(4):
        for i in range(5):
            for mine, whose, other in ((logits.grad[n, i], g, phi), (grad[index[n], i], phi, g)):
                up, down = copy.deepcopy(whose), copy.deepcopy(whose)
                up[n][i] += h
                down[n][i] -= h
                # only the half that is not stopped moves: recompute it with the other one fixed
                slope = (half_of(up, other, *args) - half_of(down, other, *args)) / (2 * h)
                assert mine.item() == pytest.approx(slope, abs=1e-8)
    outside = [i for i in range(30) if i not in index]
    assert not grad[outside].any()


def half_of(own: Any, other: Any, z: Any, k: float, lam: float, ref: bool) -> float:
    """½·L′(own|other): what `own` has a gradient from, which is by_hand less the other half."""
    eps = 1e-5 if ref else 0.0
    rows, classes = len(own), len(own[0])
    cross = known = total = 0.0
    for n in range(rows):
        for i in range(classes):
            f, y = 1 / (1 + math.exp(-own[n][i])), 1 / (1 + math.exp(-other[n][i]))
            cross += -(y * math.log(f + eps) + (1 - y) * math.log(1 - f + eps))
            known += -math.log(f + eps) if z[n][i] == 1 else -math.log(1 - f + eps) if z[n][i] == -1 else 0.0
            total += f
    penalty = ((total / rows - k) / classes) ** 2
    return (cross / (rows * classes) + known / (rows * (classes if ref else 1)) + lam * penalty) / 2


def test_the_table_starts_as_published(labels: Labels) -> None:
    estimates = onelabel.method("role", seed=4).bind(labels).estimated_labels()
    z = labels.rows(slice(None))
    assert torch.allclose(estimates[z > 0], torch.tensor(0.995))
    assert torch.allclose(estimates[z < 0], torch.tensor(0.005))
    unknown = estimates[z == 0]
    assert unknown.min() >= 0.4
    assert unknown.max() <= 0.6
    assert unknown.std() > 0.03
    phi = torch.logit(unknown)  # uniform in φ, so of its variance
    assert phi.var().item() == pytest.approx(math.log(1.5) ** 2 / 3, rel=0.3)


def test_estimates_of_one_half_make_it_bce_towards_one_half_plus_epr(labels: Labels) -> None:
    criterion = onelabel.method("role", expected_positives=2.0).bind(labels).initialise(torch.full((30, 5), 0.5))
    index, logits = torch.arange(6), torch.randn(6, 5)
    z = labels.rows(index)
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    epr = onelabel.method("epr", expected_positives=2.0)
    want = bce(logits, torch.full((6, 5), 0.5)) + epr(logits, z) + math.log(2) + epr(torch.zeros(6, 5), z)
    torch.testing.assert_close(criterion(logits, z, index=index).detach(), want / 2)


def test_rows_outside_the_batch_and_cost_do_not_grow_with_n() -> None:
    """N = 100,000, L = 80, batch 16: no operation makes, or reads other than by row number, anything of size N·L."""
    n, classes = 100_000, 80
    labels = Labels.from_classes(torch.arange(n) % classes, num_classes=classes)
    criterion = onelabel.method("role", expected_positives=2.9).bind(labels)
    (optimizer,) = criterion.optimizers(1e-3)
    assert isinstance(optimizer, RowAdam)
    index = torch.randperm(n)[:16]
    index[3] = index[2]  # one example twice
    observed = labels.rows(index)

    def step() -> None:
        criterion(torch.randn(16, classes, requires_grad=True), observed, index=index).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()  # allocates the moments
    table, state = criterion.estimator.weight, optimizer.state[criterion.estimator.weight]
    before = {"table": table.detach().clone()} | {k: v.clone() for k, v in state.items()}
    by_row = {"aten.embedding.default", "aten.index_select.default", "aten.index_copy_.default", "aten.detach.default"}

    class Watch(TorchDispatchMode):
        seen: set[str] = set()  # noqa: RUF012

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            flat, _ = torch.utils._pytree.tree_flatten((args, kwargs, out))
            large = [t for t in flat if isinstance(t, torch.Tensor) and not t.is_sparse and t.numel() >= n]
            if large:
                self.seen.add(str(func))
                assert str(func) in by_row, f"{func} sees {[tuple(t.shape) for t in large]}"
                if str(func) != "aten.index_copy_.default" and str(func) != "aten.detach.default":
                    assert out.numel() <= 16 * classes
            return out

    with Watch():
        step()
    assert {"aten.embedding.default", "aten.index_copy_.default"} <= Watch.seen
    others = torch.ones(n, dtype=torch.bool)
    others[index] = False
    for name, was in before.items():
        now = table.detach() if name == "table" else state[name]
        assert torch.equal(now[others], was[others])
        assert not torch.equal(now[index], was[index])


def test_the_reference_trains_the_whole_table_with_adam(kit: Any) -> None:
    run = kit.Run(onelabel.method("role", variant="reference", seed=3))
    kinds = [type(o) for o in run.optimizers]
    assert kinds == [torch.optim.Adam, torch.optim.Adam]
    assert run.optimizers[1].param_groups[0]["lr"] == pytest.approx(0.1)  # ten times the classifier's
    run.step()
    met = run.orders[0][0][0]
    run.step()
    before = run.criterion.estimated_labels()[met]
    run.step()
    unmet = [i for i in met.tolist() if i not in run.orders[0][0][2]]
    assert unmet
    assert not torch.equal(before, run.criterion.estimated_labels()[met]), "rows outside keep moving on momentum"


@pytest.mark.parametrize("estimator", ["table", "factorised"])
def test_starting_from_estimates(estimator: str, labels: Labels) -> None:
    rank = {"rank": 5} if estimator == "factorised" else {}
    criterion = onelabel.method("role", estimator=estimator, **rank).bind(labels)
    given = torch.rand(30, 5)
    z = labels.rows(slice(None))
    got = criterion.initialise(given).estimated_labels()
    where = torch.ones_like(z, dtype=torch.bool) if estimator == "table" else z == 0
    torch.testing.assert_close(got[where], given[where], rtol=1e-4, atol=1e-4)
    if estimator == "factorised":  # what is observed keeps its own start, give or take the low-rank part
        assert (got[z > 0] > 0.5).all()
    torch.testing.assert_close(criterion.estimated_labels(torch.tensor([4, 2])), got[[4, 2]])
    with pytest.raises(ValueError, match=r"estimates must have shape \(30, 5\), got \(5, 30\)"):
        criterion.initialise(given.T)


def test_a_stack_starts_from_one_or_from_many_estimates(labels: Labels) -> None:
    criterion = onelabel.method("role", stack=2).bind(labels)
    given = torch.rand(2, 30, 5)
    torch.testing.assert_close(criterion.initialise(given).estimated_labels(), given, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        criterion.initialise(given[0]).estimated_labels(), given[:1].expand(2, -1, -1), rtol=1e-4, atol=1e-4
    )
    index = torch.tensor([[3, 1], [0, 3]])
    torch.testing.assert_close(
        criterion.initialise(given).estimated_labels(index),
        torch.stack([given[0, [3, 1]], given[1, [0, 3]]]),
        rtol=1e-4,
        atol=1e-4,
    )


def test_the_factorised_estimator_by_hand(labels: Labels) -> None:
    criterion = onelabel.method("role", estimator="factorised", rank=3, seed=0).bind(labels)
    e = criterion.estimator.requires_grad_(False)
    z = labels.rows(slice(None))
    want = torch.empty(30, 5)
    for n in range(30):
        for i in range(5):
            dot = sum(float(e.rows[n, r] * e.columns[i, r]) for r in range(3)) + float(e.bias[0, i])
            want[n, i] = 1 / (1 + math.exp(-(dot + math.log(0.995 / 0.005) * int(z[n, i]))))
    torch.testing.assert_close(criterion.estimated_labels(), want)
    assert want[z == 0].min() >= 0.4 - 1e-6
    assert want[z == 0].max() <= 0.6 + 1e-6
    row, rest = criterion.optimizers(1e-3)
    assert isinstance(row, RowAdam)
    assert not isinstance(rest, RowAdam)
    assert sum(p.numel() for p in criterion.parameters()) == 30 * 3 + 5 * 3 + 5


def test_the_network_estimator_by_hand(labels: Labels) -> None:
    criterion = onelabel.method("role", estimator="network", feature_dim=4, hidden=3, seed=0).bind(labels)
    assert criterion.needs.features
    assert not criterion.needs.index
    e, x, index = criterion.estimator, torch.randn(6, 4), torch.arange(6)
    hidden = (x @ e.inner.weight + e.inner.bias).clamp(min=0)
    want = torch.sigmoid(hidden @ e.outer.weight + e.outer.bias + math.log(199) * labels.rows(index))
    torch.testing.assert_close(criterion.estimated_labels(index, features=x), want)
    features = x.requires_grad_()
    criterion(features @ torch.randn(4, 5), labels.rows(index), features=features).backward()
    assert all(p.grad is not None and p.grad.any() for p in criterion.parameters())
    with pytest.raises(ValueError, match="give features= of 30 rows"):
        criterion.estimated_labels()
    with pytest.raises(ValueError, match="feature_dim=4 columns, got 7"):
        criterion(torch.zeros(6, 5), labels.rows(index), features=torch.zeros(6, 7))
    with pytest.raises(ValueError, match="state_dict"):
        criterion.initialise(torch.rand(30, 5))


@pytest.mark.parametrize("estimator", ["table", "factorised", "network"])
def test_it_learns_what_the_features_show(estimator: str) -> None:
    """Two clusters, each with two labels of which one is observed: the other must be found among the unknown."""
    torch.manual_seed(0)
    side = torch.arange(40) % 2
    true = torch.stack([side == 0, side == 0, side == 1, side == 1], 1)
    x = torch.randn(40, 4) * 0.3 + torch.stack([side, 1 - side, side, 1 - side], 1) * 2.0
    labels = Labels.from_classes((side * 2 + torch.randint(2, (40,))).tolist(), num_classes=4)
    size = {"feature_dim": 4, "hidden": 16} if estimator == "network" else {}
    criterion = onelabel.method("role", estimator=estimator, expected_positives=2.0, seed=0, **size).bind(labels)
    w, b = torch.zeros(4, 4, requires_grad=True), torch.zeros(4, requires_grad=True)
    optimizers = [torch.optim.Adam([w, b], lr=0.02), *criterion.optimizers(0.02)]
    for _ in range(60):
        for index in torch.randperm(40).split(8):
            criterion(x[index] @ w + b, labels.rows(index), index=index, features=x[index]).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    found = criterion.estimated_labels(features=x if estimator == "network" else None)
    hidden = true & (labels.rows(slice(None)) == 0)
    assert found[hidden].mean() > 0.6 > 0.4 > found[~true].mean()


def test_bad_settings(labels: Labels) -> None:
    for settings, told in (
        ({"estimator": "tree"}, "estimator must be 'table', 'factorised' or 'network', got 'tree'"),
        ({"estimator": "network"}, "needs feature_dim="),
        ({"dtype": "int4"}, "dtype must be"),
        ({"estimator": "factorised", "split": True}, "split and dtype are for estimator='table'"),
        ({"estimator": "factorised", "rank": 0}, r"rank must lie in \[1, 1e\+06\], got 0"),
        ({"estimator": "network", "feature_dim": 6, "hidden": 0}, r"hidden must lie in \[1, 1e\+06\], got 0"),
    ):
        with pytest.raises(ValueError, match=told):
            onelabel.method("role", **settings)
    with pytest.raises(RuntimeError, match=r"torch\.distributed"):
        onelabel.method("role", split=True).bind(labels)
    with pytest.raises(RuntimeError, match="bind"):
        onelabel.method("role").optimizers(0.1)
