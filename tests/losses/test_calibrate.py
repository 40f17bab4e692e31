"""Probabilities from one observed label per row, against exact enumeration and against truth that was made up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from onelabel.labels import Labels, drop_labels
from onelabel.losses.calibrate import (
    ADRIFT,
    Calibration,
    _climb,
    _made,
    fit_calibration,
    fit_level,
    fitted_log_likelihood,
    log_likelihood,
    log_posterior,
)
from onelabel.losses.draw import draw_log_likelihood, log_any
from onelabel.losses.level import PRIOR_K
from onelabel.losses.sample import LIMIT, Sample, draw_sample, known_sample
from onelabel.metrics import calibration_error


def made_up(rows: int = 3000, classes: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, true labels drawn from them given that there is one, and one uniformly drawn observed label."""
    rng = np.random.default_rng(seed)
    z = 2.0 * rng.standard_normal((4 * rows, classes)) - np.linspace(2, 4.5, classes)
    y = rng.random(z.shape) < 1 / (1 + np.exp(-z))
    keep = np.flatnonzero(y.any(1))[:rows]
    y = y[keep].astype(np.uint8)
    return z[keep], y, drop_labels(y, seed=seed).to_dense()


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.3, 1.0), (5.0, -3.0)])
def test_any_scale_of_scores_comes_out_calibrated(slope: float, shift: float) -> None:
    z, y, observed = made_up()
    labels = Labels.from_matrix(observed)
    scores = ((z - shift) / slope).astype(np.float32)
    fitted = fit_calibration(draw_sample(scores, labels))
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
    sample = draw_sample(z, Labels.from_matrix(observed))
    fitted = fit_calibration(sample, k=2.5)
    q = fitted.posterior(z, observed).numpy()
    assert (q * (observed == 0)).sum(1).mean() + 1 == pytest.approx(2.5, abs=0.02)
    for wrong in (1.0, 0.5, 11.0):
        with pytest.raises(ValueError, match="k must lie in"):
            fit_calibration(sample, k=wrong)


def test_both_readings_of_doubt_bracket() -> None:
    z, _, observed = made_up(1500)
    sample = draw_sample(z, Labels.from_matrix(observed))
    either = fit_calibration(sample)
    assert fit_calibration(sample, doubt="both").k > either.k


@pytest.mark.parametrize("seed", range(4))
def test_scores_that_say_nothing_leave_the_level_to_the_prior(seed: int) -> None:
    """Noise that every row has of its own: the likelihood is level from one label a row to nearly all, give or take."""
    rng = np.random.default_rng(seed)
    _, _, observed = made_up(1000, seed=seed)
    sample = draw_sample(rng.standard_normal(observed.shape), Labels.from_matrix(observed))
    fitted = fit_calibration(sample)
    assert 1.2 < fitted.k < 3
    assert not fitted.given_k
    others = [fit_level(sample, k, fitted) for k in (1.2, PRIOR_K, 3.0, 6.0, 9.0)]
    assert log_posterior(fitted, sample) >= max(log_posterior(other, sample) for other in others) - ADRIFT - 0.01


def test_a_level_that_scores_tell_is_not_the_priors() -> None:
    """True k 1.2 and 2.9, far from the prior's 1.7 to either side."""
    rng = np.random.default_rng(0)
    for shift in (-2.5, 0.0):
        z = 2.0 * rng.standard_normal((12_000, 20)) - np.linspace(2, 4.5, 20) + shift
        y = rng.random(z.shape) < 1 / (1 + np.exp(-z))
        keep = np.flatnonzero(y.any(1))[:4000]
        true = y[keep].astype(np.uint8)
        fitted = fit_calibration(draw_sample(z[keep], drop_labels(true, seed=0)))
        assert fitted.k == pytest.approx(true.sum(1).mean(), rel=0.1)
        assert abs(fitted.k - PRIOR_K) > 0.3


def test_of_the_fits_of_a_level_the_likeliest_is_taken() -> None:
    """Begun from a cliff instead of a curve, it comes out as likely as begun from a good fit."""
    z, _, observed = made_up(1500)
    sample = draw_sample(z, Labels.from_matrix(observed))
    near = fit_calibration(sample)
    cliff = replace(near, slope=np.array([0.0, 40.0, -40.0, 40.0]))
    found = fit_level(sample, 2.0, cliff)
    assert found.k == 2.0
    assert log_posterior(found, sample) > log_posterior(fit_calibration(sample, k=2.0, start=cliff), sample) - 0.5
    assert log_posterior(found, sample) == pytest.approx(log_posterior(fit_level(sample, 2.0, near), sample), abs=1.0)


