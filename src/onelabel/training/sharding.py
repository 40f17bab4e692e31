"""Weights split across processes (FSDP), for backbones that do not fit one device beside their optimiser."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

BLOCK = 1_000_000  #: parameters above which a block is gathered on its own


def strategy(processes: int) -> Any:
    """Fabric's strategy that splits every large block, and then the rest, across all processes."""
    try:
        strategies: Any = importlib.import_module("lightning.fabric.strategies")
    except ImportError:
        strategies = importlib.import_module("lightning_fabric.strategies")
    # left to itself Fabric would take the processes of one machine for tensor parallelism
    return strategies.ModelParallelStrategy(_split, data_parallel_size=processes, tensor_parallel_size=1)


def _split(module: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    own = mesh["data_parallel"]
    for container in reversed(list(module.modules())):  # inner blocks first
        if isinstance(container, (nn.Sequential, nn.ModuleList)):
            for block in container:
                if sum(p.numel() for p in block.parameters()) > BLOCK:
                    fully_shard(block, mesh=own)
    fully_shard(module, mesh=own)
    return module


def is_split(value: Any) -> bool:
    return hasattr(value, "full_tensor")


def full(value: Tensor) -> Tensor:
    """The whole of a tensor; all processes must ask for it where it is split."""
    whole: Any = value.detach()
    found: Tensor = whole.full_tensor() if is_split(whole) else whole
    return found


def full_state(module: nn.Module) -> dict[str, Tensor]:
    """A copy of a module's state, whole."""
    return {name: full(value).clone() for name, value in module.state_dict().items()}


@torch.no_grad()
def fill(target: Tensor, value: Tensor) -> None:
    """Write a whole tensor into one that may be split."""
    if is_split(target):
        from torch.distributed.tensor import distribute_tensor

        place: Any = target
        value = distribute_tensor(value.to(target.device, target.dtype), place.device_mesh, place.placements)
    target.copy_(value)


def fill_state(module: nn.Module, state: Mapping[str, Tensor], *, strict: bool = True) -> None:
    """`load_state_dict` in place, for modules that may be split."""
    own = module.state_dict()
    if strict and own.keys() != state.keys():
        raise ValueError(f"weights do not fit: {sorted(own.keys() ^ state.keys())[:4]}")
    for name, value in state.items():
        if name in own:
            fill(own[name], value)


def like(target: Tensor, value: Tensor) -> Tensor:
    """A whole tensor laid out as `target` is: split alike, channels last alike."""
    made = torch.empty_like(target, dtype=value.dtype)
    fill(made, value)
    return made
