from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms import Normalize
from torchvision.transforms.v2 import functional as reference

from onelabel.data import IMAGENET_MEAN, IMAGENET_STD, Augment, make_views
from onelabel.data.augment import Colour, crop, flip, random_boxes


@pytest.fixture
def images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (6, 3, 20, 20), dtype=torch.uint8, generator=generator)


def _normalised(images: torch.Tensor) -> torch.Tensor:
    return Normalize(IMAGENET_MEAN, IMAGENET_STD)(images.float() / 255)


def test_plain_is_torchvision_normalise(images: torch.Tensor) -> None:
    torch.testing.assert_close(Augment()(images), _normalised(images))
    torch.testing.assert_close(Augment.strong().eval()(images), _normalised(images))
    assert Augment(dtype=torch.bfloat16)(images).dtype == torch.bfloat16


def test_flip_is_half_and_per_sample(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    many = images[:1].expand(2000, -1, -1, -1)
    out = Augment(flip=0.5)(many)
    plain, mirrored = _normalised(images[:1]), _normalised(images[:1].flip(3))
    same = (out - plain).abs().amax((1, 2, 3)) < 1e-5
    other = (out - mirrored).abs().amax((1, 2, 3)) < 1e-5
    assert bool((same ^ other).all())
    assert 0.45 < same.float().mean() < 0.55
    which = torch.tensor([True, False, True, False, False, True])
    assert torch.equal(flip(images, which)[0], images[0].flip(2))
    assert torch.equal(flip(images, which)[1], images[1])


def test_crop_of_the_whole_and_of_a_quarter(images: torch.Tensor) -> None:
    floats = images.float() / 255
    whole = torch.tensor([[0.5, 0.5, 1.0, 1.0]]).expand(6, 4)
    torch.testing.assert_close(crop(floats, whole, size=20), floats)
    torch.testing.assert_close(crop(floats, whole, size=20, flips=torch.ones(6, dtype=torch.bool)), floats.flip(3))
    quarter = torch.tensor([[0.25, 0.75, 0.5, 0.5]]).expand(6, 4)  # lower left, at its own resolution
    torch.testing.assert_close(crop(floats, quarter, size=10), floats[:, :, 10:, :10])
    half = torch.tensor([[0.5, 0.5, 0.5, 0.5]]).expand(6, 4)
    expected = reference.resize(floats[:, :, 5:15, 5:15], [40, 40], antialias=False)
    got = crop(floats, half, size=40)
    torch.testing.assert_close(got[:, :, 4:-4, 4:-4], expected[:, :, 4:-4, 4:-4])  # borders see beyond the box


def test_random_boxes_fit_and_have_the_area() -> None:
    torch.manual_seed(0)
    boxes = random_boxes(5000, scale=(0.2, 0.5), ratio=(3 / 4, 4 / 3), device="cpu").double()
    x, y, w, h = boxes.unbind(1)
    assert bool((x - w / 2 >= -1e-6).all() and (x + w / 2 <= 1 + 1e-6).all())
    assert bool((y - h / 2 >= -1e-6).all() and (y + h / 2 <= 1 + 1e-6).all())
    area = w * h
    assert bool((area > 0.2 - 1e-5).all() and (area < 0.5 + 1e-5).all())
    assert abs(area.mean() - 0.35) < 0.01
    assert 0.74 < (w / h).min() < 0.8
    assert 1.28 < (w / h).max() < 1.34


@pytest.mark.parametrize("which", ["brightness", "contrast", "saturation"])
def test_colour_is_torchvisions(which: str, images: torch.Tensor) -> None:
    floats = images.float() / 255
    factors = torch.tensor([0.5, 0.8, 1.0, 1.2, 1.5, 0.0])
    ones = torch.ones(6)
    given = {name: factors if name == which else ones for name in ("brightness", "contrast", "saturation")}
    got = Colour()(floats, **given)
    adjust = getattr(reference, f"adjust_{which}")
    expected = torch.stack([adjust(image, float(f)) for image, f in zip(floats, factors, strict=True)])
    torch.testing.assert_close(got, expected, atol=1e-3, rtol=0)  # its grey weighs 0.2989, 0.587, 0.114


def test_hue_turns_colours_and_keeps_brightness(images: torch.Tensor) -> None:
    floats = 0.4 + 0.2 * images.float() / 255  # away from the clamp
    ones = torch.ones(6)
    adjust = Colour()
    rest = {"brightness": ones, "contrast": ones, "saturation": ones}
    torch.testing.assert_close(adjust(floats, hue=torch.ones(6), **rest), floats, atol=1e-5, rtol=0)
    turned = adjust(floats, hue=torch.full((6,), 0.25), **rest)
    luma = torch.tensor([0.299, 0.587, 0.114])
    np.testing.assert_allclose(
        torch.einsum("bchw,c->bhw", turned, luma), torch.einsum("bchw,c->bhw", floats, luma), atol=2e-3
    )
    assert (turned - floats).abs().max() > 0.05
    back = adjust(turned, hue=torch.full((6,), -0.25), **rest)
    torch.testing.assert_close(back, floats, atol=1e-4, rtol=0)


def test_strong_views_differ_and_keep_their_shape(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    views = make_views(images, Augment(), Augment.strong(), 3)
    assert views.shape == (3, 6, 3, 20, 20)
    torch.testing.assert_close(views[0], _normalised(images))
    assert bool(((views[1] - views[2]).abs().amax((1, 2, 3)) > 0.1).all())
    std, mean = torch.tensor(IMAGENET_STD)[:, None, None], torch.tensor(IMAGENET_MEAN)[:, None, None]
    back = views * std + mean
    assert back.min() >= -1e-5
    assert back.max() <= 1 + 1e-5
    assert Augment.strong(size=12)(images).shape == (6, 3, 12, 12)
    assert Augment.strong(size=12).eval()(images).shape == (6, 3, 12, 12)


def test_grey_loses_all_colour(images: torch.Tensor) -> None:
    out = Augment(grey=1.0, mean=(0, 0, 0), std=(1, 1, 1))(images)
    torch.testing.assert_close(out[:, 0], out[:, 1])
    torch.testing.assert_close(out[:, 0], out[:, 2])


def test_errors_name_the_argument(images: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"images: torch.float32 \(6, 3, 20, 20\), expected uint8"):
        Augment()(images.float())
    for bad in ({"flip": 2.0}, {"scale": (0.0, 1.0)}, {"size": 8}, {"jitter": (0.1, 0.1, 0.1, 0.7)}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Augment(**bad)