def test_scores_of_certain_probabilities_and_identical_pictures() -> None:
    classes = 4
    observed = np.zeros((80, classes), np.int8)
    observed[np.arange(80), np.arange(80) % 3] = 1  # the last class was never observed
    for scores in (np.zeros((80, classes)), np.full((80, classes), np.inf), np.where(observed > 0, np.inf, -np.inf)):
        sample = draw_sample(scores, Labels.from_matrix(observed))
        fitted = fit_calibration(sample)
        q = fitted.posterior(scores, observed).numpy()
        assert np.isfinite(q).all()
        assert q.min() >= 0
        assert q.max() <= 1
        assert float(sample.scores.abs().max()) <= LIMIT
    q = fit_calibration(draw_sample(np.zeros((80, 4)), Labels.from_matrix(observed)))
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
        draw_sample(scores, Labels.from_matrix(np.zeros((2, 3), np.int8)))


# -- a line, of one draw a row or of true labels -------------------------------------------------------------------


def lined(rows: int, *, empty: bool = False, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Scores s, labels with chances σ(0.6·s + b), one of each row's drawn; rows without any left out unless `empty`."""
    rng = torch.Generator().manual_seed(seed)
    s = 3 * torch.randn(rows, 8, generator=rng) + 1
    true = (torch.rand(rows, 8, generator=rng) < torch.sigmoid(SLOPE * s + INTERCEPT)).to(torch.uint8)
    if not empty:
        some = true.any(1).bool()
        s, true = s[some], true[some]
    some = true.any(1).bool()
    observed = torch.zeros(true.shape, dtype=torch.int8)
    observed[some] = observed[some].scatter(1, torch.multinomial(true[some].float(), 1, generator=rng), 1)
    return s, true, observed


SLOPE, INTERCEPT = 0.6, torch.tensor([-2.5, -1.5, -1.0, -2.0, -0.5, -1.8, -2.2, -1.2])


def best_line(s: Tensor, z: Tensor, *, drawn: bool) -> tuple[float, Tensor]:
    """The same optimum by L-BFGS on the likelihood itself, with the same pull of the intercepts to their mean."""
    s = s.double()
    a = torch.ones(1, dtype=torch.float64, requires_grad=True)
    b = torch.full((s.shape[1],), -1.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [a, b], max_iter=300, tolerance_grad=1e-9, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        at = a * s + b
        likelihood = draw_log_likelihood(at, z) - (log_any(at) if drawn else 0)
        value = -likelihood.sum() + ((b - b.mean()) ** 2).sum() / 8
        value.backward()
        return value

    optimizer.step(closure)
    return a.item(), b.detach()


def test_a_line_from_true_labels() -> None:
    s, true, _ = lined(4000, empty=True)
    line = fit_calibration(known_sample(s, true), knots=(), doubt="both")
    assert line.converged
    assert line.k == pytest.approx(true.sum(1).float().mean().item(), rel=1e-6)
    slope, intercept = best_line(s, true.to(torch.int8) * 2 - 1, drawn=False)
    assert line.slope.item() == pytest.approx(slope, abs=2e-3)
    np.testing.assert_allclose(line.intercept, intercept, atol=5e-3)
    assert slope == pytest.approx(SLOPE, abs=0.03)
    np.testing.assert_allclose(line.intercept, INTERCEPT, atol=0.25)


def test_a_line_from_one_draw_a_row() -> None:
    s, true, observed = lined(6000)
    line = fit_calibration(draw_sample(s, Labels.from_matrix(observed.numpy())), knots=())
    slope, intercept = best_line(s, observed, drawn=True)
    assert line.converged
    assert line.slope.item() == pytest.approx(slope, abs=0.01)
    np.testing.assert_allclose(line.intercept, intercept, atol=0.05)
    assert line.k == pytest.approx(true.sum(1).float().mean().item(), abs=0.2)
    assert abs(line.k - 1) > 1, "one label a row, as observed, would be far off"
    torch.testing.assert_close(line.logits(s), (s * line.slope.item() + torch.tensor(line.intercept)).float())


def test_rows_that_say_nothing_of_a_draw_do_not_count() -> None:
    s, _, observed = lined(500)
    more = torch.zeros(100, 8, dtype=torch.int8)
    more[:50, :2] = 1
    labels = Labels.from_matrix(torch.cat([observed, more]).numpy())
    both = fit_calibration(draw_sample(torch.cat([s, torch.randn(100, 8)]), labels), knots=())
    alone = fit_calibration(draw_sample(s, Labels.from_matrix(observed.numpy())), knots=())
    assert (both.slope, both.k) == (alone.slope, alone.k)


@pytest.mark.parametrize("what", ["constant scores", "a class nobody has", "one class", "separable"])
def test_a_line_is_finite(what: str) -> None:
    s, true, observed = lined(200)
    if what == "constant scores":
        s = torch.full_like(s, 0.5)
    if what == "a class nobody has":
        true[:, 0], observed[:, 0] = 0, 0
    if what == "one class":
        s, true, observed = s[:, :1], true[:, :1], torch.ones(len(s), 1, dtype=torch.int8)
    if what == "separable":
        s = true.float() * 20 - 10
    drawn = draw_sample(s, Labels.from_matrix(observed.numpy()))
    for sample, doubt in ((known_sample(s, true), "both"), (drawn, "either"), (drawn, "both")):
        line = fit_calibration(sample, knots=(), doubt=doubt)
        assert 0 < line.slope.item() < math.inf
        assert np.isfinite(line.intercept).all()
        assert 0 <= line.k <= s.shape[1]


def test_a_large_sample_is_cut() -> None:
    s, true, observed = lined(3000)
    assert len(draw_sample(s, Labels.from_matrix(observed.numpy()), entries=4000).scores) == 500
    cut = known_sample(s, true, entries=4000)
    assert cut.scores.shape == cut.observed.shape == (500, 8)
    assert set(cut.observed.unique().tolist()) == {-1, 1}


@pytest.mark.parametrize("own", [0.0, 1.0])
@pytest.mark.parametrize("doubt", ["either", "both"])
def test_a_stack_is_fitted_as_each_of_its_models_alone(doubt: str, own: float, monkeypatch: pytest.MonkeyPatch) -> None:
    s, true, observed = lined(300)
    rng = torch.Generator().manual_seed(3)
    noise = torch.randn(s.shape, generator=rng)
    stack = torch.stack([s, s + 3 * noise, noise, 20.0 * true - 10, 0.01 * s]).double()
    for entries in (150_000, 400):  # in one block, and in many
        monkeypatch.setattr("onelabel.losses.sample.BLOCK_ENTRIES", entries)
        together = fitted_log_likelihood(Sample(stack, observed), doubt=doubt, own=own)
        steps = set()
        for scores, value in zip(stack, together.tolist(), strict=True):
            sample = Sample(scores, observed)
            line = _made(_climb(sample, knots=(), doubt=doubt), None)  # what `fit_calibration` begins with
            steps.add(line.iterations)
            shared = log_likelihood(line, sample, doubt=doubt)
            if own:
                alone = fitted_log_likelihood(sample, doubt=doubt, own=own)
                assert value == pytest.approx(float(alone), abs=1e-9)
                assert value > shared - 0.01
            else:
                assert value == pytest.approx(shared, abs=1e-9)
        assert len(steps) > 2, "they should arrive one after another"


@pytest.mark.parametrize("doubt", ["either", "both"])
def test_classes_with_slopes_of_their_own(doubt: str) -> None:
    """Scores too small in some classes and too large in others say the same once each class has its slope."""
    z, _, observed = made_up()
    uneven = z * np.geomspace(0.25, 4, z.shape[1])
    right, bent, free, held = (
        float(fitted_log_likelihood(draw_sample(scores, Labels.from_matrix(observed)), doubt=doubt, own=own))
        for scores, own in ((z, 0.0), (uneven, 0.0), (uneven, 1.0), (uneven, 1e-4))
    )
    assert bent < right - 0.05
    assert free == pytest.approx(right, abs=0.005)
    assert held == pytest.approx(bent, abs=1e-4)
