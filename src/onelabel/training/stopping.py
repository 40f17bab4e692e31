"""Choosing the best epoch, and when to stop looking for a better one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class Best:
    """The best epoch so far of one track ("plain" or "ema"), its phase, and what weights and method were then."""

    value: float = float("-inf")
    epoch: int = -1
    weights: dict[str, Tensor] = field(default_factory=dict)
    method: dict[str, Tensor] = field(default_factory=dict)
    phase: str = ""

    @property
    def which(self) -> tuple[str, int, float]:
        """Tells it from any other best of a run: two phases may be best at the same epoch with the same value."""
        return self.phase, self.epoch, self.value

    def numbers(self) -> dict[str, Any]:
        return {"value": self.value if self.epoch >= 0 else None, "epoch": self.epoch, "phase": self.phase}


def should_stop(rule: str | int, values: Sequence[float]) -> bool:
    """Whether to stop after these validation values, one per epoch.

    "em": at the first epoch that does not improve on the best before it. "gr": when the last is more than 2 below the
    best. A number: after that many epochs without improvement. "none": never.
    """
    if rule == "none" or len(values) < 2:
        return False
    if rule == "em":
        return values[-1] <= max(values[:-1])
    if rule == "gr":
        return values[-1] < max(values) - 2
    assert isinstance(rule, int)
    best = max(range(len(values)), key=lambda i: (values[i], -i))
    return len(values) - 1 - best >= rule
