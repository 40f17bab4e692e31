"""The whole of a recovery: folds, the table, thresholds, audits, and the edges."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.labels import Labels, drop_labels
from onelabel.probes import ProbeSpec, choose
from onelabel.probes.folds import assign_folds
from onelabel.recovery import AuditRows, RecoveredFile, crossfit, recover
from onelabel.recovery.correction import fit_correction, logit
from onelabel.recovery.folds import tamed
from onelabel.recovery.summary import ClassSummary, added
from onelabel.recovery.thresholds import Histogram, choose_thresholds

SPEC = ProbeSpec("em", lr=1e-2, batch_size=64, epochs=10)


def dataset(rows: int = 1500, classes: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, scores and true labels: what is present shifts the features."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((classes, 24))
    y = rng.random((rows, classes)) < np.linspace(0.25, 0.08, classes)
    y[np.arange(rows), rng.integers(classes, size=rows)] |= ~y.any(1)
    X = (y @ directions + 0.9 * rng.standard_normal((rows, 24))).astype(np.float32)
    return X, (4 * y - 3 + 1.5 * rng.standard_normal(y.shape)).astype(np.float32), y.astype(np.uint8)


def test_no_row_is_scored_by_a_model_that_saw_it() -> None:
    X, _, y = dataset(200)
    labels = drop_labels(y, seed=0)
    fitted = crossfit(X, labels, spec=SPEC, folds=4, progress=False)
    row = int(np.argmax(labels.indices == 0))  # its first positive, by which folds are dealt, stays
    changed = labels.with_updates([row, row], [5, 6], [1, -1])
    again = crossfit(X, changed, spec=SPEC, folds=4, progress=False)
    np.testing.assert_array_equal(again.fold, fitted.fold)
    np.testing.assert_array_equal(again.rows(np.array([row])), fitted.rows(np.array([row])))
    other = int(np.argmax(fitted.fold != fitted.fold[row]))
    assert (again.rows(np.array([other])) != fitted.rows(np.array([other]))).any()
    mine = fitted.fold[7]
    np.testing.assert_allclose(
        fitted.rows(np.array([7]))[0], X[7] @ fitted.weight[mine].T + fitted.bias[mine], rtol=1e-5, atol=1e-5
    )
    assert len({w.tobytes() for w in fitted.weight}) == 4


@pytest.mark.parametrize("what", ["noise", "the same", "shuffled"])
def test_features_that_say_nothing_add_nothing(what: str, tmp_path: Path) -> None:
    """k is the prior's and open, its interval holds the truth, and nothing is called: once 90% of all entries were."""
    X, _, y = dataset(1200)
    rng = np.random.default_rng(3)
    told = {
        "noise": rng.standard_normal((1200, 40)),
        "the same": np.ones((1200, 8)),
        "shuffled": X[rng.permutation(1200)],
    }
    done = recover(told[what].astype(np.float32), drop_labels(y, seed=0), tmp_path / "r.parquet", method="em")
    low, high = done.k_interval
    assert low <= y.sum(1).mean() <= high
    assert high > 3
    assert done.k_open
    assert added(done.summary).labels == 0


def test_held_out_scores_have_the_share_of_naming_that_was_trained_with() -> None:
    X, _, y = dataset(200)
    spec = ProbeSpec("roll-call", {"naming": 0.5}, lr=1e-2, batch_size=64, epochs=3)
    fitted = crossfit(X, drop_labels(y, seed=0), spec=spec, folds=4, progress=False)
    index = np.array([3, 150, 7])
    for row, found in zip(index, fitted.rows(index), strict=True):
        outputs = X[row] @ fitted.weight[fitted.fold[row]].T + fitted.bias[fitted.fold[row]]
        np.testing.assert_allclose(found, outputs - 0.5 * np.log(np.exp(outputs).sum()), atol=1e-5)


