"""Measurements in units of their own."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from onelabel.models.columns import ROWS, Columns, columns_of, even

rng = np.random.default_rng(0)


def test_only_columns_in_units_of_their_own_are_touched() -> None:
    X = rng.normal(1.0, 1.0, (200, 40)).astype(np.float32)
    assert columns_of(X) is None
    assert columns_of(X * np.linspace(1, 20, 40, dtype=np.float32)) is None  # as a network's differ
    assert columns_of(X[:, :1]) is None
    assert columns_of(np.zeros((5, 3), np.float32)) is None
    units = 10.0 ** np.linspace(-2, 2, 40, dtype=np.float32)
    made = columns_of(X * units)
    assert isinstance(made, Columns)
    assert isinstance(made, nn.Identity)  # no network: what asks for features asks for this
    found = made(torch.from_numpy(X * units))
    torch.testing.assert_close(found.mean(0), torch.zeros(40), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.std(0, correction=0), torch.ones(40), atol=1e-4, rtol=0)


def test_a_column_that_says_nothing_stays_finite() -> None:
    X = (rng.normal(0, 1, (50, 10)) * 10.0 ** np.arange(-4, 6)).astype(np.float32)
    X[:, 3] = 7.0  # constant
    X[:, 4] = 1e6 + np.float32(0.03) * rng.normal(size=50)  # constant but for rounding
    made = columns_of(X)
    assert made is not None
    assert made.scale[3] == 1
    assert torch.isfinite(made(torch.from_numpy(X))).all()
    assert made(torch.from_numpy(X))[:, :5].abs().max() < 10


def test_parts_by_the_first_ones_moments() -> None:
    units = 10.0 ** np.linspace(-2, 2, 6, dtype=np.float32)
    first, second = (rng.normal(3, 1, (ROWS + 500, 6)).astype(np.float32) * units for _ in range(2))
    one, none, other = even(first, None, second + units)
    assert none is None
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(other.mean(0), 1, atol=0.05)  # a deviation further, and still so
    same = even(first / units, second)
    assert same[0] is not None
    assert same[1] is second
