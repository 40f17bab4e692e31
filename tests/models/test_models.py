"""Backbones, classifiers and weights from files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from onelabel.models import (
    Classifier,
    SmallCNN,
    build_backbone,
    build_classifier,
    load_weights,
    read_weights,
    starting_weights,
)
from onelabel.models.backbones import check_size


def test_timm_backbone_gives_pooled_features() -> None:
    backbone = build_backbone("resnet18", in_chans=4).eval()
    with torch.no_grad():
        assert backbone(torch.zeros(2, 4, 64, 64)).shape == (2, 512)
    assert backbone.num_features == 512


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "efficientvit_b0", "resnet10t"])
def test_the_head_is_as_wide_as_what_the_network_gives(name: str) -> None:
    """Where it ends in a layer wider than its last block, too."""
    model = build_classifier(3, backbone=name).eval()
    with torch.no_grad():
        logits, features = model.with_features(torch.zeros(2, 64, 64, 3, dtype=torch.uint8))
    assert logits.shape == (2, 3)
    assert features.shape == (2, model.head.in_features)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mixer_s32_224"])
def test_a_network_of_one_size_says_which(name: str) -> None:
    from onelabel.training.frozen import frozen_backbone

    with pytest.raises(ValueError, match=rf"size: 448, but {name} takes pictures of 224 px alone: give --size 224"):
        frozen_backbone(name, "random", size=448)
    frozen_backbone(name, "random", size=224)
    check_size(build_backbone("resnet10t"), 448)


def test_unknown_backbone_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'resnet50'"):
        build_backbone("resnet5o")
    with pytest.raises(ValueError, match="stride: 'v2'"):
        build_backbone("small-cnn", stride="v2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no pretrained weights"):
        build_backbone("small-cnn", weights="pretrained")


def test_classifier_takes_pictures_as_they_lie_in_memory() -> None:
    model = build_classifier(5, backbone="small-cnn").eval()
    pictures = torch.randint(0, 256, (3, 32, 40, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    floats = ((pictures / 255 - mean) / std).permute(0, 3, 1, 2)
    with torch.no_grad():
        torch.testing.assert_close(model(pictures), model(floats))
        logits, features = model.with_features(pictures)
        torch.testing.assert_close(model.head(features), logits)
    assert model.num_classes == 5
    assert "mean" not in model.state_dict()


def test_logits_are_float32_under_autocast() -> None:
    """bfloat16 logits have 8 bits: scores would tie and average precision move."""
    model = build_classifier(5, backbone="small-cnn")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, features = model.with_features(torch.zeros(2, 16, 16, 3, dtype=torch.uint8))
    assert features.dtype == torch.bfloat16
    assert logits.dtype == torch.float32


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_weights_files_round_trip_in_half_precision(tmp_path: Path, suffix: str) -> None:
    source = SmallCNN()
    state = {k: v.half() if v.ndim > 1 else v for k, v in source.state_dict().items()}
    state |= {"fc.weight": torch.zeros(1000, 64), "fc.bias": torch.zeros(1000)}
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(state, str(path))
    else:
        torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, path)
    target = build_backbone("small-cnn", weights=path)
    for name, value in target.state_dict().items():
        assert value.dtype == source.state_dict()[name].dtype
        torch.testing.assert_close(value, state[name].to(value.dtype))


def test_pickled_code_is_not_executed(tmp_path: Path) -> None:
    torch.save({"weight": nn.Linear(2, 2)}, tmp_path / "weights.pth")
    with pytest.raises(Exception, match="weights_only"):
        read_weights(tmp_path / "weights.pth")


def test_what_does_not_fit_is_listed(tmp_path: Path) -> None:
    state = SmallCNN(width=8).state_dict()
    state["surplus"] = state.pop("layers.0.weight")
    save_file(state, str(tmp_path / "w.safetensors"))
    with pytest.raises(ValueError, match="does not fit SmallCNN") as caught:
        load_weights(SmallCNN(width=16), tmp_path / "w.safetensors")
    text = str(caught.value)
    assert "1 missing: layers.0.weight" in text
    assert "1 surplus: surplus" in text
    assert "of another shape: layers.1.weight (8,)≠(16,)" in text
    assert "\n" not in text
    with pytest.raises(FileNotFoundError, match="is not a file"):
        read_weights(tmp_path / "absent.pth")
    (tmp_path / "w.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"expected .safetensors"):
        read_weights(tmp_path / "w.bin")


def test_v1_strides_are_moved_by_name_and_said_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = build_backbone("resnet50")
    file = tmp_path / "resnet50-v1-mine.safetensors"
    save_file({k: v.contiguous() for k, v in plain.state_dict().items()}, str(file))
    moved = build_backbone("resnet50", weights=file)
    assert "original ResNet layout" in capsys.readouterr().err
    for layer in (moved.layer2, moved.layer3, moved.layer4):
        assert (layer[0].conv1.stride, layer[0].conv2.stride) == ((2, 2), (1, 1))
    kept = build_backbone("resnet50", weights=file, stride="v1.5")
    assert kept.layer2[0].conv2.stride == (2, 2)
    assert build_backbone("resnet50", stride="v1").layer4[0].conv1.stride == (2, 2)
    with pytest.raises(ValueError, match="bottleneck"):
        build_backbone("resnet18", stride="v1")


@pytest.mark.shared
def test_shared_weights_give_the_shared_features(shared_data: Path) -> None:
    """On the small AVIF copies, so loosely; v1.5 strides with the same weights are clearly worse.

    On the pictures the features were made of (pack_voc.py's shards) the correlation is 0.99997.
    """
    image = pytest.importorskip("PIL.Image")
    kept = np.load(shared_data / "voc2012" / "features-resnet50-448.npz")
    expected = (kept["train"][:3].astype(np.float32) / 255) ** 2 * kept["peak"]
    copies = np.load(shared_data / "voc2012" / "images-0.npz")
    ends = copies["ends"][:3]
    starts = [0, *ends[:-1]]
    pictures = []
    for start, end in zip(starts, ends, strict=True):
        try:
            pictures.append(np.asarray(image.open(io.BytesIO(copies["blob"][start:end].tobytes())).convert("RGB")))
        except image.UnidentifiedImageError:
            pytest.skip("this Pillow reads no AVIF")
    batch = torch.from_numpy(np.stack(pictures))
    weights = shared_data / "resnet50" / "resnet50-v1-imagenet.safetensors"
    found = {}
    for stride in ("auto", "v1.5"):
        model: Classifier = build_classifier(20, weights=weights, stride=stride).eval()  # type: ignore[arg-type]
        with torch.no_grad():
            features = model.with_features(batch)[1].numpy()
        found[stride] = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(features, expected, strict=True)])
    assert found["auto"] > 0.88
    assert found["auto"] > found["v1.5"] + 0.05


def test_nothing_said_means_pretrained_where_there_are_any() -> None:
    assert starting_weights("resnet50", None) == "pretrained"
    assert starting_weights("resnet50", "random") is None
    assert starting_weights("resnet50", "w.safetensors") == "w.safetensors"
    assert starting_weights("small-cnn", None) is None


def test_random_weights_can_be_asked_for_by_name() -> None:
    torch.manual_seed(0)
    by_name = build_backbone("small-cnn", weights="random").state_dict()
    torch.manual_seed(0)
    for name, tensor in build_backbone("small-cnn").state_dict().items():
        torch.testing.assert_close(by_name[name], tensor, rtol=0, atol=0)


def test_weights_that_cannot_be_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    def fails(*_: object, **__: object) -> None:
        raise OSError("no route to host\nand much more")

    monkeypatch.setattr(timm, "create_model", fails)
    monkeypatch.setattr("onelabel.models.hub.reachable", lambda address: True)
    with pytest.raises(RuntimeError, match=r"resnet50 could not be had \(no route to host\); give weights=FILE"):
        build_backbone("resnet50", weights="pretrained")
