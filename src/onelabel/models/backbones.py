"""`build_backbone`: a network that turns pictures into pooled features."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

from torch import nn

from onelabel.models.hub import hub
from onelabel.models.small import SmallCNN
from onelabel.models.weights import is_v1_layout, load_weights, use_v1_strides
from onelabel.system import need, say

SMALL: dict[str, dict[str, Any]] = {
    "small-cnn": {},
    "small-cnn-group": {"norm": "group"},
    "small-cnn-plain": {"norm": "none"},
}
Stride = Literal["auto", "v1", "v1.5"]


def backbone_names() -> list[str]:
    """Every name `build_backbone` knows: ours and, where it is installed, timm's."""
    try:
        import timm
    except ImportError:
        return list(SMALL)
    return [*SMALL, *timm.list_models()]


def check_name(name: str) -> None:
    """Refuse a name that `build_backbone` does not know."""
    if name in SMALL or need("timm", "vision").is_model(name):
        return
    near = difflib.get_close_matches(name, backbone_names(), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"there is no backbone {name!r}; {hint}onelabel.models.backbone_names() lists them all")


def starting_weights(name: str, weights: str | Path | None) -> str | Path | None:
    """What `build_backbone` is given where a person said `weights`: nothing said means pretrained, where there are any.

    Nobody wants a ResNet from scratch by accident; "random" asks for one.
    """
    if weights is None:
        return None if name in SMALL else "pretrained"
    return None if weights == "random" else weights


def build_backbone(
    name: str = "resnet50",
    *,
    weights: str | Path | None = None,
    in_chans: int = 3,
    stride: Stride = "auto",
) -> nn.Module:
    """A backbone without its classification layer: pictures B×C×H×W → pooled features B×D (`.num_features` = D).

    Args:
        name: a timm model, or "small-cnn" ("small-cnn-group" and "small-cnn-plain" have no BatchNorm).
        weights: None or "random", "pretrained" (timm downloads them), or a .safetensors/.pth/.pt file.
        in_chans: channels of the pictures.
        stride: where a bottleneck ResNet has its strides: "v1.5" (timm, torchvision), "v1" (the original), or "auto":
            v1 where the weights' name or metadata says resnet50-v1.
    """
    if stride not in ("auto", "v1", "v1.5"):
        raise ValueError(f"stride: {stride!r}, expected 'auto', 'v1' or 'v1.5'")
    weights = None if weights == "random" else weights
    pretrained = weights == "pretrained"
    if name in SMALL:
        if pretrained:
            raise ValueError(f"{name} has no pretrained weights; give weights=None or a file")
        backbone: nn.Module = SmallCNN(in_chans=in_chans, **SMALL[name])
    else:
        backbone = _from_timm(name, pretrained=pretrained, in_chans=in_chans)
    metadata: dict[str, str] = {}
    if weights is not None and not pretrained:
        metadata = load_weights(backbone, weights)
    if stride == "auto" and weights is not None and not pretrained and is_v1_layout(weights, metadata):
        say(f"{Path(weights).name} is the original ResNet layout: strides moved to conv1 (stride='v1.5' keeps them)")
        stride = "v1"
    if stride == "v1":
        use_v1_strides(backbone)
    return backbone


def width_of(backbone: nn.Module) -> int:
    """D, the features it gives: where a network ends in a wider layer (MobileNetV3, VGG) not its `num_features`."""
    return int(getattr(backbone, "head_hidden_size", None) or backbone.num_features)  # type: ignore[arg-type]


def check_size(backbone: nn.Module, size: int) -> None:
    """Refuse a size of pictures that the network was not built for; most take any."""
    config: dict[str, Any] = getattr(backbone, "pretrained_cfg", None) or {}
    wanted = config.get("input_size", (0, size))[-1]
    if config.get("fixed_input_size") and wanted != size:
        name = config.get("architecture", "this backbone")
        raise ValueError(f"size: {size}, but {name} takes pictures of {wanted} px alone: give --size {wanted} (size=)")


def _from_timm(name: str, *, pretrained: bool, in_chans: int) -> nn.Module:
    try:
        import timm
    except ImportError as error:
        raise ImportError("timm is not installed: pip install 'onelabel[vision]'") from error
    check_name(name)
    if not pretrained:
        plain: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, in_chans=in_chans)
        return plain
    with hub() as away:
        try:
            made: nn.Module = timm.create_model(name, pretrained=True, num_classes=0, in_chans=in_chans)
        except Exception as error:  # no network, no such file, a hub's own errors
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
            reason = f"{away} cannot be reached, and this machine has no copy" if away else first
            hosted = getattr(timm.models.get_pretrained_cfg(name), "hf_hub_id", None)
            where = f", such as model.safetensors of {hosted} on Hugging Face" if hosted else ""
            raise RuntimeError(
                f"the pretrained weights of {name} could not be had ({reason}); "
                f"give weights=FILE (--weights){where}, or 'random' to train from nothing"
            ) from error
    return made