def test_a_class_that_ran_away_in_one_fold_is_brought_back() -> None:
    X, _, y = dataset(400)
    labels = drop_labels(y, seed=0)
    fitted = crossfit(X, labels, spec=SPEC, folds=5, progress=False)
    assert tamed(fitted) is fitted  # where none did, nothing is touched
    weight, bias = fitted.weight.copy(), fitted.bias.copy()
    weight[2, 3] *= 20
    bias[2, 3] = 20 * bias[2, 3] + 50
    wild = replace(fitted, weight=weight, bias=bias)
    back = tamed(wild)
    index = np.arange(400)
    before, there, after = (each.rows(index) for each in (fitted, wild, back))
    others = np.ones((400, 8), bool)
    others[fitted.fold == 2, 3] = False
    np.testing.assert_array_equal(after[others], before[others])
    mine, usual = after[fitted.fold == 2, 3], [before[fitted.fold == f, 3] for f in range(5)]
    middle = np.median([there[fitted.fold == f, 3].mean() for f in range(5)])
    assert mine.mean() == pytest.approx(middle, abs=1e-3)
    assert np.corrcoef(mine, usual[2])[0, 1] == pytest.approx(1, abs=1e-4)  # the order of its rows stays
    assert min(u.std() for u in usual) <= mine.std() <= max(u.std() for u in usual) * 1.001


def test_it_is_brought_back_by_what_its_weights_give() -> None:
    """With a share of naming every class's logit has the one that ran away in it."""
    X, _, y = dataset(400)
    spec = ProbeSpec("roll-call", {"naming": 1.0}, lr=1e-2, batch_size=64, epochs=5)
    fitted = crossfit(X, drop_labels(y, seed=0), spec=spec, folds=4, progress=False)
    weight, bias = fitted.weight.copy(), fitted.bias.copy()
    weight[1, 2] *= 60
    bias[1, 2] *= 60
    again = tamed(replace(fitted, weight=weight, bias=bias))
    rows = np.flatnonzero(fitted.fold == 1)
    for wanted, found in zip(fitted.rows(rows).T, again.rows(rows).T, strict=True):
        assert np.corrcoef(wanted, found)[0, 1] > 0.9


def test_folds_are_stratified() -> None:
    labels = Labels.from_classes(np.repeat([0, 1, 2], [100, 50, 1]), num_classes=4)
    fold = assign_folds(labels, 5)
    for start, stop in ((0, 100), (100, 150)):
        assert np.ptp(np.bincount(fold[start:stop], minlength=5)) <= 1
    with pytest.raises(ValueError, match="folds must lie"):
        assign_folds(labels, 1)


def test_recovered_table(tmp_path: Path) -> None:
    _, scores, y = dataset()
    labels = drop_labels(y, seed=1)
    observed = labels.to_dense()
    done = recover(None, labels, tmp_path / "recovered.parquet", scores=scores, floor=0.1, top=3, show=False)
    rows: dict[int, list[Any]] = {}
    q = done.calibration.posterior(scores, observed).numpy()
    for c in done.file.batches(100):
        for r, k, p, seen, rank in zip(
            c["row"], c["class_index"], c["probability"], c["observed"], c["rank"], strict=True
        ):
            rows.setdefault(int(r), []).append((int(k), float(p), int(seen), int(rank)))
    assert sorted(rows) == list(range(len(y)))
    for r in range(0, len(y), 7):
        order = np.argsort(-q[r], kind="stable")
        ranks = {int(k): i + 1 for i, k in enumerate(order)}
        wanted = {int(k) for k in order[:3] if q[r, k] >= 0.1} | {int(order[0])} | set(np.flatnonzero(observed[r]))
        assert {k for k, *_ in rows[r]} == wanted
        for k, p, seen, rank in rows[r]:
            assert p == pytest.approx(q[r, k], abs=1e-5)
            assert seen == observed[r, k]
            assert rank == ranks[k]
    about = json.loads((tmp_path / "recovered.json").read_text())
    assert about["floor"] == 0.1
    wrong = [{"classes": v} for v in (3, 0.5, "cat", [[]], [{"name": "cat"}], [{"name": "cat", "observed": "many"}])]
    for lie in [*wrong, {"k": None}, {"k_interval": 3}, {"k_interval": ["a", "b"]}]:
        (tmp_path / "recovered.json").write_text(json.dumps(about | lie))
        with pytest.raises(ValueError, match=r"recovered\.json: not what recover writes beside its labels"):
            RecoveredFile.open(tmp_path / "recovered.parquet")
    (tmp_path / "recovered.json").write_text(json.dumps(about))
    assert len((tmp_path / "recovered.csv").read_text().splitlines()) == 9
    for s, true in zip(done.summary, y.sum(0), strict=True):
        assert s.observed <= s.low <= s.expected <= s.high
        assert s.expected == pytest.approx(true, rel=0.35)
    completed = done.labels().to_dense()
    called = (q >= done.thresholds.value) & (observed == 0)
    kept = called & (np.argsort(np.argsort(-q, 1), 1) < 3)
    np.testing.assert_array_equal(completed > 0, kept | (observed > 0))
    assert y[kept].mean() > 0.6


