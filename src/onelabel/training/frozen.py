"""`frozen_backbone`: what turns pictures into features outside training, as training would build it."""

from __future__ import annotations

from typing import Any

from torch import nn

from onelabel import models
from onelabel.models.backbones import check_size
from onelabel.system import say
from onelabel.training.config import TrainConfig


def frozen_backbone(
    backbone: str | None = None, weights: str | None = None, *, size: int
) -> tuple[nn.Module, dict[str, Any]]:
    """The backbone named, or training's own, aloud; and the `mean` and `std` by which its pictures are normalised.

    Built as training builds it, so that a weights file and its layout mean the same here and there.
    """
    if backbone is None:
        backbone = TrainConfig.backbone
        say(f"pictures become features of {backbone}, as train takes it; --backbone (backbone=) names another")
    network = models.build_classifier(1, backbone=backbone, weights=models.starting_weights(backbone, weights))
    check_size(network.backbone, size)
    mean, std = ((buffer.flatten() / 255).tolist() for buffer in (network.mean, network.std))
    return network.backbone, {"mean": mean, "std": std}
