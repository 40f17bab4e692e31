"""An exponential moving average of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class Average:
    """Averages of a module's floating-point state (weights and BatchNorm's statistics): a ← d·a + (1−d)·w per update.

    `swapped()` puts them into the module in place, so that captured CUDA graphs stay valid, and takes them out again.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        own = {name: value for name, value in module.state_dict(keep_vars=True).items() if value.is_floating_point()}
        self.names = list(own)
        self.live: list[Tensor] = [value.detach() for value in own.values()]
        self.mean: list[Tensor] = [value.clone() for value in self.live]

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(self.mean, self.live, 1 - self.decay)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.mean, strict=True))

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in zip(self.names, self.mean, strict=True):
            value.copy_(state[name])

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """The module holds the averages inside this block."""
        with torch.no_grad():
            kept = [value.clone() for value in self.live]
            torch._foreach_copy_(self.live, self.mean)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.live, kept)