def test_thresholds_maximise_what_they_say() -> None:
    rng = np.random.default_rng(0)
    q = rng.beta(0.3, 1.5, (4000, 3))
    unknown = rng.random(q.shape) < 0.9
    histogram = Histogram(3)
    histogram.add(q[:2500], unknown[:2500])
    histogram.add(q[2500:], unknown[2500:])
    best = choose_thresholds(histogram)
    for c in range(3):
        mine = np.sort(q[unknown[:, c], c])[::-1]
        hits = np.cumsum(mine)
        f1 = 2 * hits / (np.arange(1, len(mine) + 1) + hits[-1])
        at = best.value[c]
        assert 2 * mine[mine >= at].sum() / ((mine >= at).sum() + mine.sum()) > f1.max() - 2e-4
        assert best.called[c] == pytest.approx((mine >= at).sum(), abs=5)
    sure = choose_thresholds(histogram, precision=0.8)
    for c in range(3):
        mine = q[unknown[:, c], c]
        assert mine[mine >= sure.value[c]].mean() >= 0.8 - 1e-6
        assert mine[mine >= sure.value[c] - 0.02].mean() < 0.8
    assert np.isinf(choose_thresholds(histogram, precision=1.0, floor=0.01).value).all()
    assert choose_thresholds(histogram, floor=0.6).value.min() >= 0.6
    with pytest.raises(ValueError, match="precision"):
        choose_thresholds(histogram, precision=0.0)


def test_class_with_one_example_and_class_with_none(tmp_path: Path) -> None:
    X, _, y = dataset(300, 5)
    observed = drop_labels(y, seed=0).to_dense()
    observed[:, 3:] = 0
    observed[5] = [0, 0, 0, 1, 0]  # class 3 once, class 4 never
    labels = Labels.from_matrix(observed)
    done = recover(X, labels, tmp_path / "r.parquet", method=SPEC, folds=3, show=False)
    once, never = done.summary[3], done.summary[4]
    assert once.observed == 1
    assert "once" in once.note
    assert never.observed == 0
    assert "never" in never.note
    assert never.expected < 0.05 * len(y)
    assert np.isfinite([s.expected for s in done.summary]).all()
    from onelabel.recovery import label_errors

    assert all(e.label != "3" for e in label_errors(done.file))


def test_all_pictures_identical(tmp_path: Path) -> None:
    labels = Labels.from_classes(np.arange(120) % 4, num_classes=4)
    X = np.ones((120, 6), np.float32)
    done = recover(X, labels, tmp_path / "r.parquet", method=SPEC, folds=3, show=False)
    q = np.concatenate([c["probability"][c["observed"] == 0] for c in done.file.batches()])
    assert np.isfinite(q).all()
    assert np.ptp(q) < 0.35  # folds differ a little; nothing else does


def test_audit_corrects_and_is_believed(tmp_path: Path) -> None:
    _, scores, y = dataset(2500)
    labels = drop_labels(y, scheme="frequency", bias=2, seed=1)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(y), 400, replace=False))
    values = np.where(y[rows] > 0, 1, -1).astype(np.int8)
    given = labels.to_dense()[rows]
    values[0, np.flatnonzero(given[0] > 0)[0]] = -1  # a person says that the observed label is wrong
    audit = AuditRows(rows, values, np.full(400, 400 / len(y)))
    alone = recover(None, labels, tmp_path / "a.parquet", scores=scores, show=False)
    told = recover(None, labels, tmp_path / "b.parquet", scores=scores, audit=audit, show=False)
    assert told.contradictions == 1
    assert told.correction is not None
    assert abs(told.k - y.sum(1).mean()) < abs(alone.k - y.sum(1).mean())
    assert told.k_interval[0] <= y.sum(1).mean() <= told.k_interval[1]
    found = told.labels().to_dense()
    assert found[rows[0], np.flatnonzero(given[0] > 0)[0]] == -1
    np.testing.assert_array_equal(found[rows[1:]] > 0, y[rows[1:]] > 0)
    assert json.loads((tmp_path / "b.json").read_text())["contradictions"] == 1


