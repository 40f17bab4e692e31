"""What a recovery starts from: the run's network as training began with it, names as the data has them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onelabel.labels import Labels
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


@pytest.mark.parametrize(("method", "taken"), [("gr", "gr"), ("roll-call", "roll-call"), ("an", None), ("wan", None)])
def test_a_run_is_recovered_by_its_own_method_where_that_suits(method: str, taken: str | None) -> None:
    """Scores that say which label would be named find nothing missing: k 1.1 by `an`, 1.6 by others."""
    run = SimpleNamespace(config=TrainConfig(method=method, mode="linear", lr=0.01))
    found = inputs.Inputs(None, Labels.from_classes([0, 1]), None, "", run=run).method
    assert (None if found is None else found.method) == taken
    assert found is None or found.lr == 0.01
