"""Criteria against plain loops, and the prior's EM against the truth it was drawn from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import average_precision_score

from onelabel.labels import Labels
from onelabel.losses.calibrate import fitted_log_likelihood
from onelabel.losses.sample import Sample, draw_sample
from onelabel.probes import CRITERIA, agreement, audit, estimate_priors, lee_liu
from onelabel.probes.criteria import LIKELIHOOD_STEPS, criterion_named, draw_likelihood, positive_rank


@pytest.fixture
def scored() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3, 40, 4)).round(1).astype(np.float32)  # rounded: ties
    observed = np.zeros((40, 4), np.int8)
    observed[np.arange(40), rng.integers(3, size=40)] = 1  # the last class is never observed
    return scores, observed


def test_lee_liu_against_a_loop_over_thresholds(scored):
    scores, observed = scored
    ours = lee_liu(torch.from_numpy(scores), torch.from_numpy(observed)).numpy()
    for m in range(3):
        for c in range(3):
            s, z = scores[m, :, c], observed[:, c] > 0
            best = 0.0
            for t in np.unique(s):
                called = s >= t
                if (called & z).sum() >= 2:
                    best = max(best, (called[z].mean()) ** 2 / called.mean())
            assert ours[m, c] == pytest.approx(best)
    assert np.isnan(ours[:, 3]).all()


def test_positive_rank_against_a_loop(scored):
    scores, observed = scored
    ours = positive_rank(torch.from_numpy(scores), torch.from_numpy(observed)).numpy()
    for m in range(3):
        each = []
        for n in range(40):
            o = int(observed[n].argmax())
            rank = rankdata(-scores[m, n], method="average")[o]
            each.append(1 / rank)
        assert ours[m] == pytest.approx(np.mean(each))


def test_observed_map_is_average_precision_with_unknown_as_absent(scored):
    scores, observed = scored
    ours = CRITERIA["observed-map"].measure(torch.from_numpy(scores), torch.from_numpy(observed)).numpy()
    for m in range(3):
        each = [average_precision_score(observed[:, c] > 0, scores[m, :, c]) for c in range(3)]
        assert ours[m] == pytest.approx(np.mean(each))


def test_agreement_is_the_mean_of_spearmans_correlation():
    scores = np.random.default_rng(1).normal(size=(3, 30, 2)).astype(np.float32)
    each = [spearmanr(scores[a, :, c], scores[b, :, c])[0] for a in range(3) for b in range(a) for c in range(2)]
    assert float(agreement(torch.from_numpy(scores))) == pytest.approx(np.mean(each))
    with pytest.raises(ValueError, match="two seeds"):
        agreement(torch.zeros(1, 3, 2))


def test_a_better_model_is_preferred_by_every_criterion():
    rng = np.random.default_rng(2)
    true = rng.random((400, 6)) < 0.3
    true[np.arange(400), rng.integers(6, size=400)] = True
    observed = np.zeros(true.shape, np.int8)
    for n, row in enumerate(true):
        observed[n, rng.choice(np.flatnonzero(row))] = 1
    noise = rng.normal(size=true.shape)
    scores = torch.from_numpy(np.stack([true + 0.3 * noise, true + 1.0 * noise, noise]))
    for name, criterion in CRITERIA.items():
        labels = torch.from_numpy(true.astype(np.int8) if criterion.clean else observed)
        value = criterion.measure(scores, labels).tolist()
        assert value[0] > value[1] > value[2], name


def test_audit_interval_covers_the_value_and_narrows():
    rng = np.random.default_rng(3)
    true = (rng.random((400, 5)) < 0.4).astype(np.uint8)
    scores = (true + rng.normal(size=true.shape)).astype(np.float32)
    few, many = audit(scores[:25], true[:25]), audit(scores, Labels.from_true(true))
    assert few.low < few.value < few.high
    assert many.high - many.low < few.high - few.low
    assert "25 rows" in str(few)
    with pytest.raises(ValueError, match="fully labelled"):
        audit(scores, Labels.from_classes(np.zeros(400, int), num_classes=5))


@pytest.mark.parametrize("k", [1.4, 2.5])
def test_priors_by_em_find_k_where_the_scores_are_sharp(k):
    rng = np.random.default_rng(4)
    classes, rows = 8, 3000
    prior = rng.dirichlet(np.ones(classes) * 3) * k
    true = rng.random((4 * rows, classes)) < prior.clip(max=0.9)
    true = true[true.any(1)][:rows]
    one = np.array([rng.choice(np.flatnonzero(row)) for row in true])
    # a classifier that sees the truth, give or take, on a scale of its own
    seen = 1 / (1 + np.exp(-(6 * true - 5 + rng.normal(size=true.shape))))
    found = estimate_priors(seen, Labels.from_classes(one, num_classes=classes))
    assert found.converged
    assert found.k == pytest.approx(true.sum(1).mean(), rel=0.1)
    np.testing.assert_allclose(found.priors, true.mean(0), atol=0.06)


def test_priors_refuse_logits_and_shapes():
    labels = Labels.from_classes([0, 1, 2])
    with pytest.raises(ValueError, match="sigmoid"):
        estimate_priors(np.full((3, 3), 2.0), labels)
    with pytest.raises(ValueError, match="shape"):
        estimate_priors(np.full((2, 3), 0.5), labels)


def test_names_of_criteria():
    assert criterion_named("auto", clean=True).name == "clean"
    assert not criterion_named("auto", clean=False).clean
    with pytest.raises(ValueError, match="fully labelled"):
        criterion_named("clean", clean=False)


def draws_of(rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of three models, the first the best, and one of the labels present of every row."""
    rng = torch.Generator().manual_seed(seed)
    true = torch.rand(rows, 6, generator=rng) < torch.tensor([0.5, 0.4, 0.3, 0.2, 0.2, 0.1])
    true = true[true.any(1)]
    named = torch.multinomial(true.float(), 1, generator=rng)
    observed = torch.zeros(true.shape, dtype=torch.int8).scatter_(1, named, 1)
    noise = torch.randn(true.shape, generator=rng)
    return torch.stack([scale * true.float() + noise for scale in (4.0, 2.0, 0.5)]), observed