@pytest.mark.parametrize("kind", ["platt", "isotonic"])
def test_correction_learns_a_known_distortion(kind: Any) -> None:
    rng = np.random.default_rng(0)
    true = rng.beta(0.5, 2, 6000)
    y = rng.random(6000) < true
    q = 1 / (1 + np.exp(-(2 * logit(true) - 1)))
    found = fit_correction(q, y, rng.integers(4, size=6000), num_classes=4, kind=kind)
    mended = found.apply(np.tile(q[:500, None], (1, 4)))
    assert np.abs(mended.mean(1) - true[:500]).mean() < 0.03
    assert np.abs(q[:500] - true[:500]).mean() > 0.06


def test_correction_of_probabilities_far_too_low() -> None:
    """From a thousandth to a tenth: Newton's steps must not run away; at the optimum the answers' mean is met."""
    rng = np.random.default_rng(0)
    true = rng.beta(0.5, 4, 3000)
    y, classes = rng.random(3000) < true, rng.integers(15, size=3000)
    q = 1 / (1 + np.exp(-(1.2 * logit(true) - 4.5)))
    found = fit_correction(q, y, classes, num_classes=15)
    mended = found.apply(np.tile(q[:, None], (1, 15)))[np.arange(3000), classes]
    assert mended.mean() == pytest.approx(y.mean(), rel=0.05)
    assert np.abs(mended - true).mean() < 0.04


def test_few_answers_move_little() -> None:
    found = fit_correction([0.2, 0.3, 0.9], [0, 0, 1], [0, 1, 2], num_classes=3)
    q = np.array([[0.1, 0.5, 0.9]])
    assert np.abs(found.apply(q) - q).max() < 0.15
    with pytest.raises(ValueError, match="no unknown entry"):
        fit_correction([], [], [], num_classes=3)


def test_refusals(tmp_path: Path) -> None:
    labels = Labels.from_classes([0, 1, 0, 1], num_classes=2)
    with pytest.raises(ValueError, match="must be equal"):
        recover(None, labels, tmp_path / "r.parquet", scores=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="floor"):
        recover(None, labels, tmp_path / "r.parquet", scores=np.zeros((4, 2)), floor=0.0)
    with pytest.raises(ValueError, match="no positive"):
        crossfit(np.zeros((4, 2)), Labels.from_matrix(np.zeros((4, 2), np.int8)))
    with pytest.raises(FileNotFoundError, match="no recovered labels"):
        RecoveredFile.open(tmp_path / "r.parquet")
    assert not list(tmp_path.iterdir())


def test_auto_takes_what_separates_the_unknown() -> None:
    from onelabel.losses.calibrate import fit_calibration, log_likelihood
    from onelabel.losses.sample import draw_sample
    from onelabel.recovery.choice import best_for_recovery, expected_f1
    from onelabel.recovery.folds import CrossFit

    X, _, y = dataset(600, 5)
    labels = drop_labels(y, seed=0)
    rng = np.random.default_rng(0)
    fits = []
    for noise in (2.0, 0.3):  # features through which a fixed classifier sees the truth, badly and well
        seen = (4.0 * y - 3 + noise * rng.standard_normal(y.shape)).astype(np.float32)
        one = np.zeros((1, 5), np.float32)
        fits.append(CrossFit(seen, np.zeros(600, np.int8), np.eye(5, dtype=np.float32)[None], one, SPEC, "as asked"))
    chosen = best_for_recovery(fits, labels)
    assert chosen.features is fits[1].features
    assert "likeliest" in chosen.reason
    sample = draw_sample(fits[1], labels)
    fitted = fit_calibration(sample)
    value, limits = expected_f1(fitted, sample)
    q = fitted.posterior(sample.scores, sample.observed).numpy()
    called = (q >= limits) & (labels.to_dense() == 0)
    assert value == pytest.approx(2 * q[called].sum() / (called.sum() + q[labels.to_dense() == 0].sum()), abs=0.01)
    p = fitted.raw(sample.scores).numpy()
    by_hand = 0.0
    for row, o in zip(p[:40], labels.to_dense()[:40].argmax(1), strict=True):
        top = bottom = 0.0
        for Y in itertools.product([0, 1], repeat=5):
            weight = float(np.prod(np.where(Y, row, 1 - row)))
            if any(Y):
                bottom += weight
                top += weight * Y[o] / sum(Y)
        by_hand += float(np.log(top / bottom))
    part = type(sample)(sample.scores[:40], sample.observed[:40])
    assert log_likelihood(fitted, part) == pytest.approx(by_hand / 40, abs=1e-6)
    few = np.arange(150)
    found = crossfit(X[few], labels.take(few), spec="auto", folds=2, progress=False)
    assert found.spec.method in found.reason


