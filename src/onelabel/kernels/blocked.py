"""A `Form` with torch's own functions, on a CPU on blocks of entries small enough to stay in the cache."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from onelabel.kernels.closed import curve, prepared, soft_target
from onelabel.kernels.form import ZERO, Curve, Form

#: Entries a thread takes at a time: torch divides from 32768 on, and ten such blocks fit in a cache. More than 128 KiB
#: the C library may give back to the system, and ask for again.
BLOCK = 28000
#: Blocks that make it worth while to start one more thread.
THREAD_BLOCKS = 8
#: Share of observed entries up to which they are computed apart from the others, and the least size.
SPARSE, SMALL = 1 / 16, 1 << 13


def evaluate(
    logits: Tensor,
    observed: Tensor,
    shape: Form,
    *,
    loss: bool = True,
    grad: bool = True,
    upstream: Tensor | None = None,
    out: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """The mean loss (float32 or float64, one per model) and its gradient (in the logits' dtype), as asked for."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.detach()
    lead, (batch, num_classes) = logits.shape[:-2], logits.shape[-2:]
    models, on_cpu = lead[0] if lead else 1, logits.device.type == "cpu"
    if scale is None:
        scale = shape.scale(batch, num_classes)
    if grad and out is None:
        out = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    factor, pull = (scale, shape.pull) if upstream is None else (scale * _column(upstream), shape.pull)
    if pull is not None:
        pull = _column(pull) if upstream is None else _column(pull) * _column(upstream)
    g3, z3 = logits if lead else logits[None], observed if observed.ndim == 3 else observed[None]
    out3 = None if out is None or not grad else out if lead else out[None]
    few, rows = None, None if shape.rows is None else shape.rows.to(wide)
    if on_cpu and not lead and shape.target is None and logits.numel() > SMALL:
        few = _observed_at(observed)
    if few is not None and rows is None and logits.is_contiguous():  # one long row, for blocks of one size
        g3, out3 = g3.view(1, 1, -1), None if out3 is None else out3.view(1, 1, -1)
    # Taken now, for the gradient may be written over the logits.
    some = None if few is None else logits.reshape(-1)[few].to(wide).view(1, 1, -1)

    def spread(g: Tensor, slope: Tensor) -> Tensor:
        slope = slope * factor
        return slope if pull is None else slope + pull * torch.sigmoid(g) * torch.sigmoid(-g)

    def work(at: tuple[slice, slice, slice]) -> Tensor | None:
        g = g3[at].to(wide)
        value, slope = _curve(shape.unknown, g) if few is not None else _block(g, z3[at], shape, at)
        if few is not None and rows is not None:
            value, slope = value * rows[1, at[1], None], slope * rows[1, at[1], None]
        if out3 is not None:
            if pull is None and out3.dtype == wide:
                torch.mul(slope, factor, out=out3[at])
            else:
                out3[at] = spread(g, slope)
        return value.sum((-2, -1)) if loss else None

    sums: list[Any]
    if few is not None and shape.unknown.kind == ZERO and pull is None:
        sums = [torch.zeros(1, dtype=wide)]
        if out3 is not None:
            out3.zero_()
    elif on_cpu and logits.numel() > BLOCK:
        sums = _each(work, models, *g3.shape[1:])
    else:
        sums = [work((slice(None), slice(None), slice(None)))]
    if some is not None and few is not None and len(few):
        labels = observed.reshape(-1)[few]
        assumed, (value, slope) = _curve(shape.unknown, some)[0], _known(some, labels, shape)
        if rows is not None:
            row = few // num_classes
            weight = torch.where(labels > 0, rows[0, row], rows[2, row])
            assumed, value, slope = assumed * rows[1, row], value * weight, slope * weight
        sums.append((value - assumed).sum((-2, -1)))
        if out3 is not None:
            out3.view(-1)[few] = spread(some, slope).view(-1).to(out3.dtype)
    total = None
    if loss:
        total = (sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)).mul_(scale).reshape(lead)
    return total, out if grad else None


def _observed_at(observed: Tensor) -> Tensor | None:
    """Where observed labels are among the flattened ones; None where they are too many to be treated apart."""
    flat = observed.reshape(-1)
    if flat.dtype == torch.int8 and len(flat) % 8 == 0 and flat.data_ptr() % 8 == 0:  # eight at a time
        words = flat.view(torch.int64).nonzero()
        if len(words) > SPARSE * len(flat):
            return None
        where = (8 * words + torch.arange(8)).view(-1)
        where = where[flat[where] != 0]
    else:
        where = flat.nonzero().squeeze(1)
    return where if len(where) <= SPARSE * len(flat) else None


