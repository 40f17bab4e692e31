"""The draw's likelihood against every label set, and beyond that against the distribution of a count."""

from __future__ import annotations

import itertools
import math
from typing import Any

import loss_reference as ref
import pytest
import torch
from torch import Tensor

import onelabel
from onelabel.losses.draw import FAR, NEAR, WEIGHTED_NODES, draw_log_likelihood, log_any, posterior

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ROWS = {
    "one positive": [0, 1, 0, 0, 0, 0],
    "one positive, known negatives": [-1, 0, 1, 0, -1, 0],
    "nothing unknown": [-1, -1, 1, -1, -1, -1],
    "several positives": [1, 0, 1, 0, -1, 0],
    "no positive": [0, -1, 0, 0, 0, -1],
    "nothing known": [0, 0, 0, 0, 0, 0],
}


def exact(numbers: list[Any]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def every_set(g: list[float], z: list[int]) -> tuple[float, list[float]]:
    """P(observed | x) and P(y_l=1 | x, observed), all 2^L label sets y one by one."""
    total, present = 0.0, [0.0] * len(g)
    for y in itertools.product((0, 1), repeat=len(g)):
        if any((label > 0 and not on) or (label < 0 and on) for on, label in zip(y, z, strict=True)):
            continue
        weight = math.prod(1 / (1 + math.exp(-x if on else x)) for on, x in zip(y, g, strict=True))
        weight /= sum(y) if z.count(1) == 1 else 1
        total += weight
        present = [a + weight * on for a, on in zip(present, y, strict=True)]
    return total, [a / total for a in present]


def every_naming(g: list[float], o: int, w: list[float]) -> float:
    """P(o | x) where one of the labels present is named in proportion to w, all 2^L label sets one by one."""
    total = 0.0
    for y in itertools.product((0, 1), repeat=len(g)):
        if y[o]:
            chance = math.prod(1 / (1 + math.exp(-x if on else x)) for on, x in zip(y, g, strict=True))
            total += chance * w[o] / sum(a for a, on in zip(w, y, strict=True) if on)
    return total


def by_count(g: Tensor, o: int) -> tuple[float, list[float]]:
    """The same for one positive among unknown entries, any L: the other labels' number is Poisson-binomial."""
    p = torch.sigmoid(g.double()).tolist()

    def mean_share(others: list[float], more: int) -> float:
        chances = [1.0]
        for x in others:
            chances = [a * (1 - x) + b * x for a, b in zip([*chances, 0.0], [0.0, *chances], strict=True)]
        return math.fsum(c / (1 + more + r) for r, c in enumerate(chances))

    rest = [i for i in range(len(p)) if i != o]
    share = mean_share([p[i] for i in rest], 0)
    q = [1.0] * len(p)
    for i in rest:
        q[i] = p[i] * mean_share([p[j] for j in rest if j != i], 1) / share
    return p[o] * share, q


@pytest.mark.parametrize("z", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("scale", [0.1, 2.0, 10.0])
def test_against_every_label_set(z: list[int], scale: float) -> None:
    g = torch.randn(8, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * scale
    observed = torch.tensor([z] * 8)
    wanted = [every_set(row, z) for row in g.tolist()]
    got, q = draw_log_likelihood(g, observed), posterior(g, observed)
    torch.testing.assert_close(got, exact([math.log(p) for p, _ in wanted]), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(q, exact([q for _, q in wanted]), rtol=1e-9, atol=1e-12)
    assert ((q >= 0) & (q <= 1)).all()
    assert torch.equal(q[observed > 0], torch.ones(int((observed > 0).sum())).double())
    assert not q[observed < 0].any()


@pytest.mark.parametrize("label", [1, 0, -1])
def test_one_class(label: int) -> None:
    g = torch.tensor([[-30.0], [-1.0], [0.0], [2.0], [30.0]], dtype=torch.float64)
    observed = torch.full((5, 1), label)
    p = torch.sigmoid(g)
    want = {1: torch.log(p), 0: torch.zeros_like(p), -1: torch.log1p(-p)}[label][:, 0]
    torch.testing.assert_close(draw_log_likelihood(g, observed), want, rtol=1e-3 if label < 0 else 1e-12, atol=1e-14)
    torch.testing.assert_close(posterior(g, observed), {1: p * 0 + 1, 0: p, -1: p * 0}[label])


@pytest.mark.parametrize("classes", [2, 3, 20, 30, 80, 120])
@pytest.mark.parametrize("centre", [-3.0, 0.0, 4.0])  # few labels, half of all, almost all
def test_many_classes_against_the_number_of_labels(classes: int, centre: float) -> None:
    """Also where almost every class is present, which few nodes of the integral would not see."""
    g = centre + 2 * torch.randn(3, classes, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    observed = torch.zeros(3, classes, dtype=torch.int8)
    for row, o in enumerate((0, classes // 2, classes - 1)):
        observed[row, o] = 1
        chance, q = by_count(g[row], o)
        got = draw_log_likelihood(g[row : row + 1], observed[row : row + 1])
        assert got.item() == pytest.approx(math.log(chance), rel=1e-9)
        torch.testing.assert_close(posterior(g[row : row + 1], observed[row : row + 1])[0], exact(q))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_precision(dtype: torch.dtype) -> None:
    g = (torch.randn(16, 20, generator=torch.Generator().manual_seed(3)) * 4).to(dtype)
    observed = torch.zeros(16, 20, dtype=torch.int8)
    observed[:, 3], observed[::2, 5] = 1, -1
    rounding = torch.finfo(dtype).eps
    likelihood, want = draw_log_likelihood(g, observed), draw_log_likelihood(g.double(), observed)
    assert likelihood.dtype == dtype
    torch.testing.assert_close(likelihood.double(), want, rtol=8 * rounding, atol=8 * rounding)
    q = posterior(g, observed)
    assert q.dtype == dtype
    torch.testing.assert_close(q.double(), posterior(g.double(), observed), rtol=0, atol=8 * rounding)
    loss = onelabel.method("roll-call")(g, observed)  # which computes in float32 at least
    assert loss.item() == pytest.approx(onelabel.method("roll-call")(g.double(), observed).item(), rel=2e-6)


@pytest.mark.parametrize("z", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_extreme_logits(z: list[int], dtype: torch.dtype) -> None:
    """Between absent and present beyond doubt: what is left is a count, −log(1 + how many others are present)."""
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=6)))
    g = (signs * 1e4).to(dtype).requires_grad_()
    observed = torch.tensor([z] * len(g))
    likelihood = draw_log_likelihood(g, observed)
    (slope,) = torch.autograd.grad(likelihood.sum(), g)
    assert likelihood.isfinite().all()
    assert slope.isfinite().all()
    assert posterior(g, observed).isfinite().all()
    wrong = 1e4 * ((signs * observed) < 0).sum(1)
    others = ((signs > 0) & (observed == 0)).sum(1) if z.count(1) == 1 else torch.zeros(len(g))
    tight = {"rtol": 1e-6, "atol": 1e-5} if dtype in (torch.float32, torch.float64) else {"rtol": 0.01, "atol": 0.02}
    torch.testing.assert_close(likelihood.double(), (-wrong - torch.log1p(others.float())).double(), **tight)
    loss = onelabel.method("roll-call")(g, observed)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, g)[0].isfinite().all()


def test_gradcheck() -> None:
    g = torch.randn(6, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64, requires_grad=True)
    observed = torch.tensor(list(ROWS.values()))
    assert torch.autograd.gradcheck(lambda x: draw_log_likelihood(x, observed), (g,))
    assert torch.autograd.gradcheck(lambda x: onelabel.method("roll-call", alpha=0.3)(x, observed), (g,))


def test_a_stack_is_its_members_alone() -> None:
    g = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64, requires_grad=True)
    observed, alphas = torch.tensor(list(ROWS.values())), [0.0, 0.2, 0.9]
    losses = onelabel.method("roll-call", alpha=alphas)(g, observed)
    (slopes,) = torch.autograd.grad(losses.sum(), g)
    for m, alpha in enumerate(alphas):
        own = g[m].detach().requires_grad_()
        loss = onelabel.method("roll-call", alpha=alpha)(own, observed)
        torch.testing.assert_close(losses[m], loss)
        torch.testing.assert_close(slopes[m], torch.autograd.grad(loss, own)[0])
    torch.testing.assert_close(draw_log_likelihood(g, observed)[1], draw_log_likelihood(g[1], observed))
    torch.testing.assert_close(posterior(g, observed)[1], posterior(g[1], observed))


def test_without_entropy_it_is_the_likelihood_and_its_slope_the_posterior() -> None:
    g = torch.randn(6, 6, generator=torch.Generator().manual_seed(6), dtype=torch.float64, requires_grad=True)
    observed = torch.tensor(list(ROWS.values()))
    loss = onelabel.method("roll-call", alpha=0.0)(g, observed)
    torch.testing.assert_close(loss, -draw_log_likelihood(g, observed).mean() / 6)
    (slope,) = torch.autograd.grad(loss, g)
    q, p = posterior(g, observed), torch.sigmoid(g.detach())
    torch.testing.assert_close(slope, -(q - p) / g.numel())
    unknown = observed == 0
    assert (slope[:3][unknown[:3]] > 0).all(), "a rival of the drawn label is less likely than before"
    torch.testing.assert_close(slope[3:][unknown[3:]], torch.zeros(int(unknown[3:].sum())).double())


@pytest.mark.parametrize("centre", [-2.0, 0.0, 2.0])
def test_weights_against_every_naming(centre: float) -> None:
    """Nodes are exact for whole powers of t alone: eight classes in a ratio of 1 to 6 leave 1e-4."""
    g = centre + 2 * torch.randn(8, 8, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    observed = torch.eye(8, dtype=torch.int8)
    w = [1.0, 1.3, 1.7, 2.2, 2.9, 3.7, 4.8, 6.0]
    want = [math.log(every_naming(row, o, w)) for o, row in enumerate(g.tolist())]
    torch.testing.assert_close(draw_log_likelihood(g, observed, weights=exact(w)), exact(want), rtol=0, atol=1e-4)
    whole = [1.0, 1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 1.0]
    want = [math.log(every_naming(row, o, whole)) for o, row in enumerate(g.tolist())]
    torch.testing.assert_close(draw_log_likelihood(g, observed, weights=exact(whole)), exact(want), rtol=1e-11, atol=0)
    even = draw_log_likelihood(g, observed, weights=torch.ones(8, dtype=torch.float64))
    torch.testing.assert_close(even, draw_log_likelihood(g, observed))


@pytest.mark.parametrize(("widest", "nodes"), [(NEAR, WEIGHTED_NODES), (NEAR, 32), (FAR, 32)])
def test_weights_far_apart_take_more_nodes(widest: float, nodes: int) -> None:
    g = 2 * torch.randn(8, 8, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    w = [widest ** (i / 7) for i in range(8)]
    want = [math.log(every_naming(row, o, w)) for o, row in enumerate(g.tolist())]
    found = draw_log_likelihood(g, torch.eye(8, dtype=torch.int8), weights=exact(w), nodes=nodes)
    torch.testing.assert_close(found, exact(want), rtol=0, atol=5e-4)
    if widest == FAR:
        few = draw_log_likelihood(g, torch.eye(8, dtype=torch.int8), weights=exact(w))
        assert (few - exact(want)).abs().max() > 0.1, "ten nodes would do, and NEAR be too careful"


def test_a_method_takes_as_many_nodes_as_its_weights_do() -> None:
    """Of classes named 1 to 3,000 times: each model of a stack by itself, and none beyond FAR."""
    counts = [3000, 400, 60, 9, 1]
    matrix = torch.zeros(sum(counts), 5, dtype=torch.int8)
    matrix[torch.arange(len(matrix)), torch.arange(5).repeat_interleave(torch.tensor(counts))] = 1
    labels = onelabel.Labels.from_matrix(matrix.numpy())
    g = torch.randn(5, 5, generator=torch.Generator().manual_seed(10), dtype=torch.float64)
    observed, gammas = torch.eye(5, dtype=torch.int8), (0.2, 0.5, 2.0)
    losses = onelabel.method("roll-call", preference=gammas, gamma=[0.0] * 3, alpha=0.0).bind(labels)(
        g.expand(3, 5, 5), observed
    )
    for found, gamma in zip(losses, gammas, strict=True):
        alone = onelabel.method("roll-call", gamma=0.0, preference=gamma, alpha=0.0).bind(labels)(g, observed)
        torch.testing.assert_close(found, alone)
        torch.testing.assert_close(
            onelabel.method("roll-call", gamma=0.15, preference=gamma - 0.15, alpha=0.0).bind(labels)(g, observed),
            alone,
        )
        w = [max((n / 3000) ** gamma, 1 / FAR) for n in counts]
        want = [math.log(every_naming(row, o, w)) for o, row in enumerate(g.tolist())]
        assert alone.item() == pytest.approx(-sum(want) / 25, abs=5e-4 / 5)


@pytest.mark.parametrize("together", [1, 4 * 24, 5 * 24])
@pytest.mark.parametrize("stack", [(), (3,)])
def test_nodes_together_are_nodes_one_by_one(monkeypatch: Any, together: int, stack: tuple[int, ...]) -> None:
    """What a CPU is given at once, all nodes, some of them or one, changes neither likelihood nor slope."""
    torch.manual_seed(0)
    g = torch.randn(*stack, 2, 12, dtype=torch.float64, requires_grad=True)
    weights = 1 + 5 * torch.rand(*stack, *(1 for _ in stack), 12, dtype=torch.float64)
    observed = torch.zeros(2, 12).scatter(1, torch.tensor([[3], [0]]), 1.0)
    found = []
    for limit in (together, 10**9):
        monkeypatch.setattr("onelabel.losses.draw.TOGETHER", limit)
        value = draw_log_likelihood(g, observed, weights=weights)
        found.append((value, *torch.autograd.grad(value.sum(), g)))
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)


def test_weights_are_counted_where_labels_are_bound() -> None:
    """w = n^γ, the same loss and slopes as in plain loops; classes never named count as named once."""
    rng = torch.Generator().manual_seed(8)
    matrix = torch.zeros(60, 6, dtype=torch.int8)
    matrix[torch.arange(60), torch.tensor([0] * 32 + [1] * 16 + [2] * 8 + [3] * 3 + [4])] = 1
    labels = onelabel.Labels.from_matrix(matrix.numpy())
    g = torch.randn(6, 6, generator=rng, dtype=torch.float64, requires_grad=True)
    observed, named = torch.tensor(list(ROWS.values())), [32, 16, 8, 3, 1, 1]
    for gamma, pull in ((0.3, "coin"), (1.0, "entropy"), (0.0, "coin")):
        criterion = onelabel.method("roll-call", gamma=gamma, pull=pull).bind(labels)
        plain = ref.roll_call(gamma=gamma, pull=pull, named=named)
        rows = g.tolist()
        assert criterion(g, observed).item() == pytest.approx(plain(rows, observed.tolist(), rows), abs=2e-5)
        assert torch.autograd.gradcheck(lambda x, made=criterion: made(x, observed), (g,))
    stacked = onelabel.method("roll-call", gamma=[0.0, 0.3, 1.0]).bind(labels)
    losses = stacked(g.expand(3, 6, 6), observed)
    for m, gamma in enumerate((0.0, 0.3, 1.0)):
        torch.testing.assert_close(losses[m], onelabel.method("roll-call", gamma=gamma).bind(labels)(g, observed))
    unbound = onelabel.method("roll-call")(g, observed)
    torch.testing.assert_close(unbound, onelabel.method("roll-call", gamma=0.0)(g, observed))


def test_a_common_class_that_was_named_says_less_against_the_others() -> None:
    g = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    observed = torch.tensor([[1, 0, 0], [0, 1, 0]])
    likelihood = draw_log_likelihood(g, observed, weights=exact([8.0, 1.0, 1.0]))
    (slope,) = torch.autograd.grad(likelihood.sum(), g)
    assert slope[1, 2] < slope[0, 2] < 0  # the third class, after the common one and after a rare one
    assert slope[1, 0] < slope[1, 2]  # the common class, where it was present and kept silent, loses most


def test_weights_where_nobody_else_is_there() -> None:
    """P(o | x) = p_o then; what t^(w_o − 1) costs at ten nodes is at most 4e-4, and has no slope."""
    w = torch.linspace(1, 3.5, 20, dtype=torch.float64).expand(20, 20)
    g = torch.full((20, 20), -30.0, dtype=torch.float64).fill_diagonal_(3.0).requires_grad_()
    found = draw_log_likelihood(g, torch.eye(20, dtype=torch.int8), weights=w)
    want = torch.nn.functional.logsigmoid(exact([3.0] * 20))
    torch.testing.assert_close(found.detach(), want, rtol=0, atol=4e-4)
    found.sum().backward()
    assert g.grad is not None
    torch.testing.assert_close(g.grad, torch.eye(20, dtype=torch.float64) / (1 + math.exp(3)), rtol=1e-9, atol=1e-9)


def test_extreme_logits_with_weights() -> None:
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=4)))
    g = (signs * 1e4).requires_grad_()
    for z in ([1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [-1, 1, 0, -1]):
        loss = draw_log_likelihood(g, torch.tensor([z] * 16), weights=torch.tensor([1.0, 2.5, 30.0, 4.0]))
        assert loss.isfinite().all()
        assert torch.autograd.grad(loss.sum(), g)[0].isfinite().all()


def test_pull_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="pull must be 'coin' or 'entropy', got 'half'"):
        onelabel.method("roll-call", pull="half")


def test_the_posterior_leaves_the_graph_and_the_logits_alone() -> None:
    g = torch.randn(2, 4, requires_grad=True)
    with torch.no_grad():
        q = posterior(g, torch.tensor([[1, 0, 0, 0], [0, 0, 1, -1]]))
    assert not q.requires_grad
    assert g.grad is None


@pytest.mark.parametrize("exact", [8, 16])
def test_many_classes_by_their_likeliest(exact: int) -> None:
    """Beyond twice `exact` classes the unlikely ones enter by their sum: close to all of them one by one."""
    g = 2 * torch.randn(200, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 5
    observed = torch.zeros(200, 60, dtype=torch.int8)
    observed[torch.arange(200), torch.arange(200) % 60] = 1
    observed[8:50, 7] = -1
    off = (posterior(g, observed, exact=exact) - posterior(g, observed)).abs().max()
    assert 0 < off < {8: 2e-3, 16: 2e-4}[exact]
    off = (draw_log_likelihood(g, observed, exact=exact) - draw_log_likelihood(g, observed)).abs().max()
    assert 0 < off < {8: 6e-3, 16: 2e-3}[exact]
    few, named = g[:, : 2 * exact], observed[:, : 2 * exact]
    assert torch.equal(posterior(few, named, exact=exact), posterior(few, named))


def test_any_label_at_all() -> None:
    g = torch.tensor([[-40.0, -50.0], [-1.0, 2.0], [60.0, -60.0]], dtype=torch.float64)
    want = exact([math.log(math.exp(-40) + math.exp(-50)), 0.0, 0.0])
    p = torch.sigmoid(g[1])
    want[1] = torch.log(1 - (1 - p).prod())
    torch.testing.assert_close(log_any(g), want, rtol=1e-12, atol=1e-15)
