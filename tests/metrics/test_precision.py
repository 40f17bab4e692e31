"""Average precision against scikit-learn, a plain loop, and properties it must have."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from onelabel.labels import Labels
from onelabel.metrics import _sorting, average_precision, mask_from, mean_average_precision

properties = settings(deadline=None, max_examples=60)


def sklearn_ap(scores, true, mask=None):
    out = []
    for c in range(scores.shape[1]):
        keep = slice(None) if mask is None else mask[:, c]
        y, s = true[keep, c], scores[keep, c]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out.append(average_precision_score(y, s) if y.any() else 0.0)
    return np.array(out)


@properties
@given(data=st.data())
def test_equals_scikit_learn(problems, data):
    scores, true, mask = data.draw(problems())
    np.testing.assert_allclose(average_precision(scores, true), sklearn_ap(scores, true), atol=1e-12)
    got = average_precision(scores, true, mask=mask)
    np.testing.assert_allclose(got, sklearn_ap(scores, true, mask), atol=1e-12)
    for dtype in (np.float32, np.float64):
        np.testing.assert_allclose(average_precision(scores.astype(dtype), true, mask=mask), got, atol=1e-12)
    np.testing.assert_allclose(mean_average_precision(scores, true, mask=mask), got.mean(), atol=1e-12)


@properties
@given(data=st.data())
def test_micro_equals_scikit_learn(problems, data):
    scores, true, mask = data.draw(problems())
    expected = sklearn_ap(scores[mask][:, None], true[mask][:, None]) if mask.any() else [0]
    assert mean_average_precision(scores, true, mask=mask, micro=True) == pytest.approx(expected[0])
    assert average_precision(scores, true, mask=mask, micro=True).shape == (1,)


@properties
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_only_the_order_of_the_scores_counts(problems, data, seed):
    scores, true, mask = data.draw(problems())
    expected = average_precision(scores, true, mask=mask)
    p = np.random.default_rng(seed).permutation(len(scores))
    np.testing.assert_allclose(average_precision(scores[p], true[p], mask=mask[p]), expected, atol=1e-12)
    monotone = np.arctan(scores.astype("f8")) * 3 - 7
    np.testing.assert_allclose(average_precision(monotone, true, mask=mask), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_floating_type(dtype):
    torch.manual_seed(0)
    scores, true = torch.randn(500, 7).to(dtype), torch.rand(500, 7) < 0.2
    expected = sklearn_ap(scores.double().numpy(), true.numpy())
    got = average_precision(scores, true)
    assert isinstance(got, torch.Tensor)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_scores_rank_as_numbers(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    scores = np.array([np.inf, 1, tiny, 0.0, -0.0, -tiny, -1, -np.inf], dtype)[:, None]
    true = np.array([0, 1, 0, 1, 0, 1, 0, 1])[:, None]
    ranks = np.array([7, 6, 5, 4, 4, 3, 2, 1.0])[:, None]
    assert average_precision(scores, true) == pytest.approx(sklearn_ap(ranks, true))
    mask = np.array([1, 1, 1, 1, 1, 1, 0, 1], bool)[:, None]  # a hidden entry must not tie with −inf
    assert average_precision(scores, true, mask=mask) == pytest.approx(sklearn_ap(ranks, true, mask))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("budget", [1, 50, 300, 10**9])
def test_a_stack_equals_its_models_one_by_one(monkeypatch, budget, dtype):
    monkeypatch.setattr(_sorting, "CHUNK_HOST", budget)
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 9, (2, 3, 20, 5)).astype(dtype)
    true, mask = rng.random(scores.shape) < 0.3, rng.random(scores.shape) < 0.7
    for y, m in [
        (true, mask),
        (true[0, 0], mask),
        (true, mask[0, 0]),
        (true[0, 0], mask[0, 0]),
        (true, None),
    ]:
        got = average_precision(scores, y, mask=m)
        assert got.shape == (2, 3, 5)
        for i in np.ndindex(2, 3):
            yi, mi = (y[i] if y.ndim == 4 else y), (None if m is None else m[i] if m.ndim == 4 else m)
            np.testing.assert_allclose(got[i], average_precision(scores[i], yi, mask=mi), rtol=1e-14)
        mean = mean_average_precision(scores, y, mask=m)
        np.testing.assert_allclose(mean, got.mean(-1))
        assert mean_average_precision(scores, y, mask=m, micro=True).shape == (2, 3)


def test_classes_without_positives():
    scores, true = np.random.default_rng(0).random((6, 3)), np.zeros((6, 3))
    true[:, 1] = 1
    np.testing.assert_array_equal(average_precision(scores, true), [0, 1, 0])
    np.testing.assert_array_equal(average_precision(scores, true, empty="skip"), [np.nan, 1, np.nan])
    assert mean_average_precision(scores, true) == pytest.approx(1 / 3)
    assert mean_average_precision(scores, true, empty="skip") == 1
    assert np.isnan(mean_average_precision(scores, true, empty="nan"))
    assert np.isnan(mean_average_precision(scores, 0 * true, empty="skip"))


def test_the_kind_comes_back():
    scores, true = np.eye(3, dtype=np.float32), np.eye(3, dtype=int)
    assert type(mean_average_precision(scores, true)) is float
    assert type(average_precision(scores, true)) is np.ndarray
    assert type(mean_average_precision(torch.eye(3), true)) is torch.Tensor
    scores.flags.writeable = False
    assert mean_average_precision(scores[::-1], true[::-1]) == 1


def test_a_gpu_gets_nan_where_the_cpu_raises(monkeypatch):
    monkeypatch.setattr("onelabel.metrics._arrays.on_host", lambda _: False)
    monkeypatch.setattr("onelabel.metrics._sorting.on_host", lambda _: False)
    scores = torch.rand(4, 2)
    scores[2, 1] = torch.nan
    ap = average_precision(scores, torch.ones(4, 2))
    assert ap[0] == 1
    assert ap[1].isnan()


def test_observed_labels_through_mask_from():
    observed = np.array([[1, 0], [-1, 1], [0, -1], [1, 0]])
    scores = np.random.default_rng(0).random((4, 2))
    mask = mask_from(observed)
    np.testing.assert_array_equal(mask, observed != 0)
    np.testing.assert_allclose(
        average_precision(scores, observed > 0, mask=mask), sklearn_ap(scores, observed > 0, mask)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.zeros(3)}, r"scores has shape \(3,\); expected \(N, L\)"),
        ({"scores": np.zeros((0, 2))}, r"scores has shape \(0, 2\); expected at least one"),
        ({"scores": np.array([[0, 1], [np.nan, 1], [0, 0]])}, "scores is NaN at row 1, class 0"),
        ({"scores": np.array([[[0, 1], [0, 1], [0, np.nan]]])}, "scores is NaN at model 0, row 2, class 1"),
        ({"true": np.zeros((2, 2))}, r"true has shape \(2, 2\); expected \(3, 2\)"),
        (
            {"true": np.array([[0, 1], [1, 1], [-1, 0]])},
            "true is -1 at row 2, class 0; expected 0 or 1.*mask_from",
        ),
        ({"true": np.full((3, 2), 0.5)}, "true is 0.5 at row 0, class 0"),
        ({"true": np.array([[0, np.nan], [1, 1], [1, 0]])}, "true is nan at row 0, class 1"),
        ({"mask": np.zeros((3, 1))}, r"mask has shape \(3, 1\); expected \(3, 2\)"),
        ({"empty": "none"}, "empty is 'none'; expected one of 'zero', 'skip', 'nan'"),
    ],
)
def test_errors_name_the_argument_and_the_place(change, message):
    arguments = {"scores": np.zeros((3, 2)), "true": np.zeros((3, 2)), **change}
    for metric in (average_precision, mean_average_precision):
        with pytest.raises(ValueError, match=message):
            metric(arguments.pop("scores"), arguments.pop("true"), **arguments)
        arguments = {"scores": np.zeros((3, 2)), "true": np.zeros((3, 2)), **change}


def test_text_is_refused():
    with pytest.raises(TypeError, match="true has dtype"):
        average_precision(np.zeros((1, 1)), np.array([["cat"]]))
    labels = Labels.from_true([[1, 0], [0, 1]])
    with pytest.raises(TypeError, match=r"true has dtype object; expected numbers or booleans: pass its to_dense\(\)"):
        mean_average_precision(np.eye(2), labels)
    assert mean_average_precision(np.eye(2), labels.to_dense() > 0) == 1


def test_entries_outside_the_mask_may_hold_anything():
    true = np.array([[1, 9.0], [0, 0]])
    assert average_precision(np.eye(2), true, mask=true != 9)[0] == 1