def test_preference_widens_and_is_said(tmp_path: Path) -> None:
    _, scores, y = dataset(800)
    labels = drop_labels(y, seed=1)
    fair = recover(None, labels, tmp_path / "a.parquet", scores=scores, show=False)
    wide = recover(None, labels, tmp_path / "b.parquet", scores=scores, preference=3.0, show=False)
    for a, b in zip(fair.summary, wide.summary, strict=True):
        assert b.high - b.expected == pytest.approx(np.hypot(a.high - a.expected, 2 * a.missing))
        assert b.low <= a.low
    assert wide.k_interval[1] > fair.k_interval[1]
    assert "fair draw" in fair.file.about["intervals_assume"]
    assert "3 times" in wide.file.about["intervals_assume"]
    with pytest.raises(ValueError, match="preference"):
        recover(None, labels, tmp_path / "c.parquet", scores=scores, preference=0.5, show=False)


def test_k_is_at_least_what_was_observed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = Labels.from_classes(rng.integers(6, size=120), num_classes=6)
    noise = rng.standard_normal((120, 6)).astype(np.float32)  # scores that say nothing leave k open
    done = recover(None, labels, tmp_path / "r.parquet", scores=noise, show=False)
    assert done.k_interval[0] == 1
    assert done.k < done.k_interval[1] <= 6
    assert done.k_open
    assert done.file.about["k_open"]
    more = labels.with_updates(np.arange(60), (labels.indices[:60] + 1) % 6, 1)
    done = recover(None, more, tmp_path / "s.parquet", scores=noise, show=False)
    assert done.k_interval[0] >= 1.5


def test_k_is_not_open_where_scores_tell_it(tmp_path: Path) -> None:
    _, scores, y = dataset(600)
    done = recover(None, drop_labels(y, seed=0), tmp_path / "r.parquet", scores=2 * scores, show=False)
    assert not done.k_open
    assert done.k_interval[0] <= y.sum(1).mean() <= done.k_interval[1]
    alone = np.eye(8, dtype=np.uint8)[np.arange(600) % 8]  # nothing is missing, and the scores show it
    sharp = (20.0 * alone - 10).astype(np.float32)
    assert not recover(None, drop_labels(alone, seed=0), tmp_path / "s.parquet", scores=sharp, show=False).k_open


def test_what_is_added_together() -> None:
    def line(called: int, *precision: float | None) -> ClassSummary:
        low, mean, high = precision
        return ClassSummary("c", 1, 1.0, 1.0, 1.0, 0.0, 1.0, 0.5, called, mean, low, high)

    got = added([line(10, 0.5, 0.9, 1.0), line(30, 0.7, 0.8, 0.9), line(0, None, None, None)])
    assert (got.labels, got.precision, got.low, got.high) == pytest.approx((40, 0.825, 0.65, 0.925))
    assert str(got) == "40 labels are added, 82% (65%–92%) expected to be right"
    assert "no label is added" in str(added([line(0, None, None, None)]))


def test_the_default_adds_what_is_likely_to_be_right(tmp_path: Path) -> None:
    """Weak scores: the best expected F1 takes entries that are wrong more often than right, the default does not."""
    rng = np.random.default_rng(1)
    _, scores, y = dataset(600)
    labels = drop_labels(y, seed=2)
    weak = scores + 3 * rng.standard_normal(scores.shape).astype(np.float32)
    unknown = labels.to_dense() == 0
    by = {}
    for name, how in (("default", {}), ("f1", {"precision": None})):
        done = recover(None, labels, tmp_path / f"{name}.parquet", scores=weak, show=False, **how)
        called = (done.labels().to_dense() > 0) & unknown
        by[name] = (called.sum(), y[called].mean() if called.any() else 1.0)
    assert by["f1"][1] < 0.5 < by["default"][1]
    assert by["default"][0] < by["f1"][0]


def test_k_is_estimated_in_one_way(tmp_path: Path) -> None:
    """`compare` and `train --method auto` (`choose`) say the k that `recover` says."""
    X, _, y = dataset(300, 5)
    labels = drop_labels(y, seed=3)
    choice = choose(X, labels, methods=["an"], lr=[1e-2], epochs=2, seeds=[0], progress=False)
    done = recover(X, labels, tmp_path / "r.parquet", show=False)
    assert choice.k == pytest.approx(done.k, abs=0.01)
    assert 1 <= done.k_interval[0] <= choice.k <= done.k_interval[1]
