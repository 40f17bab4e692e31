"""The methods' own expressions through torch.compile: loss and gradient as one graph, which inductor may fuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from onelabel.contract import Method
from onelabel.losses.module import ElementWise

Joint = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_joints: WeakKeyDictionary[Method, Joint] = WeakKeyDictionary()


def loss(method: Method, logits: Tensor, observed: Tensor) -> Tensor | None:
    """The loss of an element-wise method, or None where it is more than that or learns parameters of its own."""
    if type(method).compute is not ElementWise.compute or any(p.requires_grad for p in method.parameters()):
        return None
    return _Compiled.apply(logits, observed, joint(method))


def joint(method: Any) -> Joint:
    """(logits, observed) → (loss, its gradient), compiled; once per method and shape, which takes seconds."""
    if method not in _joints:

        def mean(g: Tensor, z: Tensor) -> Tensor:
            return method.reduce(method.entries(g.float() if g.dtype != torch.float64 else g, z))

        def both(g: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            value, pull = torch.func.vjp(lambda x: mean(x, z), g)[:2]
            return value, pull(torch.ones_like(value))[0]

        _joints[method] = torch.compile(both, dynamic=False)
    return _joints[method]


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, observed: Tensor, both: Joint) -> Tensor:
        value, ctx.gradient = both(logits.detach(), observed)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():
            raise RuntimeError("a compiled loss has no second derivatives; onelabel.losses.fused.enable('off')")
        factor = upstream.reshape(*upstream.shape, 1, 1) if upstream.ndim else upstream
        return (ctx.gradient * factor).to(ctx.gradient.dtype), None, None
