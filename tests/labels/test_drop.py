"""Dropping labels: the published draw to the bit, and the biases in distribution."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onelabel.labels import Labels, drop_labels

patient = settings(deadline=None)
true_matrices = hnp.arrays(np.uint8, st.tuples(st.integers(0, 10), st.integers(1, 8)), elements=st.sampled_from([0, 1]))
SCHEMES: dict[str, Any] = {
    "uniform": lambda y: {},
    "frequency": lambda y: {"bias": 0.7},
    "size": lambda y: {"sizes": np.ones(y.shape), "power": 2},
    "weights": lambda y: {"class_weights": np.arange(1, y.shape[1] + 1)},
}


def quietly(*args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return drop_labels(*args, **kwargs)


@pytest.mark.shared
def test_the_published_draw(shared_data: Path) -> None:
    with np.load(shared_data / "voc2012" / "labels.npz") as file:
        true, observed, names = file["train_true"], file["train_observed_uniform1200"], file["classes"]
    np.testing.assert_array_equal(drop_labels(true).to_dense(), observed)
    labels = drop_labels(Labels.from_true(true, [str(n) for n in names]))
    np.testing.assert_array_equal(labels.to_dense(), observed)
    assert labels.class_names == tuple(names)
    np.testing.assert_array_equal(drop_labels(torch.from_numpy(true)).to_dense(), observed)


@patient
@given(true_matrices, st.integers(0, 3), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_uniform_is_the_published_program(true: np.ndarray, positives: int, negatives: int, seed: int) -> None:
    expected = np.zeros(true.shape, np.int8)
    rng = np.random.RandomState(seed)
    for row, present in enumerate(true):
        pos = [i for i, v in enumerate(present) if v]
        rng.shuffle(pos)
        expected[row, pos[:positives]] = 1
        neg = [i for i, v in enumerate(present) if not v]
        rng.shuffle(neg)
        expected[row, neg[:negatives]] = -1
    got = quietly(true, positives=positives, negatives=negatives, seed=seed)
    np.testing.assert_array_equal(got.to_dense(), expected)


@pytest.mark.parametrize("scheme", SCHEMES)
@patient
@given(true=true_matrices, positives=st.integers(0, 9), negatives=st.integers(0, 9), seed=st.integers(0, 99))
def test_keeps_only_what_is_true(scheme: str, true: np.ndarray, positives: int, negatives: int, seed: int) -> None:
    options = {"scheme": scheme, "positives": positives, "negatives": negatives, "seed": seed}
    options |= SCHEMES[scheme](true)
    labels = quietly(true, **options)
    dense = labels.to_dense()
    assert (true[dense == 1] == 1).all()
    assert (true[dense == -1] == 0).all()
    np.testing.assert_array_equal((dense == 1).sum(1), np.minimum(positives, true.sum(1)))
    np.testing.assert_array_equal((dense == -1).sum(1), np.minimum(negatives, (1 - true.astype(int)).sum(1)))
    assert quietly(true, **options) == labels
    smaller, index = quietly(true, **options, empty="drop", return_index=True)
    np.testing.assert_array_equal(index, np.flatnonzero(true.any(1)))
    assert smaller == labels.take(index)


@patient
@given(true_matrices, st.floats(0, 1), st.integers(0, 99))
def test_missing_at_random(true: np.ndarray, fraction: float, seed: int) -> None:
    dense = quietly(true, scheme="missing", observed_fraction=fraction, seed=seed).to_dense()
    np.testing.assert_array_equal(dense[dense != 0], (2 * true.astype(int) - 1)[dense != 0])
    full = quietly(true, scheme="missing", observed_fraction=1.0)
    assert full == Labels.from_true(true)
    assert quietly(true, scheme="missing", observed_fraction=0).num_observed == 0


def test_missing_fractions() -> None:
    true = np.random.default_rng(0).random((2000, 50)) < 0.3
    dense = drop_labels(true, scheme="missing", observed_fraction=0.4).to_dense()
    assert (dense != 0).mean() == pytest.approx(0.4, abs=0.01)
    dense = drop_labels(true, scheme="missing", observed_fraction=(0.9, 0.1)).to_dense()
    assert (dense[true] == 1).mean() == pytest.approx(0.9, abs=0.01)
    assert (dense[~true] == -1).mean() == pytest.approx(0.1, abs=0.01)


def shares(labels: Labels) -> np.ndarray:
    return labels.counts().positives / len(labels)


def test_biased_draws_have_their_probabilities() -> None:
    n = 40_000
    everything = np.ones((n, 3), np.uint8)
    weights = np.array([1.0, 2.0, 5.0])
    got = drop_labels(everything, scheme="weights", class_weights=weights)
    np.testing.assert_allclose(shares(got), weights / 8, atol=0.01)

    sizes = np.tile([4.0, 1.0, 1.0], (n, 1))
    got = drop_labels(everything, scheme="size", sizes=sizes, power=0.5)
    np.testing.assert_allclose(shares(got), [0.5, 0.25, 0.25], atol=0.01)

    # classes 0 and 1 are in the first half; class 1 is in the second half too, so it is twice as frequent
    true = np.ones((n, 2), np.uint8)
    true[n // 2 :, 0] = 0
    for bias, expected in ((0.0, 1 / 2), (1.0, 2 / 3), (2.0, 4 / 5), (-1.0, 1 / 3)):
        got = drop_labels(true, scheme="frequency", bias=bias).take(slice(0, n // 2))
        assert shares(got)[1] == pytest.approx(expected, abs=0.015)


def test_two_names_are_drawn_without_replacement() -> None:
    """P{i, j} = p_i p_j (1/(1−p_i) + 1/(1−p_j)) when one is drawn after the other."""
    p = np.array([0.5, 0.3, 0.2])
    labels = drop_labels(np.ones((40_000, 3), np.uint8), scheme="weights", class_weights=p, positives=2)
    without = (labels.to_dense() == 0).mean(0)
    for left_out in range(3):
        i, j = (c for c in range(3) if c != left_out)
        expected = p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j]))
        assert without[left_out] == pytest.approx(expected, abs=0.01)


def test_negatives_of_biased_schemes_are_uniform() -> None:
    true = np.tile([1, 0, 0, 0], (20_000, 1))
    labels = drop_labels(true, scheme="weights", class_weights=[1, 9, 9, 9], negatives=1)
    np.testing.assert_allclose(labels.counts().negatives / 20_000, [0, 1 / 3, 1 / 3, 1 / 3], atol=0.015)


def test_weight_zero_is_never_named() -> None:
    true = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1]])
    with pytest.warns(UserWarning, match="1 of 3 rows have no positive that could be named"):
        labels = drop_labels(true, scheme="weights", class_weights=[0, 1, 1], positives=3)
    np.testing.assert_array_equal(labels.to_dense(), [[0, 1, 0], [0, 0, 0], [0, 0, 1]])
    sizes = np.where(true, [[0.0, 3.0, 2.0]], 0.0)
    labels, index = drop_labels(true, scheme="size", sizes=sizes, power=-1, empty="drop", return_index=True)
    np.testing.assert_array_equal(labels.to_dense(), [[0, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(index, [0, 2])


def test_rows_without_positives_are_counted() -> None:
    true = np.array([[0, 0], [1, 0], [0, 0]])
    with pytest.warns(UserWarning, match=r"2 of 3 rows have no positive .* empty='drop' leaves them out"):
        labels = drop_labels(true)
    np.testing.assert_array_equal(labels.to_dense(), [[0, 0], [1, 0], [0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert drop_labels(true, empty="drop").shape == (1, 2)
        drop_labels([[1, 0]])
    with pytest.warns(UserWarning, match="3 of 3 rows have no observed label"):
        drop_labels(true, scheme="missing", observed_fraction=0.0)


def test_seeds_differ() -> None:
    true = np.ones((50, 10), np.uint8)
    for scheme in SCHEMES:
        options = {"scheme": scheme} | SCHEMES[scheme](true)
        assert drop_labels(true, seed=1, **options) != drop_labels(true, seed=2, **options)


TRUE = np.array([[1, 0], [1, 1]])
BAD: list[tuple[dict[str, Any], str]] = [
    ({"scheme": "unifrom"}, r"scheme must be one of uniform, .*, got 'unifrom'"),
    ({"positives": -1}, r"positives must be a whole number of labels, at least 0, got -1"),
    ({"negatives": 0.5}, r"negatives must be a whole number .*got 0.5"),
    ({"empty": "remove"}, r"empty must be 'keep' or 'drop', got 'remove'"),
    ({"bias": 1.0}, r"bias is read only by scheme='frequency', got scheme='uniform'"),
    ({"scheme": "frequency", "sizes": TRUE}, r"sizes is read only by scheme='size'"),
    ({"scheme": "frequency", "bias": np.inf}, r"bias must be a finite number, got inf"),
    ({"scheme": "size"}, r"sizes must be given with scheme='size'"),
    ({"scheme": "size", "sizes": [[1.0]]}, r"sizes must have shape \(2, 2\), got \(1, 1\)"),
    ({"scheme": "size", "sizes": [[1, 1], [1, -2]]}, r"sizes must hold finite .*; got -2.0 at row 1, column 1"),
    ({"scheme": "weights"}, r"class_weights must be given"),
    ({"scheme": "weights", "class_weights": [1, np.nan]}, r"class_weights must hold finite .* got nan at position 1"),
    ({"scheme": "weights", "class_weights": [1, 2, 3]}, r"class_weights must have shape \(2,\), got \(3,\)"),
    ({"scheme": "missing"}, r"observed_fraction must be given"),
    ({"scheme": "missing", "observed_fraction": 1.2}, r"observed_fraction must be in \[0, 1\].*got 1.2"),
    ({"scheme": "missing", "observed_fraction": (0.1, 0.2, 0.3)}, r"observed_fraction must be .*got \(0.1, 0.2, 0.3"),
    ({"scheme": "missing", "observed_fraction": 0.5, "negatives": 1}, r"mean nothing to scheme='missing'"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drop_labels(TRUE, **options)


def test_bad_true() -> None:
    with pytest.raises(ValueError, match=r"true must hold only 0 .* got 2 at row 0, column 1"):
        drop_labels([[0, 2]])
    with pytest.raises(ValueError, match=r"true must be a matrix N×L.*got shape \(2,\)"):
        drop_labels([0, 1])
    with pytest.raises(ValueError, match="true must be fully observed; row 1 of Labels"):
        drop_labels(Labels.from_matrix([[1, -1], [1, 0]]))
