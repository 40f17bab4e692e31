from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onelabel.data import Dataset, load_dataset
from onelabel.data.digits import compose


def test_shapes_labels_and_parts() -> None:
    splits = load_dataset("digits-scenes", size=48, n_train=300, n_validation=60, n_test=80)
    assert {name: len(part) for name, part in splits.parts.items()} == {"train": 300, "validation": 60, "test": 80}
    assert splits.class_names == tuple("0123456789")
    for part in splits.parts.values():
        assert part.source.images.shape == (len(part), 48, 48, 3)
        assert part.source.images.dtype == np.uint8
        per_row = part.true.sum(1)
        assert per_row.min() >= 1
        assert per_row.max() <= 4
        dense = part.observed.to_dense()
        assert (dense.sum(1) == 1).all()
        assert (part.true[dense == 1] == 1).all()
    share = splits.train.true.mean(0)
    assert share[1] > 1.5 * share[0]  # classes are not equally common
    assert load_dataset("digits-scenes", n_train=5, n_validation=0, n_test=0).parts.keys() == {"train"}


def test_the_seed_decides_everything() -> None:
    a, b, c = (load_dataset("digits-scenes", size=24, n_train=20, n_test=4, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(a.train.source.images, b.train.source.images)
    assert a.train.observed == b.train.observed
    assert a.train.source.fingerprint() == b.train.source.fingerprint() != c.train.source.fingerprint()
    assert not np.array_equal(a.train.source.images, c.train.source.images)
    # More scenes of one part leave the others as they are.
    d = load_dataset("digits-scenes", size=24, n_train=30, n_test=4, seed=1)
    np.testing.assert_array_equal(a.test.source.images, d.test.source.images)


def test_handwriting_of_test_is_not_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[set[bytes]] = []

    def spy(glyphs: np.ndarray, classes: np.ndarray, *rest: object) -> tuple[np.ndarray, np.ndarray]:
        pools.append({glyph.tobytes() for glyph in glyphs})
        return compose(glyphs, classes, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("onelabel.data.digits.compose", spy)
    load_dataset("digits-scenes", n_train=5, n_validation=5, n_test=5)
    train, validation, test = pools
    assert train == validation
    assert not train & test
    assert len(train) + len(test) > 1790  # all of scikit-learn's digits


def test_a_digit_is_where_its_label_says() -> None:
    """One bright class of glyphs against an empty class: only labelled scenes may change."""
    glyphs = np.zeros((20, 8, 8), np.float32)
    glyphs[::2] = 1.0  # even instances are solid, and belong to class 3; all other classes are blank
    classes = np.arange(20) % 10
    classes[::2], classes[1::2] = 3, [0, 1, 2, 4, 5, 6, 7, 8, 9, 0]
    images, labels = compose(glyphs, classes, 400, 32, np.random.default_rng(0))
    contrast = images.max(3).reshape(400, -1).std(1)
    solid = labels[:, 3] == 1
    assert contrast[solid].mean() > 1.3 * contrast[~solid].mean()


def test_errors() -> None:
    with pytest.raises(ValueError, match="size: 8"):
        load_dataset("digits-scenes", size=8)
    with pytest.raises(ValueError, match="n_train: 0"):
        load_dataset("digits-scenes", n_train=0)
    with pytest.raises(TypeError, match="no option 'sze'"):
        load_dataset("digits-scenes", sze=8)


def test_learnable_and_not_trivial() -> None:
    """With clean labels a small network gets far above chance and far below perfect in a few epochs."""
    from sklearn.metrics import average_precision_score

    splits = load_dataset("digits-scenes", size=32, n_train=1200, n_validation=0, n_test=300)
    torch.manual_seed(0)

    def tensors(part: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.from_numpy(part.source.images).permute(0, 3, 1, 2).float() / 128 - 1  # type: ignore[attr-defined]
        assert part.true is not None
        return images, torch.from_numpy(part.true).float()

    x, y = tensors(splits.train)
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    adam = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(3):
        for rows in torch.randperm(len(x)).split(32):
            adam.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(net(x[rows]), y[rows]).backward()
            adam.step()
    x, y = tensors(splits.test)
    with torch.no_grad():
        scores = net.eval()(x).numpy()
    score = average_precision_score(y.numpy(), scores, average="macro")
    chance = y.mean().item()
    assert score > chance + 0.1
    assert score < 0.98


def test_another_series_is_other_scenes_of_the_same_handwriting(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[bytes] = []

    def kept(glyphs: Any, classes: Any, *rest: Any) -> Any:
        pools.append(glyphs.tobytes())
        return compose(glyphs, classes, *rest)

    monkeypatch.setattr("onelabel.data.digits.compose", kept)
    first, second = (load_dataset("digits-scenes", size=16, n_train=8, n_test=0, series=s).train for s in (0, 1))
    assert not np.array_equal(first.source.read(0), second.source.read(0))
    assert len(set(pools)) == 1
