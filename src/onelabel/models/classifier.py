"""The classifier: a backbone, a linear head, and the normalisation of the pictures it was made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onelabel.models.backbones import Stride, build_backbone, width_of

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as all of timm's and torchvision's classics


class Classifier(nn.Module):
    """logits = head(backbone(picture)).

    Takes uint8 pictures B×H×W×3 as they lie in memory and normalises them itself, or floats that are already
    normalised (B×C×H×W), or features (B×D) where the backbone is an `nn.Identity` (or `Columns`).
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        *,
        num_classes: int | None = None,
        mean: tuple[float, ...] = MEAN,
        std: tuple[float, ...] = STD,
    ) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.num_classes = int(num_classes or head.out_features)  # type: ignore[arg-type]
        # uint8 in, so 255 is folded into both
        self.register_buffer("mean", torch.tensor(mean).mul(255).reshape(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).mul(255).reshape(1, -1, 1, 1), persistent=False)

    @property
    def takes_pictures(self) -> bool:
        """Whether there is a network before the head; else it takes features."""
        return not isinstance(self.backbone, nn.Identity)

    def normalise(self, pictures: Tensor) -> Tensor:
        """uint8 B×H×W×3 → normalised float32 B×3×H×W in channels-last memory."""
        return (pictures.permute(0, 3, 1, 2).float() - self.mean) / self.std

    def forward(self, pictures: Tensor) -> Tensor:
        return self.with_features(pictures)[0]

    def with_features(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Logits B×L and what the head saw, B×D."""
        if pictures.dtype == torch.uint8:
            pictures = self.normalise(pictures)
        features = self.backbone(pictures)
        with torch.autocast(features.device.type, enabled=False):  # bfloat16 logits would tie
            return self.head(features.float()), features


def build_classifier(
    num_classes: int,
    *,
    backbone: str | nn.Module = "resnet50",
    weights: str | Path | None = None,
    stride: Stride = "auto",
    head: tuple[Any, Any] | None = None,
) -> Classifier:
    """A backbone with a fresh linear head, or with a given head `(weight L×D, bias L)`."""
    body = build_backbone(backbone, weights=weights, stride=stride) if isinstance(backbone, str) else backbone
    config: dict[str, Any] = getattr(body, "pretrained_cfg", None) or {}
    local = weights is not None and weights != "pretrained"  # torchvision-style files expect ImageNet's numbers
    mean, std = (MEAN, STD) if local else (tuple(config.get("mean", MEAN)), tuple(config.get("std", STD)))
    return Classifier(body, make_head(width_of(body), num_classes, head), mean=mean, std=std)


def make_head(width: int, num_classes: int, given: tuple[Any, Any] | None = None) -> nn.Linear:
    """The linear head, as `nn.Linear` starts it unless weight and bias are given."""
    layer = nn.Linear(width, num_classes)
    if given is None:
        return layer
    weight, bias = (torch.as_tensor(value, dtype=torch.float32) for value in given)
    if tuple(weight.shape) != (num_classes, width) or tuple(bias.shape) != (num_classes,):
        raise ValueError(
            f"head: weight {tuple(weight.shape)} and bias {tuple(bias.shape)}, "
            f"expected {(num_classes, width)} and {(num_classes,)}"
        )
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer
