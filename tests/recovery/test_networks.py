"""Held-out scores: no network sees the rows it scores, and all rows are scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.data import load_dataset
from onelabel.probes.folds import assign_folds
from onelabel.recovery import networks

SETTINGS = {
    "method": "an", "backbone": "small-cnn", "size": 16, "epochs": 1, "batch_size": 20, "lr": 1e-3, "device": "cpu",
}  # fmt: skip


def test_every_row_is_scored_by_a_network_without_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    splits = load_dataset("digits-scenes", size=16, n_train=60, n_validation=10, n_test=0)
    seen: list[set[str]] = []
    real = networks.train

    def kept(data: Any, **settings: Any) -> Any:
        seen.append(set(data.train.source.paths))
        return real(data, **settings)

    monkeypatch.setattr(networks, "train", kept)
    scores = networks.held_out_scores(splits, folds=3, seed=1, out=tmp_path / "folds", **SETTINGS)
    assert scores.shape == (60, 10)
    assert np.isfinite(scores).all()
    fold = assign_folds(splits.train.observed, 3, seed=1)
    for number, names in enumerate(seen):
        assert names == {splits.train.source.paths[i] for i in np.flatnonzero(fold != number)}
    again = networks.held_out_scores(splits, folds=3, seed=1, out=tmp_path / "folds", **SETTINGS)
    assert len(seen) == 3  # finished ones are taken as they are
    np.testing.assert_allclose(again, scores, atol=1e-5)
