"""Augmentation of whole batches on the device: static shapes, no host synchronisation, so CUDA graphs can hold it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import grid_sample

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
LUMA = (0.299, 0.587, 0.114)


def flip(images: Tensor, which: Tensor) -> Tensor:
    """Mirror the pictures (B×3×H×W) that `which` (B, bool) marks."""
    return torch.where(which[:, None, None, None], images.flip(3), images)


def crop(images: Tensor, boxes: Tensor, *, size: int, flips: Tensor | None = None) -> Tensor:
    """Cut `boxes` out of float pictures B×3×H×W, mirror some, and resize them to size×size in one bilinear lookup.

    Args:
        boxes: B×4 of (centre x, centre y, width, height), all relative to the picture's sides.
        flips: B, bool.
    """
    unit = torch.arange(size, device=images.device, dtype=boxes.dtype).add(0.5).div(size).sub(0.5)  # −½..½
    across = unit[None, :] * boxes[:, 2:3]
    if flips is not None:
        across = torch.where(flips[:, None], -across, across)
    x = 2 * (boxes[:, 0:1] + across) - 1
    y = 2 * (boxes[:, 1:2] + unit[None, :] * boxes[:, 3:4]) - 1
    batch = len(images)
    grid = torch.stack([x[:, None, :].expand(batch, size, size), y[:, :, None].expand(batch, size, size)], dim=3)
    return grid_sample(images, grid.to(images.dtype), mode="bilinear", padding_mode="border", align_corners=False)


def random_boxes(
    batch: int, *, scale: tuple[float, float], ratio: tuple[float, float], device: torch.device | str
) -> Tensor:
    """Boxes for `crop`: area uniform in `scale`, log aspect ratio uniform in `ratio`, clipped to fit, placed uniformly.

    torchvision draws again when a box does not fit; clipping its longer side keeps the shapes static.
    """
    draws = torch.rand(4, batch, device=device)
    area = scale[0] + (scale[1] - scale[0]) * draws[0]
    log_ratio = math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * draws[1]
    width = (area * log_ratio.exp()).sqrt().clamp(max=1)
    height = (area / log_ratio.exp()).sqrt().clamp(max=1)
    x = width / 2 + (1 - width) * draws[2]
    y = height / 2 + (1 - height) * draws[3]
    return torch.stack([x, y, width, height], dim=1)


class Colour(nn.Module):
    """Adjust float pictures in [0, 1] (B×3×H×W) by a factor per picture, in this order, clamped once at the end.

    Brightness multiplies; contrast blends with the picture's mean grey, saturation with each pixel's grey; hue turns
    the two chroma axes of YIQ by that share of a full turn. All but the mean are linear in the pixel, so the whole
    is one 3×3 matrix and an offset per picture. The constants are buffers: nothing is copied to the device in a step.
    """

    luma: Tensor
    eye: Tensor
    to_yiq: Tensor
    from_yiq: Tensor

    def __init__(self) -> None:
        super().__init__()
        to_yiq = torch.tensor([LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)])
        constants = {"luma": to_yiq[0], "eye": torch.eye(3), "to_yiq": to_yiq, "from_yiq": to_yiq.inverse()}
        for name, value in constants.items():
            self.register_buffer(name, value.clone(), persistent=False)

    def forward(
        self, images: Tensor, *, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor | None = None
    ) -> Tensor:
        pixels = images.shape[2] * images.shape[3]
        mean = torch.einsum("bchw,c->b", images, self.luma.to(images.dtype)) / pixels * brightness
        saturate = saturation[:, None, None] * self.eye + (1 - saturation)[:, None, None] * self.luma
        turn = saturate if hue is None else self._hue(hue) @ saturate
        matrix = (turn * (brightness * contrast)[:, None, None]).to(images.dtype)
        offset = (turn.sum(2) * ((1 - contrast) * mean)[:, None]).to(images.dtype)
        return (torch.einsum("bij,bjhw->bihw", matrix, images) + offset[:, :, None, None]).clamp(0, 1)

    def _hue(self, hue: Tensor) -> Tensor:
        angle = hue * (2 * math.pi)
        cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros_like(hue), torch.ones_like(hue)
        rotation = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], dim=1).reshape(-1, 3, 3)
        return self.from_yiq @ rotation @ self.to_yiq


class Augment(nn.Module):
    """uint8 pictures B×3×H×W → normalised float pictures B×3×S×S, randomly changed while the module trains.

    In `eval()` mode, or with every argument at its default, it only normalises. `Augment(flip=0.5)` is the published
    training augmentation; `Augment.strong()` gives the views that consistency methods compare.

    Args:
        flip: probability of a horizontal flip.
        scale: range of the area of a random resized crop, such as (0.2, 1.0); None for no crop. The crop reads
            without antialiasing, so keep the lower end above (S/H)² where S is smaller than H.
        ratio: range of the crop's aspect ratio.
        jitter: strengths of brightness, contrast, saturation and hue, as in torchvision's ColorJitter; None for none.
        grey: probability of losing all colour.
        size: S, the output's side; the input's unless given.
        dtype: of the output.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        *,
        flip: float = 0.0,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        jitter: tuple[float, float, float, float] | None = None,
        grey: float = 0.0,
        size: int | None = None,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if not 0 <= flip <= 1 or not 0 <= grey <= 1:
            raise ValueError(f"flip and grey: {flip}, {grey}, expected probabilities")
        if scale is not None and not 0 < scale[0] <= scale[1] <= 1:
            raise ValueError(f"scale: {scale}, expected 0 < low ≤ high ≤ 1")
        if size is not None and scale is None:
            raise ValueError(f"size: {size} needs scale=; without a crop the pictures keep their size")
        if jitter is not None and (min(jitter) < 0 or jitter[3] > 0.5):
            raise ValueError(f"jitter: {jitter}, expected strengths of at least 0, hue at most 0.5")
        self.flip, self.scale, self.ratio, self.jitter = flip, scale, ratio, jitter
        self.grey, self.size, self.dtype = grey, size, dtype
        self.colour = Colour() if jitter is not None or grey else None
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    @classmethod
    def strong(cls, *, size: int | None = None, dtype: torch.dtype = torch.float32) -> Augment:
        """Crops of 20–100%, flips, colour jitter and some grey: the usual views of consistency methods."""
        return cls(flip=0.5, scale=(0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), grey=0.2, size=size, dtype=dtype)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images: {images.dtype} {tuple(images.shape)}, expected uint8 B×3×H×W")
        batch, place = len(images), images.device
        mirrored = torch.rand(batch, device=place) < self.flip if self.training and self.flip else None
        if self.training and self.scale is not None:
            floats = images.to(torch.float32).div_(255)
            boxes = random_boxes(batch, scale=self.scale, ratio=self.ratio, device=place)
            floats = crop(floats, boxes, size=self.size or images.shape[3], flips=mirrored)
        elif self.size is not None:  # in eval the whole picture, at the size that training sees
            floats = torch.nn.functional.interpolate(
                images.to(torch.float32).div_(255), (self.size, self.size), mode="bilinear", antialias=True
            )
        else:
            whole = images if mirrored is None else flip(images, mirrored)
            if not self.training or self.colour is None:  # the published case: one multiplication and one addition
                return _scale(whole.to(torch.float32), 1 / (255 * self.std), -self.mean / self.std).to(self.dtype)
            floats = whole.to(torch.float32).div_(255)
        if self.training and self.colour is not None:
            floats = self._jitter(floats, self.colour)
        return _scale(floats, 1 / self.std, -self.mean / self.std).to(self.dtype)

    def _jitter(self, floats: Tensor, adjust: Colour) -> Tensor:
        draws = torch.rand(5, len(floats), device=floats.device)
        bright, contrast, saturation, hue = self.jitter or (0.0, 0.0, 0.0, 0.0)
        low = [max(0.0, 1 - strength) for strength in (bright, contrast, saturation)]
        factors = [
            a + (1 + strength - a) * d
            for a, strength, d in zip(low, (bright, contrast, saturation), draws, strict=False)
        ]
        factors[2] = torch.where(draws[4] < self.grey, torch.zeros_like(factors[2]), factors[2])
        turn = (2 * draws[3] - 1) * hue if hue else None
        return adjust(floats, brightness=factors[0], contrast=factors[1], saturation=factors[2], hue=turn)

    def extra_repr(self) -> str:
        return f"flip={self.flip}, scale={self.scale}, jitter={self.jitter}, grey={self.grey}, size={self.size}"


def _scale(floats: Tensor, factor: Tensor, offset: Tensor) -> Tensor:
    """floats · factor + offset per channel (3), in place.

    In channels-last memory a channel's constant would be met three values at a time; a whole row of constants lets
    the processor work on long runs instead: four times quicker on a CPU.
    """
    if floats.is_contiguous(memory_format=torch.channels_last) and not floats.is_contiguous():
        rows = floats.permute(0, 2, 3, 1).flatten(2)  # B×H×3W, a view
        width = floats.shape[3]
        rows.mul_(factor.repeat(width)).add_(offset.repeat(width))
        return floats
    return floats.mul_(factor[:, None, None]).add_(offset[:, None, None])


def make_views(images: Tensor, plain: Augment, strong: Augment, views: int) -> Tensor:
    """The plain pictures and views−1 random augmentations of each: views×B×3×S×S, as methods ask by `needs.views`."""
    return torch.stack([plain(images), *(strong(images) for _ in range(views - 1))])
