"""Head and loss over chunks of classes equal the layer and the method apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import onelabel
from onelabel.losses.chunked import ChunkedHead, chunk_size, chunked_loss
from onelabel.losses.observed import Observed, from_device, observed_rows

B, L, D = 6, 37, 5
NAMES = ("bce", "bce-ls", "iu", "an", "an-ls", "n-ls", "wan", "dw", "em", "entmin", "focal", "fan", "asl", "asl-ps")
NAMES = (*NAMES, "hill", "splc", "las", "lasd", "gr", "pr", "epr", "role")


def problem(seed: int = 0, rows: int = B) -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(seed)
    tensors = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((rows, D), (L, D), (L,))]
    observed = torch.randint(-1, 2, (rows, L), dtype=torch.int8) * (torch.rand(rows, L) < 0.2)
    return tensors, observed


def made(name: str, observed: Tensor, **hyper: Any) -> tuple[Any, dict[str, Any]]:
    if name == "role":
        hyper = {"estimator": "factorised", "rank": 3, **hyper}
    if name == "lasd":
        hyper["alpha"] = 0.0
    criterion = onelabel.method(name, **hyper)
    if name == "role":
        criterion.bind(onelabel.Labels.from_matrix(observed.numpy()))
    criterion.double().begin_epoch(3, 8)
    return criterion, {"index": torch.arange(len(observed))} if criterion.needs.index else {}


def compare(criterion: Any, tensors: list[Tensor], observed: Tensor, given: Any, chunk: int, **more: Any) -> None:
    every = [*tensors, *criterion.parameters()]
    got = chunked_loss(*tensors, given, criterion, chunk=chunk, **more)  # type: ignore[arg-type]
    got_slopes = torch.autograd.grad(3 * got, every)
    want = criterion(tensors[0] @ tensors[1].T + tensors[2], observed, **more)
    slopes = torch.autograd.grad(3 * want, every)
    assert torch.allclose(got, want, rtol=1e-10, atol=1e-12)
    for ours, theirs in zip(got_slopes, slopes, strict=True):
        assert torch.allclose(ours.to_dense(), theirs.to_dense(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("variant", ["paper", "reference"])
@pytest.mark.parametrize("name", NAMES)
def test_every_method(name: str, variant: str) -> None:
    tensors, observed = problem()
    hyper: dict[str, Any] = {}
    if variant == "reference":
        if "variant" not in onelabel.method_info(name).cls.__init__.__code__.co_varnames:
            pytest.skip("no such variant")
        hyper["variant"] = variant
    criterion, more = made(name, observed, **hyper)
    for chunk in (1, 10, L, 1000):
        compare(criterion, tensors, observed, observed.to_sparse_coo(), chunk, **more)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 50), st.sampled_from(["em", "pr", "epr", "iu"]))
def test_any_batch_and_chunk(seed: int, rows: int, chunk: int, name: str) -> None:
    tensors, observed = problem(seed, rows)
    hyper = {"normalise": "observed"} if name == "iu" else {}
    criterion, more = made(name, observed, **hyper)
    compare(criterion, tensors, observed, observed.to_sparse_coo(), chunk, **more)


@pytest.mark.parametrize("name", ["em", "gr", "epr"])
def test_gradcheck(name: str) -> None:
    tensors, observed = problem()
    criterion, _ = made(name, observed)
    if name == "gr":  # its weights take p without gradient, so finite differences see more than the gradient
        criterion = onelabel.method("asl-ps", gamma_positive=1.0).double()
    sparse = observed.to_sparse_coo()
    assert torch.autograd.gradcheck(lambda *t: chunked_loss(*t, sparse, criterion, chunk=11), tensors)  # type: ignore[arg-type]


def test_ways_to_give_observed_labels() -> None:
    tensors, observed = problem()
    labels = onelabel.Labels.from_matrix(observed.numpy())
    criterion, _ = made("em", observed)
    rows, cols = observed.nonzero().T
    padded = Observed(
        torch.cat([rows, torch.tensor([B - 1])]),
        torch.cat([cols, torch.tensor([L])]),
        torch.cat([observed[rows, cols], torch.tensor([1], dtype=torch.int8)]),
        (B, L),
    )
    device = [from_device(labels.on("cpu", dense_limit=limit), torch.arange(B)) for limit in (0, 1 << 29)]
    assert isinstance(device[0], Observed)
    given = [observed, observed.float(), observed.to_sparse_csr(), observed.to_sparse_coo(), labels, padded, *device]
    for one in given:
        compare(criterion, tensors, observed, one, 10)


def test_random_negatives_are_drawn_from_the_unknown() -> None:
    observed = torch.zeros(400, 5, dtype=torch.int8)
    observed[:, 1], observed[:, 3], observed[0] = 1, -1, 1
    sparse = observed_rows(observed.to_sparse_coo(), 400, 5, observed.device)
    assert isinstance(sparse, Observed)
    drawn = sparse.with_random_negatives().cols[-400:]
    assert drawn[0] == 5  # nothing to draw from: padding
    counts = drawn[1:].bincount(minlength=5)
    assert counts[[1, 3]].sum() == 0
    assert (counts[[0, 2, 4]] > 80).all()


def test_pseudo_negatives_on_average_are_a_weight() -> None:
    """The mean over many draws is WAN with γ = 1/(unknown in row)."""
    torch.manual_seed(0)
    x, w = torch.randn(1, D), torch.randn(9, D)
    observed = torch.tensor([[0, 1, 0, 0, -1, 0, 0, 1, 0]], dtype=torch.int8)
    criterion = onelabel.method("pseudo-negative")
    want = onelabel.method("wan", gamma=1 / 6)(x @ w.T, observed)
    for labels in (observed, observed.to_sparse_coo()):
        mean = torch.stack([chunked_loss(x, w, None, labels, criterion, chunk=4) for _ in range(600)]).mean()
        assert mean.item() == pytest.approx(want.item(), rel=0.1)


def test_autocast_and_half_gradients() -> None:
    torch.manual_seed(0)
    x, w, b = (torch.randn(s).requires_grad_() for s in ((32, 16), (50, 16), (50,)))
    observed = torch.randint(-1, 2, (32, 50), dtype=torch.int8)
    exact = onelabel.method("an")(x @ w.T + b, observed)
    slopes = torch.autograd.grad(exact, (x, w, b))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = chunked_loss(x, w, b, observed, onelabel.method("an"), chunk=20)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-2)
    for got, want in zip(torch.autograd.grad(loss, (x, w, b)), slopes, strict=True):
        assert got.dtype == torch.float32
        assert ((got - want).norm() / want.norm()).item() < 2e-2


def test_only_what_needs_a_gradient_gets_one() -> None:
    tensors, observed = problem()
    x, w, b = (t.detach() for t in tensors)
    criterion, _ = made("an", observed)
    assert not chunked_loss(x, w, b, observed, criterion).requires_grad
    live = w.clone().requires_grad_()
    loss = chunked_loss(x, live, None, observed, criterion, chunk=8)
    loss.backward(retain_graph=True)
    (want,) = torch.autograd.grad(criterion(x @ (again := w.clone().requires_grad_()).T, observed), again)
    assert live.grad is not None
    assert torch.allclose(live.grad, want)
    loss.backward()
    assert torch.allclose(live.grad, 2 * want)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(chunked_loss(x, live, None, observed, criterion), live, create_graph=True)


def test_head_trains_and_predicts() -> None:
    torch.manual_seed(0)
    classes = 300
    head = ChunkedHead(16, classes, onelabel.method("an"), chunk=64)
    centres, target = torch.randn(classes, 16), torch.randint(classes, (512,))
    features = centres[target]
    observed = Observed(torch.arange(512), target, torch.ones(512, dtype=torch.int8), (512, classes))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.3)
    for _ in range(60):
        optimizer.zero_grad()
        head(features, observed).backward()
        optimizer.step()
    scores, found = head.predict_topk(features, 5)
    assert (found[:, 0] == target).float().mean() > 0.95
    whole = torch.sigmoid(head.logits(features)).topk(5)
    assert torch.allclose(scores, whole.values)
    assert torch.equal(found, whole.indices)
    assert torch.allclose(head.logits(features, slice(10, 20)), head.logits(features)[:, 10:20], atol=1e-5)
    assert set(head.state_dict()) == {"weight", "bias"}


def test_errors_name_what_is_wrong() -> None:
    tensors, observed = problem()
    an = onelabel.method("an")
    with pytest.raises(ValueError, match="observed must have shape"):
        chunked_loss(*tensors, observed[:, :5], an)  # type: ignore[misc]
    with pytest.raises(TypeError, match="observed must be"):
        chunked_loss(*tensors, [[1]], an)  # type: ignore[misc, arg-type]
    with pytest.raises(ValueError, match="features must be B×D"):
        chunked_loss(tensors[0], tensors[1].T, None, observed, an)
    with pytest.raises(ValueError, match="bias"):
        chunked_loss(tensors[0], tensors[1], tensors[2][:3], observed, an)
    with pytest.raises(ValueError, match="chunk"):
        chunked_loss(*tensors, observed, an, chunk=0)  # type: ignore[misc]
    with pytest.raises(ValueError, match="stack"):
        chunked_loss(*tensors, observed, onelabel.method("em", alpha=[0.1, 0.2]))  # type: ignore[misc]
    for other in (
        onelabel.method("lasd"),
        onelabel.method("l1r"),
        onelabel.method("gr", trainable=True, num_classes=L),
    ):
        with pytest.raises(ValueError, match="cannot be chunked"):
            chunked_loss(*tensors, observed, other)  # type: ignore[misc]
    table = onelabel.method("role").bind(onelabel.Labels.from_matrix(observed.numpy()))
    with pytest.raises(ValueError, match="factorised"):
        chunked_loss(*tensors, observed, table, index=torch.arange(B))  # type: ignore[misc]
    with pytest.raises(ValueError, match="index"):
        chunked_loss(*tensors, observed, made("role", observed)[0])  # type: ignore[misc]
    head = ChunkedHead(D, L, an)
    with pytest.raises(ValueError, match="k must lie"):
        head.predict_topk(torch.zeros(1, D), 99)
    assert chunk_size(torch.zeros(1024, 8), 20_000) < 20_000
