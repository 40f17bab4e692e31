"""A CNN small enough for tests and for `digits-scenes` on two CPU cores."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

Norm = Literal["batch", "group", "none"]


class SmallCNN(nn.Module):
    """Three blocks of convolution, norm, ReLU and pooling, then global average pooling.

    Args:
        width: channels of the first block; the features have 4·width.
        norm: "batch", or "group" and "none" where every example must be treated alone (several CPU processes).
        in_chans: channels of the pictures.
    """

    def __init__(self, *, width: int = 24, norm: Norm = "batch", in_chans: int = 3) -> None:
        super().__init__()
        widths = [in_chans, width, 2 * width, 4 * width]
        self.num_features = widths[-1]
        blocks: list[nn.Module] = []
        for i, (before, after) in enumerate(pairwise(widths)):
            blocks += [nn.Conv2d(before, after, 5 if i == 0 else 3, padding=2 if i == 0 else 1), _norm(norm, after)]
            blocks += [nn.ReLU(), nn.MaxPool2d(2)] if i < 2 else [nn.ReLU()]
        self.layers = nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images).mean((2, 3))
        return features


def _norm(norm: str, channels: int) -> nn.Module:
    if norm == "none":
        return nn.Identity()
    return nn.GroupNorm(4, channels) if norm == "group" else nn.BatchNorm2d(channels)
