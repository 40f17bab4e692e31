"""ROLE's own estimates order the unknown entries of a class; nothing else of them is used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from onelabel.labels import Labels, drop_labels
from onelabel.methods import method
from onelabel.recovery import RecoveredFile, recover
from onelabel.recovery.folds import ArrayScores
from onelabel.recovery.inputs import Inputs, in_order_of, role_scores

Made = tuple[np.ndarray, Labels, np.ndarray, np.ndarray]


@pytest.fixture
def made() -> Made:
    rng = np.random.default_rng(0)
    y = rng.random((300, 4)) < 0.35
    y[~y.any(1), 0] = True
    labels = drop_labels(y.astype(np.uint8), seed=0)
    return y, labels, (3 * y - 2 + rng.standard_normal(y.shape)).astype(np.float32), rng.random(y.shape)


def test_each_class_hands_its_scores_out_in_the_order_of_the_estimates(made: Made) -> None:
    _, labels, scores, estimates = made
    found, observed = in_order_of(scores, estimates, labels), labels.to_dense()
    for c in range(4):
        rows = [i for i in range(300) if observed[i, c] == 0]
        by_estimate = sorted(rows, key=lambda i: estimates[i, c])
        assert [found[i, c] for i in by_estimate] == sorted(float(scores[i, c]) for i in rows)
        for i in set(range(300)) - set(rows):
            assert found[i, c] == scores[i, c]  # observed entries keep theirs


def run_of(labels: Labels, estimates: np.ndarray, name: str = "role") -> SimpleNamespace:
    """A run whose ROLE table holds these estimates at unknown entries."""
    role = method("role", expected_positives=1.5)
    role.bind(labels)
    state = role.state_dict()
    (table,) = [key for key, value in state.items() if value.shape == labels.shape]
    state[table] = torch.logit(torch.as_tensor(estimates, dtype=state[table].dtype).clamp(1e-4, 1 - 1e-4))
    config = SimpleNamespace(method=name, hyper={"expected_positives": 1.5})
    return SimpleNamespace(config=config, method_state=state)


def unknown_ap(file: RecoveredFile, y: np.ndarray, labels: Labels) -> float:
    q = np.zeros(y.shape)
    for batch in file.batches():
        q[batch["row"], batch["class_index"]] = batch["probability"]
    unknown = labels.to_dense() == 0
    return float(np.mean([average_precision_score(y[m, c], q[m, c]) for c, m in enumerate(unknown.T)]))


def test_a_role_run_reorders_and_others_do_not(made: Made, tmp_path: Path) -> None:
    y, labels, scores, noise = made
    knowing = np.where(y, 0.7, 0.3) + 0.25 * (noise - 0.5)  # these know the truth, the scores do not
    fitted = ArrayScores(scores)
    inputs = Inputs(None, labels, None, "", run=run_of(labels, knowing))
    found = role_scores(inputs, fitted)
    assert found is not fitted
    np.testing.assert_array_equal(found.rows(np.arange(300)), in_order_of(scores, knowing, labels))
    before, after = (
        recover(None, labels, tmp_path / f"{name}.parquet", scores=each, show=False).file
        for name, each in (("before", fitted), ("after", found))
    )
    assert unknown_ap(after, y, labels) > 0.95 > unknown_ap(before, y, labels)
    em = Inputs(None, labels, None, "", run=run_of(labels, knowing, name="em"))
    assert role_scores(em, fitted) is fitted
    assert role_scores(Inputs(None, labels, None, ""), fitted) is fitted
    other = run_of(labels, knowing)
    other.method_state = {k: v[:-1] if v.shape == labels.shape else v for k, v in other.method_state.items()}
    assert role_scores(Inputs(None, labels, None, "", run=other), fitted) is fitted
