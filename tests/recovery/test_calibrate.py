"""Probabilities from one observed label per row, against exact enumeration and against truth that was made up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from onelabel.labels import Labels, drop_labels
from onelabel.metrics import calibration_error
from onelabel.recovery.calibrate import LIMIT, Calibration, draw_sample, fit_calibration
from onelabel.recovery.folds import ArrayScores
from onelabel.recovery.naming import naming_posterior


def made_up(rows: int = 3000, classes: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, true labels drawn from them given that there is one, and one uniformly drawn observed label."""
    rng = np.random.default_rng(seed)
    z = 2.0 * rng.standard_normal((4 * rows, classes)) - np.linspace(2, 4.5, classes)
    y = rng.random(z.shape) < 1 / (1 + np.exp(-z))
    keep = np.flatnonzero(y.any(1))[:rows]
    y = y[keep].astype(np.uint8)
    return z[keep], y, drop_labels(y, seed=seed).to_dense()


def test_posterior_is_that_of_enumeration() -> None:
    p = np.random.default_rng(0).uniform(0.02, 0.9, (3, 5))
    given = [0, 2, 4]
    for row, o in zip(p, given, strict=True):
        top, bottom = np.zeros(5), 0.0
        for y in itertools.product([0, 1], repeat=5):
            if not y[o]:
                continue
            weight = np.prod([a if b else 1 - a for a, b in zip(row, y, strict=True)]) / sum(y)
            top += weight * np.array(y)
            bottom += weight
        positive = torch.zeros(1, 5, dtype=torch.bool)
        positive[0, o] = True
        found = naming_posterior(torch.tensor(row)[None], positive, torch.zeros_like(positive))
        np.testing.assert_allclose(found[0].numpy(), top / bottom, rtol=1e-9)


def test_many_classes_differ_little_from_the_exact_ones() -> None:
    p = torch.sigmoid(torch.randn(200, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 5)
    positive = torch.zeros(200, 60, dtype=torch.bool)
    positive[torch.arange(200), torch.arange(200) % 60] = True
    none = torch.zeros_like(positive)
    exact = naming_posterior(p, positive, none, exact=60)
    assert (naming_posterior(p, positive, none) - exact).abs().max() < 2e-3


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.3, 1.0), (5.0, -3.0)])
def test_any_scale_of_scores_comes_out_calibrated(slope: float, shift: float) -> None:
    z, y, observed = made_up()
    labels = Labels.from_matrix(observed)
    scores = ((z - shift) / slope).astype(np.float32)
    fitted = fit_calibration(draw_sample(ArrayScores(scores), labels))
    assert fitted.converged
    q = fitted.posterior(scores.astype(np.float64), observed).numpy()
    unknown = observed == 0
    assert calibration_error(q, y, mask=unknown) < 0.012
    assert fitted.k == pytest.approx(y.sum(1).mean(), rel=0.06)
    raw = 1 / (1 + np.exp(-scores))
    if slope != 1.0:
        assert calibration_error(q, y, mask=unknown) < calibration_error(raw, y, mask=unknown) / 2


def test_given_k_is_held() -> None:
    z, _, observed = made_up(1500)
    sample = draw_sample(ArrayScores(z), Labels.from_matrix(observed))
    fitted = fit_calibration(sample, k=2.5)
    q = fitted.posterior(z, observed).numpy()
    assert (q * (observed == 0)).sum(1).mean() + 1 == pytest.approx(2.5, abs=0.02)
    for wrong in (1.0, 0.5, 11.0):
        with pytest.raises(ValueError, match="k must lie in"):
            fit_calibration(sample, k=wrong)


def test_both_readings_of_doubt_bracket() -> None:
    z, _, observed = made_up(1500)
    sample = draw_sample(ArrayScores(z), Labels.from_matrix(observed))
    either = fit_calibration(sample)
    assert fit_calibration(sample, doubt="both").k > either.k


def test_scores_of_certain_probabilities_and_identical_pictures() -> None:
    classes = 4
    observed = np.zeros((80, classes), np.int8)
    observed[np.arange(80), np.arange(80) % 3] = 1  # the last class was never observed
    for scores in (np.zeros((80, classes)), np.full((80, classes), np.inf), np.where(observed > 0, np.inf, -np.inf)):
        sample = draw_sample(ArrayScores(scores), Labels.from_matrix(observed))
        fitted = fit_calibration(sample)
        q = fitted.posterior(scores, observed).numpy()
        assert np.isfinite(q).all()
        assert q.min() >= 0
        assert q.max() <= 1
        assert float(sample.scores.abs().max()) <= LIMIT
    q = fit_calibration(draw_sample(ArrayScores(np.zeros((80, 4))), Labels.from_matrix(observed)))
    same = q.posterior(np.zeros((80, 4)), observed).numpy()
    unknown = observed == 0
    assert same[:, 3].max() < same[:, :3][unknown[:, :3]].min()  # never named: least likely
    for o in range(3):  # rows with one and the same label are alike in everything
        assert np.ptp(same[observed[:, o] > 0], axis=0).max() < 1e-9


def test_rows_without_a_positive_get_the_marginal() -> None:
    fitted = Calibration(np.array([1.0]), np.zeros(0), np.zeros(3), 1.5)
    scores = np.array([[0.3, -1.0, 2.0], [0.3, -1.0, 2.0]])
    observed = np.array([[0, 0, 0], [1, 0, 0]], np.int8)
    q, p = fitted.posterior(scores, observed).numpy(), fitted.marginal(scores).numpy()
    np.testing.assert_allclose(q[0], p[0])
    assert q[1, 0] == pytest.approx(p[1, 0])  # an observed entry is judged as if it had not been observed
    assert (q[1, 1:] < p[1, 1:]).all()  # that another was named speaks against further ones
    with pytest.raises(ValueError, match="exactly one observed positive"):
        draw_sample(ArrayScores(scores), Labels.from_matrix(np.zeros((2, 3), np.int8)))