def _each(work: Callable[[tuple[slice, slice, slice]], Any], models: int, batch: int, num_classes: int) -> list[Any]:
    """`work` on every block of an M×B×L tensor, divided among as many threads as torch may use.

    Blocks are so small that torch divides none of its own operations among threads: threads that meet after every
    operation wait for each other, and for anything else the machine does.
    """
    rows = max(1, BLOCK // max(models * num_classes, 1))
    cols = num_classes if models * num_classes <= BLOCK else max(1, BLOCK // models)
    blocks = [
        (slice(None), slice(i, i + rows), slice(j, j + cols))
        for i in range(0, batch, rows)
        for j in range(0, num_classes, cols)
    ]
    threads = min(torch.get_num_threads(), len(blocks) // THREAD_BLOCKS)
    if threads < 2:
        return [work(at) for at in blocks]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, blocks, chunksize=1))


def begin(logits: Tensor, observed: Tensor, shape: Form) -> tuple[Tensor, Tensor | None]:
    """The loss, and its gradient for an upstream gradient of 1 (not in float16, where it would underflow)."""
    value, gradient = evaluate(logits, observed, shape, grad=logits.dtype != torch.float16)
    assert value is not None
    return value, gradient


def finish(logits: Tensor, observed: Tensor, shape: Form, pending: Tensor | None, upstream: Tensor) -> Tensor:
    """The gradient for `upstream`, from what `begin` left or anew."""
    if pending is not None:
        return rescale_(pending, upstream)
    _, gradient = evaluate(logits, observed, shape, loss=False, upstream=upstream)
    assert gradient is not None
    return gradient


def rescale_(x: Tensor, factor: Tensor) -> Tensor:
    """x ← factor·x in place (one factor per model where x is a stack)."""
    if x.device.type == "cpu" and bool((factor == 1).all()):
        return x
    return x.mul_(factor.reshape(-1, 1, 1) if factor.ndim else factor)


def rescale_all_(several: list[Tensor], factor: Tensor) -> None:
    """The same of several tensors with one factor."""
    for x in several:
        rescale_(x, factor)


def _block(g: Tensor, z: Tensor, shape: Form, at: tuple[slice, slice, slice]) -> tuple[Tensor, Tensor]:
    value, slope = _curve(shape.unknown, g)
    if shape.target is not None:
        target = shape.target if shape.target.ndim == 3 else shape.target[None]
        t = target[at].to(g.dtype)
        soft_value, soft_slope = soft_target(g, None, None, None, t, _column(shape.target_weight))
        value, slope = torch.where(t >= 0, soft_value, value), torch.where(t >= 0, soft_slope, slope)
    weights: list[Any] = [1.0, 1.0, 1.0]
    if shape.rows is not None:
        weights = list(shape.rows.to(g.dtype).view(3, -1, shape.rows.shape[-1], 1)[:, :, at[1]])
        value, slope = value * weights[1], slope * weights[1]
    sides = [(shape.positive, z > 0, weights[0])]
    if not shape.two_sided:
        sides.append((shape.negative, z < 0, weights[2]))
    for curve_, sign, weight in sides:
        own_value, own_slope = _curve(curve_, g)
        if shape.rows is not None:
            own_value, own_slope = own_value * weight, own_slope * weight
        value, slope = torch.where(sign, own_value, value), torch.where(sign, own_slope, slope)
    return value, slope


def _known(g: Tensor, z: Tensor, shape: Form) -> tuple[Tensor, Tensor]:
    """Values and slopes of observed entries."""
    positive = z.view(1, 1, -1) > 0
    (yes, yes_slope), (no, no_slope) = _curve(shape.positive, g), _curve(shape.negative, g)
    return torch.where(positive, yes, no), torch.where(positive, yes_slope, no_slope)


def _curve(one: Curve, g: Tensor) -> tuple[Tensor, Tensor]:
    if one.kind == ZERO:
        return torch.zeros_like(g), torch.zeros_like(g)
    numbers = [_column(n) for n in one.numbers] + [0.0] * (6 - len(one.numbers))
    value, slope = curve(one.kind, g, None, None, None, *prepared(one.kind, *numbers))
    return value, slope


def _column(value: Any) -> Any:
    """A number shaped to broadcast over M×B×L."""
    return value.reshape(-1, 1, 1) if isinstance(value, Tensor) else value
