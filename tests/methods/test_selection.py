"""Selection by a threshold equals taking the first of a stable order of everything."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onelabel.methods import selection
from onelabel.methods.selection import lowest


def ordered(scores: Tensor, eligible: Tensor, count: Tensor, dim: int) -> Tensor:
    order = scores.masked_fill(~eligible, torch.inf).argsort(dim=dim, stable=True)
    shape = [1] * scores.ndim
    shape[dim] = -1
    first = torch.arange(scores.shape[dim]).view(shape) < count.unsqueeze(dim)
    return torch.zeros_like(eligible).scatter(dim, order, first.expand(scores.shape)) & eligible


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 12), st.integers(1, 7), st.integers(0, 99999), st.sampled_from([-1, -2]), st.booleans())
def test_any_scores_with_ties(rows: int, classes: int, seed: int, dim: int, bounded: bool) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randint(-3, 4, (2, rows, classes), generator=rng).float()
    scores[torch.rand(scores.shape, generator=rng) < 0.1] = -torch.inf
    eligible = torch.rand(scores.shape, generator=rng) < 0.7
    size = scores.shape[dim]
    count = torch.randint(0, size + 3, scores.sum(dim).shape, generator=rng).double()
    most = int(count.max()) if bounded else None
    assert torch.equal(lowest(scores, eligible, count, most=most, dim=dim), ordered(scores, eligible, count, dim))


def test_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, eligible = torch.randn(9, 10), torch.rand(9, 10) < 0.8
    count = torch.arange(10).double()
    want = lowest(scores, eligible, count)
    monkeypatch.setattr(selection, "BLOCK", 30)
    assert torch.equal(lowest(scores, eligible, count), want)
    assert want.sum(0)[0] == 0


def test_nothing_to_choose() -> None:
    scores, eligible = torch.randn(3, 4), torch.ones(3, 4, dtype=torch.bool)
    assert not lowest(scores, eligible, torch.zeros(4), most=0).any()
    assert not lowest(scores, eligible, torch.zeros(4)).any()
    assert lowest(scores[:0], eligible[:0], torch.ones(4)).shape == (0, 4)
