"""Optimisers of what methods learn: Adam that touches only the rows of the batch, with a learning rate per model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


def summed(rows: Tensor, values: Tensor) -> Tensor:
    """Each of the n rows of `values` replaced by the sum of those that share its entry of `rows`; static shapes."""
    first = torch.searchsorted(rows.sort().values, rows)
    total = torch.zeros_like(values)
    if values.is_cuda:  # sorts, where index_add_ adds in whatever order threads arrive
        total.index_put_((first,), values, accumulate=True)
    else:
        total.index_add_(0, first, values)
    return total.index_select(0, first)


def adam(params: Iterable[Tensor], lr: float | Tensor, *, models: int = 1) -> torch.optim.Optimizer:
    """Ordinary Adam over whole tensors; with one learning rate per model where `lr` holds several."""
    own = list(params)
    if isinstance(lr, Tensor) or any(p.dtype in (torch.bfloat16, torch.float16) for p in own):
        return RowAdam(own, lr=lr, models=models)
    return torch.optim.Adam(own, lr=lr, capturable=own[0].is_cuda)


class RowAdam(torch.optim.Optimizer):
    """Adam for tables: a step reads and writes only the rows that have a gradient, whatever the table's size.

    The gradient is sparse (``torch.nn.functional.embedding(..., sparse=True)``); a row that occurs several times in it
    is updated once, with the sum. Every row counts its own steps, so each row moves exactly as under an Adam of its
    own that is called only when the row is in the batch: the bias correction of a row first met late is that of a
    first step, and a row that is not met stays where it is, moments included. Dense gradients update every row, which
    is ordinary Adam. Nothing waits for the host, and shapes depend on the batch alone.

    A table of `models` stacked blocks of rows may have a learning rate (a tensor) per model. Tables in bfloat16 keep
    their moments in it too and are rounded stochastically, for a step of 1e-4 at 0.4 is lost to rounding otherwise; the
    noise is a hash of entry and step, hence the same after a restart and in every process. `shard` = (rank, world)
    tells that local row r is row r·world + rank of the whole.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        models: int = 1,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        if not isinstance(lr, Tensor) and lr < 0:
            raise ValueError(f"lr must not be negative, got {lr}")
        if isinstance(lr, Tensor) and lr.numel() not in (1, models):
            raise ValueError(f"lr must be one number or one per model ({models}), got {lr.numel()}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "models": models, "shard": shard})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, self._moments(p), group)
        return loss

    def _moments(self, p: Tensor) -> dict[str, Any]:
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros(p.shape[0], dtype=torch.int32, device=p.device)
            state["mean"] = torch.zeros_like(p)
            state["square"] = torch.zeros_like(p)
        elif state["step"].device != p.device:  # load_state_dict leaves counters where they were
            state["step"] = state["step"].to(p.device)
        return state

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        stored = (p, state["mean"], state["square"])
        wide = torch.promote_types(p.dtype, torch.float32)
        if grad.is_sparse:
            rows: Tensor = grad._indices()[0]
            slope = summed(rows, grad._values().to(wide))
            old = [t.index_select(0, rows).to(wide) for t in stored]
            count = state["step"].index_select(0, rows) + 1
        else:
            rows = torch.arange(p.shape[0], device=p.device)
            slope, old, count = grad.to(wide), [t.to(wide) for t in stored], state["step"] + 1
        column = (-1,) + (1,) * (p.ndim - 1)
        per_model = max(p.shape[0] // group["models"], 1)
        lr = group["lr"]
        if isinstance(lr, Tensor) and lr.numel() > 1:
            # the row past the last model's is the one a split table keeps for rows it does not own
            lr = lr.to(p.device, wide).reshape(-1)[(rows // per_model).clamp(max=group["models"] - 1)].reshape(column)
        new = self._adam(old, slope, count.reshape(column).to(wide), lr, group)
        if p.dtype != wide:
            keys = (rows % per_model) * group["shard"][1] + group["shard"][0]
            new = [_round(t, p.dtype, keys, count, salt) for salt, t in enumerate(new)]
        if grad.is_sparse:  # rows that occur twice are written twice, with the same values
            for target, value in zip((*stored, state["step"]), (*new, count), strict=True):
                target.index_copy_(0, rows, value)
        else:
            for target, value in zip((*stored, state["step"]), (*new, count), strict=True):
                target.copy_(value)

    @staticmethod
    def _adam(old: list[Tensor], slope: Tensor, count: Tensor, lr: Any, group: dict[str, Any]) -> list[Tensor]:
        p, mean, square = old
        b1, b2 = group["betas"]
        mean = torch.lerp(mean, slope, 1 - b1)
        square = b2 * square + (1 - b2) * slope * slope
        first, second = -torch.expm1(count * math.log(b1)), -torch.expm1(count * math.log(b2))
        return [p - lr * (mean / first) / ((square / second).sqrt() + group["eps"]), mean, square]


def _round(x: Tensor, dtype: torch.dtype, rows: Tensor, count: Tensor, salt: int) -> Tensor:
    """Stochastic rounding of float32 to bfloat16, with noise from a hash of row, column, step and `salt`."""
    if dtype != torch.bfloat16:
        return x.to(dtype)
    flat = x.flatten(1)
    h = rows[:, None] * flat.shape[1] + torch.arange(flat.shape[1], device=x.device)
    h = h * 0x9E3779B1 + (count.long()[:, None] * 4 + salt) * 0x85EBCA77
    for _ in range(2):
        h = (h ^ (h >> 31)) * 0x2545F4914F6CDD1D
    noise = ((h >> 33) & 0xFFFF).to(torch.int32)
    bits = (flat.contiguous().view(torch.int32) + noise) & -0x10000
    return bits.view(torch.float32).reshape(x.shape).to(dtype)
