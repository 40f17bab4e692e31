"""A CNN small enough for tests and for `digits-scenes` on two CPU cores."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Norm = Literal["batch", "group", "none"]


class SmallCNN(nn.Module):
    """Three convolutions with norm and ReLU, the first with stride 2, then the maximum over all places.

    The maximum finds a small thing anywhere in a cluttered picture; an average would drown it.

    Args:
        width: channels of the first layer; the features have 4·width.
        norm: "batch", or "group" and "none" where every example must be treated alone (several CPU processes).
        in_chans: channels of the pictures.
    """

    def __init__(self, *, width: int = 16, norm: Norm = "batch", in_chans: int = 3) -> None:
        super().__init__()
        self.num_features = 4 * width
        bias = norm != "batch"  # BatchNorm takes any constant away again
        self.layers = nn.Sequential(
            nn.Conv2d(in_chans, width, 5, stride=2, padding=2, bias=bias),
            _norm(norm, width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=bias),
            _norm(norm, 2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=bias),
            _norm(norm, 4 * width),
            nn.ReLU(),
        )

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images).amax((2, 3))
        return features


def _norm(norm: str, channels: int) -> nn.Module:
    if norm == "none":
        return nn.Identity()
    return nn.GroupNorm(4, channels) if norm == "group" else nn.BatchNorm2d(channels)
