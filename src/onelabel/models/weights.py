"""Weights from files: safetensors, or .pth/.pt read without executing pickled code."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onelabel.system import reading

HEADS = ("fc.", "head.fc.", "head.weight", "head.bias", "classifier.")


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A file's tensors (half precision cast to float32) and its metadata.

    `.safetensors`, or `.pth`/`.pt` through ``torch.load(weights_only=True)``; a dictionary that holds the weights
    under "state_dict" or "model" is opened, and "module." in front of every name is removed.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"weights: {file} is not a file; give a .safetensors, .pth or .pt path")
    metadata: dict[str, str] = {}
    if file.suffix == ".safetensors":
        try:
            from safetensors import safe_open
        except ImportError as error:
            raise ImportError("safetensors is not installed: pip install 'onelabel[cli]'") from error
        with _reading(file), safe_open(str(file), framework="pt") as opened:
            metadata = dict(opened.metadata() or {})
            state: Any = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    elif file.suffix in (".pth", ".pt"):
        with _reading(file):
            state = torch.load(file, map_location="cpu", weights_only=True)
        for key in ("state_dict", "model"):
            if isinstance(state, dict) and isinstance(state.get(key), dict):
                state = state[key]
    else:
        raise ValueError(f"weights: {file.name} ends in {file.suffix!r}, expected .safetensors, .pth or .pt")
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ValueError(f"weights: {file.name} does not hold a dictionary of tensors")
    if state and all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): value for name, value in state.items()}
    halves = (torch.float16, torch.bfloat16)
    return {name: value.float() if value.dtype in halves else value for name, value in state.items()}, metadata


def _reading(file: Path) -> AbstractContextManager[None]:
    return reading(file, "weights alone", remedy="download it again; files with pickled code are never run")


def load_weights(backbone: nn.Module, path: str | Path) -> dict[str, str]:
    """Put a file's weights into a backbone; its classification layer is left out. Returns the file's metadata."""
    state, metadata = read_weights(path)
    own = backbone.state_dict()
    if any(name.startswith("backbone.") for name in state):  # one of our own runs
        state = {name.removeprefix("backbone."): v for name, v in state.items() if name.startswith("backbone.")}
    state = {name: v for name, v in state.items() if name in own or not name.startswith(HEADS)}
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    surplus = [name for name in state if name not in own]
    shapes = [
        f"{name} {tuple(state[name].shape)}≠{tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    if missing or surplus or shapes:
        parts = [("missing", missing), ("surplus", surplus), ("of another shape", shapes)]
        told = "; ".join(f"{len(names)} {what}: {_few(names)}" for what, names in parts if names)
        raise ValueError(f"weights: {Path(path).name} does not fit {type(backbone).__name__} ({told})")
    backbone.load_state_dict(state, strict=False)
    return metadata


def is_v1_layout(path: str | Path, metadata: dict[str, str]) -> bool:
    """Whether a file's name or metadata says it holds the original ResNet layout."""
    words = " ".join([Path(path).name, *metadata, *metadata.values()]).lower()
    return any(f"resnet{depth}-v1" in words for depth in (50, 101, 152))


def use_v1_strides(backbone: nn.Module) -> None:
    """Move the stride of layers 2 to 4 from the first block's 3×3 convolution to its first 1×1 one, in place."""
    for name in ("layer2", "layer3", "layer4"):
        layer = getattr(backbone, name, None)
        block: Any = layer[0] if isinstance(layer, nn.Sequential) else None
        if block is None or not hasattr(block, "conv3"):
            raise ValueError(f"stride='v1' needs a bottleneck ResNet; {type(backbone).__name__} has no such {name}")
        block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)


def _few(names: list[str], count: int = 4) -> str:
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")
