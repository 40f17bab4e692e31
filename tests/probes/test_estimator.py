"""The scikit-learn estimator."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from onelabel.labels import Labels
from onelabel.probes import OneLabelClassifier

#: `predict` is an N×L matrix whatever the form of y, for a row may have several labels; these three checks ask for one
#: class a row (and, of two classes, for one column of decisions).
MATRIX = "predict names every label of a row: an N×L matrix, not one class"
EXPECTED = {
    "check_classifiers_train": MATRIX,
    "check_classifiers_classes": MATRIX,
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


def test_mistakes_are_answered(data):
    X, _, one = data
    with pytest.raises(ValueError, match="rows"):
        OneLabelClassifier().fit(X, one[:-1])
    with pytest.raises(ValueError, match="at least two"):
        OneLabelClassifier().fit(X, np.zeros(300, int))
    with pytest.raises(ValueError, match="no method"):
        OneLabelClassifier("emm").fit(X, one)


def test_scikit_learn_is_not_imported_with_the_package():
    code = "import sys, onelabel.probes; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
