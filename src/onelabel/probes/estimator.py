"""`OneLabelClassifier`: a scikit-learn estimator that learns every label from one label per row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.contract import method_info
from onelabel.labels import Labels
from onelabel.metrics import mean_average_precision
from onelabel.probes.engine import fit_probes
from onelabel.probes.features import SparseRows
from onelabel.probes.spec import ProbeSpec, presence
from onelabel.probes.targets import observed_of, plain, truth_of

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:  # pragma: no cover
    raise ImportError("OneLabelClassifier needs scikit-learn: pip install 'onelabel[sklearn]'") from error

#: Entries above which `recovered_labels_` keeps the positives only.
DENSE_ENTRIES = 50_000_000


#: Features of which a smaller share is not 0 are taken for words.
WORDS = 0.2


class OneLabelClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier over features that names every label, learned from one known positive per row.

    Parameters
    ----------
    method : a name of `onelabel.list_methods()`, or "auto" to try many and choose (`onelabel.probes.choose`).
    hyper : the method's settings, a dict.
    lr, batch_size, epochs, weight_decay : of Adam. lr None is 1/updates, from 1e-4 to 2e-3: many rows are learned by
        heart at a rate that few rows need.
    expected_positives : k for the methods that ask; None is their default.
    standardise : train on features scaled to unit deviation, where most are 0 all by one number (folded into the
        weights afterwards).
    random_state : seed of the first weights and of the order, or a NumPy `RandomState` to take one from; None takes
        another each time.
    device : where to train; None is a GPU where there is one.

    Attributes
    ----------
    classes_ : the labels, one per column.
    coef_, intercept_ : L×D, L. The intercepts are moved so that a probability of 0.5 is the best place to say yes.
        `decision_function` is X·coef_ᵀ + intercept_, less what roll call's `naming` takes away where that is chosen.
    thresholds_ : per class, the logit by which they were moved: 0 where negatives were observed; where none was, what
        maximises Lee and Liu's r²/P(ŷ=1) on the training rows, for one positive a row says nothing about scale.
    recovered_labels_ : `Labels` of the training rows, complete: observed entries as they were, the rest as predicted.
    spec_, reason_ : the probe that was trained; why, for "auto".
    """

    def __init__(
        self,
        method: str = "roll-call",
        *,
        hyper: Mapping[str, Any] | None = None,
        lr: float | None = None,
        batch_size: int = 16,
        epochs: int = 25,
        weight_decay: float = 0.0,
        expected_positives: float | None = None,
        standardise: bool = True,
        random_state: Any = 0,
        device: str | None = None,
    ) -> None:
        self.method = method
        self.hyper = hyper
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.weight_decay = weight_decay
        self.expected_positives = expected_positives
        self.standardise = standardise
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> OneLabelClassifier:
        """Learn from features N×D and `y`: a class per row, a list of classes per row, a ternary matrix or `Labels`.

        A SciPy sparse X stays sparse: only a batch of rows is dense at a time, on the CPU.

        In a matrix +1 is positive, 0 unknown, −1 negative: a 0/1 matrix says nothing about its zeros. Give fully
        labelled rows as `Labels.from_true(Y)`, with ``method="bce"``. A column N×1 holds a class per row. Nested lists
        of one length that hold nothing but −1, 0 and 1 are a matrix, all others classes; sets always are.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X = validate_data(self, plain(X), dtype=np.float32, ensure_min_samples=2, accept_sparse="csr")
        labels, self.classes_ = observed_of(y)
        if labels.num_examples != X.shape[0]:
            raise ValueError(f"y has {labels.num_examples} rows, X {X.shape[0]}: they must be equal")
        centre, scale = _moments(X) if self.standardise else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
        centre, scale = centre.astype(np.float32), np.where(scale > 0, scale, 1).astype(np.float32)
        scaled = SparseRows(X, centre, scale) if hasattr(X, "tocsr") else (X - centre) / scale
        weight, bias = self._train(scaled, labels)
        self.coef_ = (weight / scale).astype(np.float32)
        self.intercept_ = (bias - self.coef_ @ centre).astype(np.float32)
        self.thresholds_ = np.zeros(len(bias), np.float32)
        self.thresholds_ = _thresholds(self._decide(X), labels)
        self.intercept_ -= self.thresholds_
        self.recovered_labels_ = _recover(self._decide(X) > 0, labels)
        return self

    def _train(self, X: NDArray[np.float32] | SparseRows, labels: Labels) -> tuple[NDArray[Any], NDArray[Any]]:
        if not isinstance(self.hyper, Mapping | None):
            raise TypeError(f"hyper: {self.hyper!r}, expected a dict of the method's settings such as {{'alpha': 0.2}}")
        seed, hyper = self._seed(), dict(self.hyper or {})
        for name in ("batch_size", "epochs"):
            if not isinstance(value := getattr(self, name), (int, np.integer)) or value < 1:
                raise ValueError(f"{name}: {value!r}, expected a whole number, 1 or more")
        if self.method == "auto":
            from onelabel.probes.auto import choose

            choice = choose(
                X,
                labels,
                k=self.expected_positives,
                epochs=self.epochs,
                batch_size=self.batch_size,
                seeds=(seed, seed + 1),
                device=self.device,
            )
            self.spec_, self.reason_ = choice.spec, choice.reason
            return choice.weight, choice.bias
        if self.expected_positives is not None and "expected_positives" in method_info(self.method).defaults:
            hyper["expected_positives"] = self.expected_positives
        size = min(self.batch_size, len(X))
        updates = self.epochs * -(-len(X) // size)
        lr = self.lr if self.lr is not None else min(max(1 / updates, 1e-4), 2e-3)
        self.spec_ = ProbeSpec(self.method, hyper, lr, size, seed, self.epochs, self.weight_decay)
        self.reason_ = "as asked"
        results = fit_probes(X, labels, [self.spec_], device=self.device)
        return results.weight[0], results.bias[0]

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        from sklearn.utils import check_random_state

        return int(check_random_state(self.random_state).randint(2**31 - 2))

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Logits, N×L; above 0 `predict` says yes."""
        check_is_fitted(self)
        return self._decide(validate_data(self, plain(X), dtype=np.float32, reset=False, accept_sparse="csr"))

    def _decide(self, X: Any) -> NDArray[np.float32]:
        scores = np.asarray(X @ self.coef_.T + self.intercept_, np.float32) + self.thresholds_
        found: NDArray[np.float32] = presence(torch.from_numpy(scores)[None], [self.spec_])[0].numpy()
        return found - self.thresholds_

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probability of every label, N×L; rows do not sum to one."""
        from scipy.special import expit  # the same for a number wherever it stands; vectorised ones differ at the ends

        out: NDArray[np.float32] = expit(self.decision_function(X))
        return out

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Every label of every row: a 0/1 matrix N×L, columns as in `classes_`."""
        return (self.decision_function(X) > 0).astype(np.int64)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean average precision on clean labels, a 0/1 matrix N×L (or fully observed `Labels`).

        Other forms of `y` are observed positives: everything else counts as absent, as when searching a grid on
        single positives. Columns that have names, of `Labels` or a DataFrame, are found by them where `fit` saw names.
        """
        scores, true = self.decision_function(X), truth_of(y, self.classes_)
        if true.shape != scores.shape:
            raise ValueError(f"y has shape {true.shape}, expected {scores.shape}: a row of X each, a class of classes_")
        if sample_weight is not None:
            from sklearn.metrics import average_precision_score

            weight = np.asarray(sample_weight, np.float64)
            there = np.flatnonzero((true * weight[:, None]).sum(0) > 0)
            each = [average_precision_score(true[:, c], scores[:, c], sample_weight=weight) for c in there]
            return float(np.mean(each)) if each else float("nan")
        found = mean_average_precision(torch.from_numpy(scores), torch.from_numpy(true), empty="skip")
        return float(found)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def _moments(X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and deviation of every column; where most are 0 (words), 0 and the deviation of all columns together.

    Each to its own deviation would make the rarest word the largest: 59 mAP instead of 76 on Mulan's `medical`.
    """
    if hasattr(X, "tocsr"):
        from sklearn.utils.sparsefuncs import mean_variance_axis

        filled = X.count_nonzero()
        mean, variance = mean_variance_axis(X, axis=0)
    else:
        filled = np.count_nonzero(X)
        mean, variance = X.mean(0), X.var(0)
    if filled < WORDS * X.shape[0] * X.shape[1]:
        return np.zeros(X.shape[1]), np.full(X.shape[1], np.sqrt(variance.mean()))
    return mean, np.sqrt(variance)


