"""Streaming average precision: its bounds hold, are attained, and add up."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from onelabel.metrics import average_precision
from onelabel.metrics.streaming import StreamingAveragePrecision, gathered_average_precision


def problem(n: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    true = torch.rand(n, classes, generator=rng) < 0.1
    true[0] = True
    return torch.randn(n, classes, generator=rng) + 2 * true - 3, true


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 9), st.booleans(), st.sampled_from([1.0, 4.0, 0.1]))
def test_bounds_hold(seed: int, n: int, bits: int, ties: bool, scale: float) -> None:
    scores, true = problem(n, 3, seed)
    scores = (scores * scale).round() if ties else scores * scale
    exact = average_precision(scores, true)
    for span in (None, (-4.0, 2.0)):
        got = StreamingAveragePrecision(3, bits=bits, range=span).update(scores, true).compute()
        assert (got.lower <= exact + 1e-12).all()
        assert (got.upper >= exact - 1e-12).all()
        assert ((got.value - exact).abs() <= got.error + 1e-12).all()


def test_bounds_are_attained_within_a_bin() -> None:
    """Over all orders of one bin, ties included, the least and greatest AP are the bounds."""
    above_true, above_false = 2, 3
    for a, b in ((1, 1), (2, 1), (2, 2), (3, 2)):
        values = []
        for levels in itertools.product(range(a + b), repeat=a + b):  # a score level for each entry of the bin
            y = np.r_[np.ones(above_true), np.zeros(above_false), np.ones(a), np.zeros(b)]
            s = np.r_[np.full(above_true + above_false, 100.0), np.array(levels, float)]
            values.append(average_precision_score(y, s))
        ap = StreamingAveragePrecision(1, bits=1, range=(-100.0, 200.0))
        ap.update(torch.tensor(s, dtype=torch.float64)[:, None], torch.tensor(y)[:, None])
        got = ap.compute()
        top = above_true**2 / (above_true + above_false)  # the two entries above are tied, whatever the bound
        total = above_true + a
        assert got.upper.item() == pytest.approx(max(values) + (above_true - top) / total, abs=1e-12)
        least = sum((above_true + i) / (above_true + i + above_false + b) for i in range(1, a + 1))
        assert min(values) == pytest.approx((top + least) / total, abs=1e-12)
        assert got.lower.item() <= min(values)


def test_fine_bins_give_the_value_of_scikit_learn() -> None:
    scores, true = problem(4000, 5)
    got = StreamingAveragePrecision(5, bits=20, range=(-10, 10)).update(scores, true).compute()
    want = [average_precision_score(true[:, c].numpy(), scores[:, c].numpy()) for c in range(5)]
    assert got.error.max() < 2e-3
    assert (got.value - torch.tensor(want)).abs().max() < 2e-3
    mean = got.mean()
    assert mean.lower <= np.mean(want) <= mean.upper


def test_parts_add_up_in_any_order() -> None:
    scores, true = problem(300, 4)
    mask = torch.rand(300, 4) < 0.7
    whole = StreamingAveragePrecision(4).update(scores, true, mask=mask)
    one, two = StreamingAveragePrecision(4), StreamingAveragePrecision(4)
    one.update(scores[200:], true[200:], mask=mask[200:])
    two.update(scores[:200].numpy(), true[:200].numpy(), mask=mask[:200].numpy())
    assert torch.equal(one.merge(two).counts, whole.counts)
    exact = average_precision(scores, true, mask=mask)
    got = whole.compute()
    assert ((got.lower <= exact) & (exact <= got.upper)).all()


def test_classes_without_positives_and_odd_scores() -> None:
    scores = torch.tensor([[0.0, -0.0], [torch.inf, 1.0], [-torch.inf, 2.0]])
    true = torch.tensor([[1, 0], [0, 0], [1, 0]])
    for span in (None, (-1.0, 1.0)):
        ap = StreamingAveragePrecision(2, bits=6, range=span).update(scores, true)
        assert ap.compute().lower[1] == 0
        assert ap.compute(empty="nan").upper[1].isnan()
        assert ap.compute().lower[0] <= average_precision(scores, true)[0] <= ap.compute().upper[0]
    assert ap.nbytes == 2 * 2 * 64 * 8 + 2


def test_errors_name_the_argument() -> None:
    ap = StreamingAveragePrecision(3)
    with pytest.raises(ValueError, match="expected 3"):
        ap.update(torch.zeros(2, 4), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="NaN"):
        ap.update(torch.full((1, 3), torch.nan), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="bits"):
        StreamingAveragePrecision(3, bits=40)
    with pytest.raises(ValueError, match="range"):
        StreamingAveragePrecision(3, range=(1, 1))
    with pytest.raises(ValueError, match="other"):
        ap.merge(StreamingAveragePrecision(3, bits=5))


def _worker(rank: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    scores, true = problem(101, 7)
    mine = slice(0, 40) if rank == 0 else slice(40, 101)
    exact = gathered_average_precision(scores[mine], true[mine], chunk=3)
    sketch = StreamingAveragePrecision(7).update(scores[mine], true[mine]).all_reduce()
    torch.save({"exact": exact, "counts": sketch.counts}, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(_worker, (port, str(tmp_path)), nprocs=2)
    scores, true = problem(101, 7)
    want = StreamingAveragePrecision(7).update(scores, true)
    for rank in range(2):
        got = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.allclose(got["exact"], average_precision(scores, true), atol=1e-12)
        assert torch.equal(got["counts"], want.counts)


def test_one_process_needs_no_group() -> None:
    scores, true = problem(50, 3)
    assert torch.equal(gathered_average_precision(scores, true), average_precision(scores, true))
