"""The scikit-learn estimator."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from onelabel.labels import Labels, drop_labels
from onelabel.probes import OneLabelClassifier, ProbeSpec, fit_probes
from onelabel.probes.estimator import _moments
from onelabel.recovery import crossfit

#: `predict` is an N×L matrix whatever the form of y, for a row may have several labels; these checks ask for one
#: class a row (and, of two classes, for one column of decisions).
MATRIX = "predict names every label of a row: an N×L matrix, not one class"
EXPECTED = {
    "check_classifiers_train": MATRIX,
    "check_classifiers_classes": MATRIX,
    "check_estimator_sparse_array": MATRIX,
    "check_estimator_sparse_matrix": MATRIX,
    "check_decision_proba_consistency": "decisions of two classes are two columns: both may be present",
}


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 10))
    logits = X @ rng.normal(size=(10, 4)) - 0.5
    Y = (logits > 0).astype(int)
    Y[np.arange(300), logits.argmax(1)] = 1
    one = np.array([rng.choice(np.flatnonzero(row)) for row in Y])
    return X, Y, one


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks():
    results = check_estimator(OneLabelClassifier(epochs=3), on_fail=None, expected_failed_checks=EXPECTED)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} <= set(EXPECTED)
    assert sum(r["status"] == "passed" for r in results) > 50


def test_every_form_of_y_gives_the_same_model(data):
    X, _, one = data
    names = np.array(["ant", "bee", "cat", "dog"])
    matrix = np.eye(4, dtype=int)[one]
    forms = [one, names[one], [[names[i]] for i in one], matrix, Labels.from_classes(one, num_classes=4)]
    fitted = [OneLabelClassifier(epochs=3).fit(X, y) for y in forms]
    for each in fitted[1:]:
        np.testing.assert_allclose(each.coef_, fitted[0].coef_, atol=1e-6)
    assert fitted[1].classes_.tolist() == names.tolist()
    assert fitted[2].classes_.tolist() == names.tolist()


def test_it_finds_labels_that_were_not_given(data):
    X, Y, one = data
    model = OneLabelClassifier("em", lr=1e-2).fit(X, one)
    expected = np.mean([average_precision_score(Y[:, c], model.decision_function(X)[:, c]) for c in range(4)])
    assert model.score(X, Y) == pytest.approx(expected, abs=1e-5)
    assert model.score(X, Y) > 0.9
    probabilities = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict(X), probabilities > 0.5)
    f1 = 2 * (model.predict(X) & Y).sum() / (model.predict(X).sum() + Y.sum())
    assert f1 > 0.8
    recovered = model.recovered_labels_
    assert recovered.is_fully_observed
    dense = recovered.to_dense()
    assert (dense[np.arange(300), one] == 1).all()
    assert ((dense > 0) == Y).mean() > 0.85


def test_negatives_put_the_threshold_at_a_half(data):
    X, Y, _ = data
    model = OneLabelClassifier("bce", lr=1e-2).fit(X, Labels.from_true(Y))
    assert (model.thresholds_ == 0).all()
    assert (model.predict(X) == Y).mean() > 0.95


@pytest.mark.parametrize("naming", [0.0, 0.5, 1.0])
def test_decisions_have_the_share_of_naming_that_was_trained_with(data, naming):
    X, _, one = data
    model = OneLabelClassifier(hyper={"naming": naming}, epochs=3).fit(X, one)
    moved = X @ model.coef_.T + model.intercept_
    outputs = moved + model.thresholds_
    wanted = moved - naming * np.log(np.exp(outputs).sum(1, keepdims=True))
    np.testing.assert_allclose(model.decision_function(X), wanted, atol=1e-5)
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)
    assert (model.thresholds_ != 0).any()


def test_clone_pickle_pipeline_and_grid_search(data):
    X, Y, one = data
    model = clone(OneLabelClassifier("gr", hyper={"w": 10.0, "b": -8.0}, epochs=3))
    assert model.get_params()["hyper"] == {"w": 10.0, "b": -8.0}
    model.fit(X, one)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.recovered_labels_ == model.recovered_labels_
    pipeline = make_pipeline(StandardScaler(), OneLabelClassifier(epochs=3))
    search = GridSearchCV(pipeline, {"onelabelclassifier__method": ["an", "em"]}, cv=2).fit(X, one)
    assert search.best_params_["onelabelclassifier__method"] in ("an", "em")
    assert search.score(X, Y) > 0.5


def test_auto_says_why(data):
    X, Y, one = data
    model = OneLabelClassifier("auto", epochs=2).fit(X, one)
    assert "held out" in model.reason_
    assert model.score(X, Y) > 0.5


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_matrix])
@pytest.mark.parametrize("options", [{}, {"standardise": False}, {"method": "role", "expected_positives": 2.0}])
def test_sparse_rows_give_what_dense_ones_give(data, kind, options):
    X, Y, one = data
    X = np.where(np.abs(X) > 1, X, 0)
    X[:, 3] = 0
    dense = OneLabelClassifier(epochs=4, device="cpu", **options).fit(X, one)
    sparse = OneLabelClassifier(epochs=4, **options).fit(kind(X), one)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=2e-5)
    np.testing.assert_allclose(sparse.predict_proba(kind(X)), dense.predict_proba(X), atol=2e-5)
    assert isinstance(sparse.decision_function(kind(X)), np.ndarray)
    assert sparse.score(kind(X), Y) == pytest.approx(dense.score(X, Y), abs=1e-4)


def test_rare_words_are_not_made_the_largest():
    """Where most entries are 0 all columns are scaled alike, in either container; else each by its own deviation."""
    rng = np.random.default_rng(0)
    share = np.repeat([0.3, 0.01], [20, 60])
    words = (rng.random((300, 80)) < share).astype(np.float32)
    for X in (words, scipy.sparse.csr_matrix(words)):
        centre, scale = _moments(X)
        assert not centre.any()
        np.testing.assert_allclose(scale, np.sqrt(words.var(0).mean()), rtol=1e-5)
    for X in (words[:, :20] + 1, scipy.sparse.csr_matrix(words[:, :20] + 1)):
        np.testing.assert_allclose(_moments(X), (words[:, :20].mean(0) + 1, words[:, :20].std(0)), rtol=1e-4)
    one = drop_labels((words[:, :4] > 0) | (np.arange(300)[:, None] % 4 == np.arange(4)), seed=0)
    fits = [OneLabelClassifier(epochs=3).fit(X, one).coef_ for X in (words, scipy.sparse.csr_matrix(words))]
    np.testing.assert_allclose(*fits, atol=2e-5)


def test_sparse_rows_and_auto(data):
    X, _, one = data
    model = OneLabelClassifier("auto", epochs=2).fit(scipy.sparse.csr_array(X), one)
    dense = OneLabelClassifier("auto", epochs=2, device="cpu").fit(X, one)
    assert str(model.spec_) == str(dense.spec_)
    np.testing.assert_allclose(model.coef_, dense.coef_, atol=1e-4)


def test_sparse_rows_are_never_dense_all_at_once():
    """5,000 rows of 20,000 columns would be 381 MiB; the process may have little more than it had."""
    code = """
