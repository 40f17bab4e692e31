"""A small dataset of features on which methods can be told apart, and trainings of which take a second."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onelabel.data import FeatureDataset, Splits
from onelabel.labels import Labels, drop_labels

NAMES = ("ant", "bee", "cat", "dog")


def make_splits(rows: int = 60, seed: int = 0) -> Splits[FeatureDataset]:
    """Four classes, each a direction in eight dimensions; one to three of them in every row."""
    rng = np.random.default_rng(seed)
    parts = {}
    directions = rng.normal(size=(4, 8))
    for name in ("train", "validation", "test"):
        true = (rng.random((rows, 4)) < 0.4).astype(np.uint8)
        true[np.arange(rows), rng.integers(4, size=rows)] = 1
        X = (true @ directions + 0.3 * rng.normal(size=(rows, 8))).astype(np.float32)
        full = Labels.from_true(true, NAMES)
        observed = drop_labels(full, seed=1200) if name == "train" else full
        parts[name] = FeatureDataset(f"toy/{name}", NAMES, X, observed, true)
    return Splits("toy", parts["train"], parts["validation"], parts["test"])


@pytest.fixture
def splits() -> Splits[FeatureDataset]:
    return make_splits()


@pytest.fixture
def make() -> Callable[..., Splits[FeatureDataset]]:
    return make_splits
