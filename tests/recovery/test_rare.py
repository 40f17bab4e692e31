"""Intervals of rare classes: against exact binomial and Poisson limits, and against redrawn audits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onelabel.labels import Labels, drop_labels
from onelabel.recovery import estimate_audit, plan_audit, recover
from onelabel.recovery.preference import NamingTest, naming_test
from onelabel.recovery.rare import Audited, class_parts

stats = pytest.importorskip("scipy.stats")


def audited(n: int, weight: float, hits: int, *, called: int = 0, right: int = 0, seen: int = 0) -> Audited:
    """One class: of n audited entries `called` are called present (`right` of them are), `hits` of the rest present."""
    y, added, observed = np.zeros((n, 1)), np.zeros((n, 1)), np.zeros((n, 1))
    added[:called], y[:right] = 1, 1
    observed[n - seen :], y[n - seen :] = 1, 1
    y[called : called + hits] = 1
    total = n * weight
    return Audited(
        np.full((n, 1), weight), y, added, observed, np.array([called * weight]), np.array([seen * weight]), total
    )


@pytest.mark.parametrize("hits", [0, 1, 3, 12])
def test_equal_weights_give_the_gamma_limits_of_a_poisson_count(hits: int) -> None:
    weight = 1e4  # so large that drawing without replacement does not matter
    rest = class_parts(audited(100, weight, hits), 0.95).rest
    low = stats.chi2.ppf(0.025, 2 * hits) / 2 if hits else 0.0  # Garwood's exact lower limit
    assert rest.low[0] / weight == pytest.approx(low, rel=2e-3, abs=1e-9)
    exact = stats.chi2.ppf(0.975, 2 * (hits + 1)) / 2
    assert low < hits + 1e-9 < rest.high[0] / weight < exact  # mid-P lies within the exact limits
    nothing = class_parts(audited(100, weight, 0), 0.95).rest.high[0] / weight
    assert 2.0 < nothing < 3.7  # the rule of three


def test_called_entries_follow_jeffreys() -> None:
    weight = 1e6
    part = class_parts(audited(50, weight, 0, called=20, right=14), 0.95).added
    low, high = stats.beta.ppf([0.025, 0.975], 14.5, 6.5)
    assert part.low[0] / (20 * weight) == pytest.approx(low, rel=1e-4)
    assert part.high[0] / (20 * weight) == pytest.approx(high, rel=1e-4)


def test_what_was_drawn_is_known() -> None:
    part = class_parts(audited(40, 1.0, 5, called=10, right=7, seen=4), 0.95)
    for each, true in ((part.added, 7), (part.rest, 5), (part.wrong, 0)):
        np.testing.assert_allclose([each.low[0], each.mid[0], each.high[0]], true)
    low, high = class_parts(audited(40, 1.2, 5, called=10, right=7), 0.95).interval(lambda a, r, w: a + r)
    assert 12 <= low[0] < high[0] <= 48 - 3  # three calls are known to be wrong


def test_long_tail_is_covered(tmp_path: Path) -> None:
    """30 classes down to 1 in 300: intervals hold the truth in every bin of frequency; the counts are unbiased."""
    rng = np.random.default_rng(0)
    share = 0.3 / np.arange(1, 31) ** 1.3
    y = rng.random((1500, 30)) < share
    y[~y.any(1), 0] = True
    labels = drop_labels(y.astype(np.uint8), seed=0)
    scores = (4 * y - 4 + 1.3 * rng.standard_normal(y.shape)).astype(np.float32)
    file = recover(None, Labels.from_matrix(labels.to_dense()), tmp_path / "r.parquet", scores=scores, show=False).file
    done = file.labels().to_dense() > 0
    recall = (y & done).sum(0) / y.sum(0)
    inside, values, blind = [], [], 0
    for seed in range(30):
        plan = plan_audit(file, rows=120, seed=seed)
        found = estimate_audit(file, plan, np.where(y[plan.rows], 1, -1).astype(np.int8)).classes.values()
        spans = [(e["count"].low, e["count"].high, e["recall"].low, e["recall"].high) for e in found]
        low, high, from_, to = np.array(spans).T
        inside.append([(low <= y.sum(0)) & (y.sum(0) <= high), (from_ - 1e-9 <= recall) & (recall <= to + 1e-9)])
        values.append([e["count"].value for e in found])
        for e in found:
            assert e["added_precision"].low <= e["added_precision"].high or np.isnan(e["added_precision"].low)
            if not e["added_precision"].estimable:
                blind += 1
                assert str(e["added_precision"]).startswith("not estimable")
                assert (e["added_precision"].low, e["added_precision"].high) == (0, 1)
    assert blind > 0
    covered = np.mean(inside, 0)  # 2×30
    for start, stop in ((0, 5), (5, 15), (15, 30)):
        assert covered[:, start:stop].mean(1).min() > 0.93
    v = np.array(values).mean(0).sum()
    error = np.array(values).sum(1).std(ddof=1) / 30**0.5
    assert abs(v - y.sum()) < 3.5 * error


def test_naming_test_sees_a_preference_and_only_one() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random((400, 5)) < 0.4).astype(np.uint8)
    y[~y.any(1), 0] = 1
    answers = np.where(y > 0, 1, -1).astype(np.int8)
    names = list("abcde")
    fair = [naming_test(drop_labels(y, seed=s).to_dense(), answers, names, repeats=200) for s in range(20)]
    assert np.mean([t.probability < 0.1 for t in fair if t]) < 0.35
    drawn = drop_labels(y, scheme="weights", class_weights=[3, 1, 1, 1, 1], seed=0).to_dense()
    found = naming_test(drawn, answers, names, repeats=200)
    assert found is not None
    assert found.probability < 0.01
    assert found.first[0][0] == "a"
    several = y.sum(1) > 1
    assert found.rows == several.sum()
    assert found.first[0][1] == ((drawn[:, 0] > 0) & several).sum()
    assert found.first[0][2] == pytest.approx((1 / y.sum(1))[several & (y[:, 0] > 0)].sum())
    assert "not a fair draw" in str(found)
    one = str(NamingTest(1, 0.1, 0.9, (), ()))
    assert one == "naming: 1 audited row with several labels shows no preference (p = 0.9)"
    assert naming_test(drawn[~several], answers[~several], names) is None