import resource, numpy as np, scipy.sparse
from onelabel.probes import OneLabelClassifier
rng = np.random.default_rng(0)
rows, columns = np.repeat(np.arange(5000), 4), rng.integers(20_000, size=20_000)
X = scipy.sparse.csr_matrix((rng.random(20_000, np.float32), (rows, columns)), shape=(5000, 20_000))
y = np.arange(5000) % 5
OneLabelClassifier(epochs=1, batch_size=250).fit(X[:500], y[:500])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = OneLabelClassifier(epochs=1, batch_size=250).fit(X, y)
model.predict(X)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(run.stdout) < 150  # MiB; a batch is 19


def test_what_sparse_rows_cannot_do(data):
    X, _, one = data
    labels = Labels.from_classes(one, num_classes=4)
    with pytest.raises(ValueError, match="smile looks at all features at once: give dense ones"):
        OneLabelClassifier("smile", epochs=1).fit(scipy.sparse.csr_matrix(X), one)
    with pytest.raises(ValueError, match="sparse features train on the CPU"):
        fit_probes(scipy.sparse.csr_matrix(X), labels, [ProbeSpec("em")], device="meta")
    with pytest.raises(TypeError, match=r"features are sparse \(300, 10\); recovery takes dense ones"):
        crossfit(scipy.sparse.csr_matrix(X), labels)


def test_the_score_is_that_of_the_truth_in_any_form(data):
    X, Y, one = data
    names = ["ant", "bee", "cat", "dog"]
    model = OneLabelClassifier(epochs=3).fit(X, one)
    want = np.mean([average_precision_score(Y[:, c], model.decision_function(X)[:, c]) for c in range(4)])
    forms = [
        Y,
        Y.tolist(),
        scipy.sparse.csr_matrix(Y),
        pd.DataFrame(Y),
        Labels.from_true(Y),
        [np.flatnonzero(row).tolist() for row in Y],
    ]
    forms += [pd.Series(forms[-1])]
    for form in forms:
        assert model.score(X, form) == pytest.approx(want, abs=1e-6)
    named = OneLabelClassifier(epochs=3).fit(X, Labels.from_classes(one, class_names=names))
    turned = [3, 1, 0, 2]
    frame = pd.DataFrame(Y[:, turned], columns=[names[i] for i in turned])
    for form in (frame, Labels.from_true(Y[:, turned], class_names=list(frame.columns))):
        assert named.score(X, form) == pytest.approx(want, abs=1e-6)  # columns are found by their names
    with pytest.raises(ValueError, match="columns such as 'eel'"):
        named.score(X, frame.rename(columns={"dog": "eel"}))
    with pytest.raises(ValueError, match=r"shape \(300, 3\), expected \(300, 4\)"):
        model.score(X, Y[:, :3])


