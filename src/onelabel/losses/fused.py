"""Loss and gradient of an element-wise method in one pass over the logits.

The published way reads and writes B×L numbers some ten times. Here logits and labels are read once, the gradient is
written once and the loss is added up on the way: on a GPU by a Triton kernel, on a CPU block by block. The methods'
`entries` stay the reference; which of the two is used,

    onelabel.losses.fused.enable("auto")     # or "on", "off", "compile"; or ONELABEL_FUSED=off in the environment

"auto": on CUDA where triton can be imported, on a CPU from 2¹⁷ entries on. "on": also for smaller ones and in float64.
"compile": `entries` itself through torch.compile, for what has no closed form here (on a CPU it needs a C++ compiler,
and everywhere seconds to start).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch
from torch import Tensor

from onelabel.contract import Method, transformed
from onelabel.kernels.form import Form, has_triton
from onelabel.losses.forms import Mode, form_of

Expression = Callable[[Tensor, Tensor], Tensor]
_mode: list[Mode] = ["auto"]
#: Entries from which on a CPU gains by blocks: below, everything stays in the cache anyway.
CPU_ENTRIES = 1 << 17
HALF_OR_SINGLE = (torch.float32, torch.bfloat16, torch.float16)


def enable(mode: Mode = "auto") -> None:
    """Choose how element-wise losses are computed from now on: "auto", "on", "off" or "compile"."""
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    _mode[0] = mode


@contextmanager
def using(mode: Mode) -> Iterator[None]:
    """`enable` for the length of a with-block."""
    before = _mode[0]
    enable(mode)
    try:
        yield
    finally:
        enable(before)


enable(os.environ.get("ONELABEL_FUSED", "auto"))  # type: ignore[arg-type]


def chosen(logits: Tensor) -> bool:
    """Whether a loss of these logits is to be fused."""
    mode = _mode[0]
    if mode == "off" or not logits.numel() or torch.compiler.is_compiling() or transformed():
        return False
    if logits.device.type == "cuda":
        if mode == "compile":
            return True
        fits = logits.dtype in HALF_OR_SINGLE
        if mode == "on" and fits and not has_triton():
            raise RuntimeError("fused losses on CUDA need triton, which cannot be imported; enable('auto')")
        return fits and has_triton()
    return logits.device.type == "cpu" and (mode != "auto" or logits.numel() >= CPU_ENTRIES)


def loss(method: Method, logits: Tensor, observed: Tensor) -> Tensor | None:
    """The fused loss of `method`, or None where it has none."""
    if _mode[0] == "compile":
        from onelabel.losses.compiled import loss as compiled

        return compiled(method, logits, observed)
    form = form_of(method, logits, observed)
    if form is None:
        return None

    def expression(g: Tensor, z: Tensor) -> Tensor:
        return Method.forward(method, g, z)

    return apply(form, logits, observed, expression)


def apply(form: Form, logits: Tensor, observed: Tensor, expression: Expression | None = None) -> Tensor:
    """The mean loss of a form: a scalar for logits B×L, M of them for M×B×L.

    `expression` is the same in torch operations, for second derivatives; without it they are refused.
    """
    return _Fused.apply(logits, observed, form, expression)


def mean(form: Form, logits: Tensor, observed: Tensor, expression: Expression) -> Tensor:
    """`expression(logits, observed)`, fused where that is chosen: for methods that turn what they remember into labels.

    A pseudo-label is an observed one (+1 or −1 in `observed`) or soft (`Form.target`); `form` must say the same as
    `expression`.
    """
    if not chosen(logits) or _mode[0] == "compile":
        return expression(logits, observed)
    return apply(form, logits, observed, expression)


def engine(logits: Tensor) -> Any:
    """The module that evaluates forms of such logits."""
    if logits.device.type == "cuda" and logits.dtype in HALF_OR_SINGLE and has_triton():
        from onelabel.kernels import tiled

        return tiled
    from onelabel.kernels import blocked

    return blocked


class _Fused(torch.autograd.Function):
    """The gradient is made by `forward`, but for the factor that only `backward` knows.

    On a GPU that is guessed: it mostly is what it was the last time, and where it is not the gradient is made anew. On
    a CPU it is taken as 1, and multiplied in; in float16 the gradient of a mean underflows without it, so there the
    gradient is made by `backward`. So it is when that is called again on a retained graph, for the first call gives
    its memory away.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, observed: Tensor, form: Form, expression: Expression | None) -> Tensor:
        ctx.form, ctx.expression, ctx.pending = form, expression, None
        ctx.save_for_backward(logits, observed)
        value: Tensor
        if logits.requires_grad:
            value, ctx.pending = engine(logits).begin(logits, observed, form)
        else:
            value, _ = engine(logits).evaluate(logits, observed, form, grad=False)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None, None, None]:
        if torch.is_grad_enabled():  # create_graph=True: the gradient is to be differentiated in turn
            return _Fused.differentiable(ctx, upstream), None, None, None
        pending, ctx.pending = ctx.pending, None
        logits, observed = ctx.saved_tensors
        return engine(logits).finish(logits, observed, ctx.form, pending, upstream), None, None, None

    @staticmethod
    def differentiable(ctx: Any, upstream: Tensor) -> Tensor:
        if ctx.expression is None:
            raise RuntimeError("this loss has no second derivatives; onelabel.losses.fused.enable('off')")
        logits, observed = ctx.saved_tensors
        (gradient,) = torch.autograd.grad(ctx.expression(logits, observed), logits, upstream, create_graph=True)
        return gradient