def _thresholds(scores: NDArray[np.float32], labels: Labels) -> NDArray[np.float32]:
    """Per class, a logit: 0 where negatives are known (or nothing is), else midway below the best by r²/P(ŷ=1)."""
    counts = labels.counts()
    out = np.zeros(labels.num_classes, np.float32)
    blind = (counts.negatives == 0) & (counts.positives > 0)
    if scores.size > DENSE_ENTRIES or not blind.any():
        return out
    ranked, order = torch.from_numpy(scores).sort(dim=0, descending=True)
    hits = (labels.rows(slice(None)) > 0).gather(0, order).double().cumsum(0)
    below = torch.cat([ranked[1:], ranked[-1:] - 1])
    value = hits**2 / torch.arange(1, len(hits) + 1)[:, None]
    at = value.masked_fill(ranked == below, -1.0).argmax(0, keepdim=True)
    middle = ((ranked.gather(0, at) + below.gather(0, at)) / 2)[0].numpy()
    return np.where(blind, middle, out).astype(np.float32)


def _recover(called: NDArray[np.bool_], labels: Labels) -> Labels:
    """Observed entries as they are, the rest as called; beyond `DENSE_ENTRIES` positives only."""
    rows, cols, values = labels.to_coo()
    called = called.copy()
    called[rows, cols] = values > 0
    if called.size <= DENSE_ENTRIES:
        return Labels.from_true(called.astype(np.uint8), labels.class_names)
    rows, cols = np.nonzero(called)
    return Labels.from_coo(rows, cols, 1, shape=labels.shape, class_names=labels.class_names)
