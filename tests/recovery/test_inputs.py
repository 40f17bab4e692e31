"""What a recovery starts from: the run's network as training began with it, names as the data has them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onelabel.recovery import inputs
from onelabel.training import TrainConfig


@pytest.mark.parametrize(
    ("backbone", "weights", "wanted"),
    [
        ("resnet18", None, "pretrained"),
        ("resnet18", "random", None),
        ("small-cnn", None, None),
        ("resnet18", "w.pth", "w.pth"),
    ],
)
def test_a_run_begins_from_the_weights_that_training_began_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], backbone: str, weights: Any, wanted: Any
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("onelabel.models.build_backbone", lambda name, **how: asked.append((name, how["weights"])))
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    run = SimpleNamespace(config=TrainConfig(backbone=backbone, weights=weights, mode="finetune"))
    inputs._network(run, None, None, False)
    assert asked == [(backbone, wanted)]
    assert ("--tuned" in capsys.readouterr().err) == (wanted is None)
    inputs._network(None, backbone, weights, False)
    assert asked[1] == asked[0]


def test_packed_features_keep_their_pictures_names(tmp_path: Path) -> None:
    observed = np.eye(3, dtype=np.int8)
    names = np.array(["2008_1.jpg", "2008_2.jpg", "2008_3.jpg"])
    np.savez(
        tmp_path / "labels.npz", classes=np.array(list("abc")), train_images=names,
        train_observed_uniform1200=observed, train_true=observed,
    )  # fmt: skip
    np.savez(tmp_path / "features-resnet50-448.npz", train=np.full((3, 4), 255, np.uint8), peak=np.float32(2))
    found = inputs.load_inputs(tmp_path)
    assert found.examples == names.tolist()
    np.testing.assert_allclose(found.features, 2)