def test_columns_are_found_by_name_whatever_holds_the_names(data):
    """A Series of names makes classes_ an array of objects: the truth's columns went by their places."""
    X, Y, one = data
    names = ["ant", "bee", "cat", "dog"]
    model = OneLabelClassifier(epochs=3).fit(X, pd.Series(np.array(names)[one]))
    turned = [3, 1, 0, 2]
    frame = pd.DataFrame(Y[:, turned], columns=[names[i] for i in turned])
    assert model.score(X, frame) == pytest.approx(model.score(X, Y), abs=1e-6)


def test_rows_weigh_in_the_score(data):
    X, Y, one = data
    model = OneLabelClassifier(epochs=3).fit(X, one)
    some = np.arange(300) % 5 == 0
    assert model.score(X, Y, sample_weight=some) == pytest.approx(model.score(X[some], Y[some]), abs=1e-6)
    assert model.score(X, Y, sample_weight=np.ones(300)) == pytest.approx(model.score(X, Y), abs=1e-6)
    assert model.score(X, Y, sample_weight=some) != pytest.approx(model.score(X, Y), abs=1e-4)


def test_a_frame_names_the_classes(data):
    X, _, one = data
    frame = pd.DataFrame(np.eye(4, dtype=int)[one], columns=["ant", "bee", "cat", "dog"])
    model = OneLabelClassifier(epochs=3).fit(X, frame)
    assert model.classes_.tolist() == list(frame.columns)
    assert list(model.recovered_labels_.class_names) == list(frame.columns)
    np.testing.assert_array_equal(model.coef_, OneLabelClassifier(epochs=3).fit(X, one).coef_)


def test_a_frame_of_features_is_known_by_its_columns_without_a_warning(data):
    X, _, one = data
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(10)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OneLabelClassifier(epochs=1).fit(frame, one)
        model.predict(frame)
        pipeline = make_pipeline(StandardScaler(), OneLabelClassifier(epochs=1)).set_output(transform="pandas")
        pipeline.fit(frame, one).predict(frame)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[frame.columns[::-1]])


def test_tensors_are_taken_wherever_they_come_from(data):
    X, _, one = data
    want = OneLabelClassifier(epochs=1).fit(X, one)
    tensor = torch.tensor(X, requires_grad=True)
    for y in (torch.tensor(one), torch.eye(4)[one].requires_grad_()):
        model = OneLabelClassifier(epochs=1).fit(tensor, y)
        np.testing.assert_array_equal(model.coef_, want.coef_)
        np.testing.assert_array_equal(model.predict_proba(tensor), want.predict_proba(X))
    rounded = tensor.bfloat16()
    half = OneLabelClassifier(epochs=1).fit(rounded, one)
    np.testing.assert_array_equal(half.coef_, OneLabelClassifier(epochs=1).fit(rounded.detach().float(), one).coef_)


def test_random_states_of_every_kind(data):
    X, _, one = data
    first, second = (OneLabelClassifier(epochs=1, random_state=np.random.RandomState(3)).fit(X, one) for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    free = [OneLabelClassifier(epochs=1, random_state=None).fit(X, one).coef_ for _ in range(2)]
    assert (free[0] != free[1]).any()


def test_mistakes_are_answered(data):
    X, _, one = data
    for wrong in ({"epochs": 0}, {"batch_size": 0}, {"batch_size": 8.0}, {"epochs": "many"}):
        with pytest.raises(ValueError, match="expected a whole number, 1 or more"):
            OneLabelClassifier(**wrong).fit(X, one)
    with pytest.raises(TypeError, match=r"hyper: 'alpha=0.2', expected a dict of the method's settings"):
        OneLabelClassifier("em", hyper="alpha=0.2").fit(X, one)
    with pytest.raises(ValueError, match="weight_decay must be at least 0, got -1"):
        OneLabelClassifier(weight_decay=-1).fit(X, one)
    with pytest.raises(ValueError, match="rows"):
        OneLabelClassifier().fit(X, one[:-1])
    with pytest.raises(ValueError, match="at least two"):
        OneLabelClassifier().fit(X, np.zeros(300, int))
    with pytest.raises(ValueError, match="no method"):
        OneLabelClassifier("emm").fit(X, one)


def test_scikit_learn_is_not_imported_with_the_package():
    code = "import sys, onelabel.probes; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
