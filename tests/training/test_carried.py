"""What a finished run says of its own probabilities (what predict and exports make of it: tests/recovery)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.data import FeatureDataset, Splits
from onelabel.labels import drop_labels
from onelabel.metrics import calibration_error
from onelabel.training import Run, train
from onelabel.training.carried import FILE, calibration_of


def made(rows: int = 3000, classes: int = 6) -> Splits[Any]:
    """Labels that are chances of the features, so that honest probabilities exist."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, 16)).astype(np.float32)
    true = rng.random((rows, classes)) < 1 / (1 + np.exp(3 - 1.5 * X @ rng.standard_normal((16, classes))))
    true[np.flatnonzero(~true.any(1)), 0] = 1
    true = true.astype(np.uint8)
    names = tuple(f"c{i}" for i in range(classes))
    cuts = {"train": slice(0, 1800), "validation": slice(1800, 2400), "test": slice(2400, None)}
    parts = {n: FeatureDataset(n, names, X[c], drop_labels(true[c]), true[c]) for n, c in cuts.items()}
    return Splits("made", **parts)


@pytest.mark.parametrize("known", [True, False], ids=["true labels", "one label a row"])
def test_training_leaves_a_calibration(tmp_path: Path, known: bool) -> None:
    """By held-out rows' true labels, or by one label each: of other rows it is honest, where the sigmoids are not."""
    data = made()
    if not known:
        assert data.validation is not None
        data = replace(data, validation=replace(data.validation, true=None))
    run = train(data, out=tmp_path / "run", method="roll-call", mode="linear", epochs=8, lr=3e-3, device="cpu")
    found = calibration_of(Run.load(tmp_path / "run"))
    assert found is not None
    assert data.test is not None
    sigmoid, true = run.scores["test"], data.test.true
    assert found.some == (not known)
    honest = found.said(np.log(sigmoid / (1 - sigmoid))).numpy()
    assert calibration_error(honest, true) < (0.03 if known else 0.06) < calibration_error(sigmoid, true)


def test_few_rows_leave_none(tmp_path: Path) -> None:
    data = made()
    assert data.validation is not None
    few = data.validation
    few = replace(few, X=few.X[:60], observed=few.observed.take(np.arange(60)), true=few.true[:60])
    train(replace(data, validation=few), out=tmp_path / "run", mode="linear", epochs=1, device="cpu")
    assert not (tmp_path / "run" / FILE).exists()
