"""Optimisers and schedules that a CUDA graph can hold: the learning rate is a tensor, changed in place."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from onelabel.contract import Method
from onelabel.training.config import TrainConfig


def classifier_optimizer(
    head: list[nn.Parameter], backbone: list[nn.Parameter], *, lr: float, head_lr_scale: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Adam in two groups; fused, and on a GPU capturable."""
    device = head[0].device
    groups = [{"params": head, "lr": _rate(lr * (head_lr_scale if backbone else 1.0), device)}]
    if backbone:
        groups.append({"params": backbone, "lr": _rate(lr, device)})
    cuda = device.type == "cuda"
    return torch.optim.Adam(groups, fused=True, capturable=cuda, weight_decay=weight_decay)


def method_optimizers(criterion: Method, lr: float, device: torch.device) -> list[torch.optim.Optimizer]:
    """The method's own optimisers, made fit for a CUDA graph where they can be."""
    made = criterion.optimizers(lr)
    for optimizer in made:
        for group in optimizer.param_groups:
            if device.type == "cuda":
                if "capturable" in group:
                    group["capturable"] = True
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = _rate(float(group["lr"]), device)
    return made


def schedule_table(config: TrainConfig, updates: int) -> Tensor | None:
    """The factor on every learning rate at each update, or None where it is always 1.

    Linear warm-up over `warmup_steps`, then constant, or a half cosine to 0 at the last update.
    """
    if config.schedule == "constant" and not config.warmup_steps:
        return None
    at = torch.arange(updates + 1, dtype=torch.float64)
    warm = ((at + 1) / (config.warmup_steps + 1)).clamp(max=1)
    if config.schedule == "cosine":
        share = ((at - config.warmup_steps) / max(updates - config.warmup_steps, 1)).clamp(0, 1)
        warm = warm * (1 + torch.cos(math.pi * share)) / 2
    return warm.float()


class Rates:
    """Every optimiser's learning rates, moved along a schedule without the host."""

    def __init__(self, optimizers: list[torch.optim.Optimizer], table: Tensor | None, device: torch.device) -> None:
        self.table = None if table is None else table.to(device)
        self.groups: list[tuple[dict[str, Any], Tensor]] = []
        if self.table is None:
            return
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = _rate(float(group["lr"]), device)
                self.groups.append((group, group["lr"].clone()))

    def move(self, count: Tensor) -> None:
        """Set the rates for update number `count` (a tensor of one element)."""
        if self.table is None:
            return
        factor = self.table.index_select(0, count.clamp(max=len(self.table) - 1))[0]
        for group, base in self.groups:
            group["lr"].copy_(base * factor)


def _rate(lr: float, device: torch.device) -> Tensor:
    return torch.tensor(lr, dtype=torch.float32, device=device)
