"""What a recovery starts from: the run's network as training began with it, names as the data has them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from onelabel.labels import Labels
from onelabel.models import build_classifier, starting_weights
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
    shown = SimpleNamespace(mean=torch.full((1, 3, 1, 1), 51.0), std=torch.full((1, 3, 1, 1), 25.5), backbone=None)
    config = TrainConfig(backbone=backbone, weights=weights, mode="finetune")
    run = SimpleNamespace(config=config, classifier=shown)
    _, look = inputs._network(run, None, None, False, 64)
    assert look == {"mean": pytest.approx([0.2] * 3), "std": pytest.approx([0.1] * 3)}
    assert asked == [(backbone, wanted)]
    assert ("--tuned" in capsys.readouterr().err) == (wanted is None)


@pytest.mark.parametrize(
    ("backbone", "weights"), [("resnet18", "random"), ("inception_v3", "random"), ("small-cnn", None)]
)
def test_data_are_seen_as_training_sees_them(backbone: str, weights: str | None) -> None:
    """Inception's pictures are not normalised by ImageNet's numbers."""
    torch.manual_seed(0)
    body, look = inputs._network(None, backbone, weights, False, 64)
    torch.manual_seed(0)
    trained = build_classifier(3, backbone=backbone, weights=starting_weights(backbone, weights))
    assert look["mean"] == pytest.approx((trained.mean.flatten() / 255).tolist())
    assert look["std"] == pytest.approx((trained.std.flatten() / 255).tolist())
    for name, value in body.state_dict().items():
        torch.testing.assert_close(value, trained.backbone.state_dict()[name])


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
