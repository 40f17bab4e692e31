"""Problems that metrics are tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st


@st.composite
def _problems(draw, *, classes=5, rows=30):
    """(scores, true, mask): scores in [0, 1] with many ties, labels of any density, empty and full classes too."""
    shape = draw(st.integers(1, rows)), draw(st.integers(1, classes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([1, 2, 5, 1000]))
    scores = (rng.integers(0, levels + 1, shape) / levels).astype(draw(st.sampled_from([np.float32, np.float64])))
    true = (rng.random(shape) < draw(st.sampled_from([0, 0.1, 0.5, 0.9, 1]))).astype(np.int8)
    mask = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.8, 1]))
    return scores, true, mask


@pytest.fixture(scope="session")
def problems() -> Callable[..., Any]:
    """A Hypothesis strategy of (scores, true, mask)."""
    return _problems
