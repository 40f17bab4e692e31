"""What validation says where nobody knows its true labels."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from onelabel.labels import Labels
from onelabel.losses.calibrate import OWN, _climb
from onelabel.losses.sample import draw_sample
from onelabel.training.evaluate import draw_likelihood, draws


def named_rows(rows: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """True labels of rows that have any, the one named of each, and a feed that knows the names alone."""
    rng = np.random.default_rng(0)
    true = (rng.random((rows, 4)) < [0.7, 0.4, 0.3, 0.5]).astype(np.uint8)
    true = true[true.any(1)]
    named = np.array([rng.choice(np.flatnonzero(row)) for row in true])
    observed = np.zeros(true.shape, np.int8)
    observed[np.arange(len(true)), named] = 1
    return true, named, SimpleNamespace(part=SimpleNamespace(observed=Labels.from_matrix(observed)))


def test_the_likelihood_of_draws_against_every_label_set() -> None:
    true, named, feed = named_rows(400)
    noise = np.random.default_rng(1).normal(size=true.shape)
    p = torch.sigmoid(torch.from_numpy(3.0 * true - 1.5 + noise))
    logits = torch.logit(p.float())
    fit = _climb(draw_sample(logits, feed.part.observed), knots=(), doubt="both", own=OWN)
    fitted = torch.sigmoid(fit.a[0] * fit.scale[0] * logits.double() + fit.b[0])
    assert not torch.allclose(fit.scale, torch.ones(()).double(), atol=0.02)
    total = 0.0
    for row, o in zip(fitted.tolist(), named.tolist(), strict=True):
        chances = {
            y: math.prod(q if on else 1 - q for q, on in zip(row, y, strict=True)) for y in product((0, 1), repeat=4)
        }
        total += math.log(sum(c / sum(y) for y, c in chances.items() if y[o]))
    assert draw_likelihood(p, feed) == pytest.approx(total / len(true), abs=1e-5)


def test_it_prefers_who_knows_all_labels_to_who_guesses_the_name() -> None:
    """A network that says the commonest label present and nothing else has the better mAP of names, and loses here."""
    from onelabel.metrics import mean_average_precision

    true, named, feed = named_rows(2000)
    noise = 0.3 * np.random.default_rng(1).normal(size=true.shape)
    everything = torch.from_numpy(4.0 * true - 2 + noise)
    only = np.where(
        true.sum(1, keepdims=True) == 1, true, 0.3 * true
    )  # sure where there is one label, silent elsewhere
    single = torch.from_numpy(4.0 * only - 2 + noise)
    names = torch.zeros(true.shape, dtype=torch.uint8)
    names[torch.arange(len(true)), torch.from_numpy(named)] = 1
    assert mean_average_precision(single, names) > mean_average_precision(everything, names)
    assert draw_likelihood(torch.sigmoid(single), feed) < draw_likelihood(torch.sigmoid(everything), feed)


def test_where_there_are_draws() -> None:
    for rows, wanted in (([[1, 1, 0], [0, 0, 0]], False), ([[1, 1, 0], [0, 1, 0]], True)):
        feed: Any = SimpleNamespace(part=SimpleNamespace(observed=Labels.from_matrix(np.array(rows, np.int8))))
        assert draws(feed) is wanted