def test_likelihood_is_that_of_a_calibration_of_each_model() -> None:
    scores, observed = draws_of(400)
    together = draw_likelihood(scores, observed)
    for model, value in zip(scores, together.tolist(), strict=True):
        s = model.double()
        sample = draw_sample((s - s.mean()) / s.std(), Labels.from_matrix(observed.numpy()))
        few, all_steps = (
            float(fitted_log_likelihood(sample, doubt="both", iterations=steps)) for steps in (LIKELIHOOD_STEPS, 200)
        )
        assert value == pytest.approx(few, abs=1e-9)
        assert all_steps - 0.01 < value <= all_steps
    torch.testing.assert_close(draw_likelihood(7 - 3 * (1 - scores), observed), together)  # any scale and level
    assert together[0] > together[1] > together[2]
    torch.testing.assert_close(draw_likelihood(scores[1], observed), together[1])


def test_likelihood_looks_at_each_class_for_itself_as_map_does() -> None:
    scores, observed = draws_of(1500)
    uneven = scores * torch.tensor([0.3, 3.0, 1.0, 0.5, 2.0, 1.0])
    torch.testing.assert_close(draw_likelihood(uneven, observed), draw_likelihood(scores, observed), atol=0.01, rtol=0)


def test_likelihood_compares_rows_as_map_does() -> None:
    """A number of its own added to every row leaves who is first in it, and spoils every class's order of the rows."""
    rng = torch.Generator().manual_seed(0)
    named = torch.arange(600) % 6
    observed = torch.zeros(600, 6, dtype=torch.int8).scatter_(1, named[:, None], 1)  # one label a row, all there is
    scores = 2.0 * observed + torch.randn(600, 6, generator=rng)
    shifted = scores + torch.randn(600, 1, generator=rng)
    both = torch.stack([scores, shifted])
    assert positive_rank(scores, observed) == positive_rank(shifted, observed)
    seen, spoiled = draw_likelihood(both, observed).tolist()
    assert seen > spoiled + 0.2
    given_any = fitted_log_likelihood(Sample(both.double(), observed), doubt="either").tolist()
    assert given_any[0] == pytest.approx(given_any[1], abs=0.01)  # that there is a label given, rows are alike


def test_likelihood_looks_at_some_rows_with_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelabel.probes.criteria.LIKELIHOOD_ENTRIES", 6 * 250)
    scores, observed = draws_of(2000)
    more = torch.cat([observed, torch.ones(40, 6, dtype=torch.int8)])  # rows that say nothing of a draw
    wide = torch.cat([scores, 9 * torch.ones(3, 40, 6)], 1)
    torch.testing.assert_close(draw_likelihood(wide, more), draw_likelihood(scores, observed))
    everything = draw_likelihood(scores[:, :250], observed[:250])
    assert not torch.equal(draw_likelihood(scores, observed), everything)  # spread over all rows, not the first
    with pytest.raises(ValueError, match="needs held-out rows with exactly one observed positive"):
        draw_likelihood(scores, torch.ones_like(observed))


def test_likelihood_of_hopeless_scores_is_a_number() -> None:
    _, observed = draws_of(300)
    for scores in (torch.zeros(observed.shape), -1e6 * observed.float(), 1e30 * torch.randn(observed.shape)):
        assert draw_likelihood(scores, observed).isfinite()
