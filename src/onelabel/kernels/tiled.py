"""A `Form` on a GPU: Triton reads logits and labels once, writes the gradient once and adds up the loss meanwhile.

Sums are taken in float32 in an order that depends on sizes alone, without atomics, so results repeat bit by bit. The
host never waits. Imported on first use, because it imports triton.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelabel.kernels.entries import entries, rescale, total
from onelabel.kernels.form import CHEAP, LOG_ONCE, MIRROR, Form
from onelabel.kernels.launch import launch

#: Entries of a tile, warps that share it, and tiles a program takes one after the other where there are more than WAVE:
#: where most tiles have no observed label, and where most have one.
SKIMMED, FULL, WAVE = (512, 1, 8), (1024, 4, 4), 1 << 13
#: What fits into one tile is one kernel, without sums to add up.
ONE = (2048, 8, 1)
#: Programs of kernels that mostly have nothing to do: enough to fill any GPU, few enough to return at once.
IDLERS, SCALED = 1024, 2048
_ZEROS = (0.0,) * 6  #: numbers a curve may have: positive and negative 4, unknown 6
NO_FACTOR, UPSTREAM, GUESS, CHECK = range(4)
#: Places among the kernel's tensors, its numbers, its constants.
AT_UPSTREAM, AT_STRIDE, AT_TILES, AT_NUMBERS, AT_FACTOR = 6, 5, 6, 9, 8
_guesses: dict[tuple[Any, ...], Tensor] = {}
_of_graphs: list[Tensor] = []


class Pending:
    """A gradient made for a guess at the upstream gradient, and the call that made it, logits and labels left out."""

    def __init__(self, logits: Tensor, models: int) -> None:
        self.gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        self.used = torch.empty(models, dtype=torch.float32, device=logits.device)
        self.guess = _guess(logits.device, models)
        self.call: tuple[Any, ...] | None = None


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
    pending: Pending | None = None,
    choice: tuple[int, int, int] | None = None,
    registers: int = 0,
    skims: bool | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """The mean loss (float32, one per model) and its gradient (in the logits' dtype, times `upstream`), as asked for.

    `out` receives the gradient and may be `logits` itself. With `pending` the gradient is made for its guess.
    `choice`, `registers` (at most so many a thread) and `skims` are for tuning.
    """
    models = logits.shape[0] if logits.ndim == 3 else 1
    batch, num_classes = logits.shape[-2:]
    size = batch * num_classes
    logits, observed = logits.contiguous(), observed.contiguous()
    if out is None:
        out = torch.empty_like(logits) if grad else logits
    assert out.is_contiguous()
    rows, target = shape.rows, shape.target
    if skims is None:  # with fewer classes there is something in almost every tile
        skims = num_classes >= 2 * SKIMMED[0] and shape.unknown.kind % MIRROR not in CHEAP
    skims = skims and rows is None and target is None and observed.dtype == torch.int8 and observed.data_ptr() % 16 == 0
    skims = skims and (models == 1 or observed.ndim == 2 or size % 16 == 0)
    skims = skims and (choice is not None or size > ONE[0])
    block, warps, turns = choice or (SKIMMED if skims else FULL if size > ONE[0] else ONE)
    tiles = -(-size // block)
    turns = turns if choice or tiles > WAVE else 1
    programs = -(-tiles // turns)
    device, lead = logits.device, logits.shape[:-2]
    sums = logits
    if loss:
        sums = torch.empty(lead if programs == 1 else (models, programs), dtype=torch.float32, device=device)
    values, inner, pointers, stacked = _arguments(shape)
    factor_from = GUESS if pending is not None else NO_FACTOR if upstream is None else UPSTREAM
    none = out  # a pointer that is not read
    tensors = [
        logits, observed, out, sums,
        none if rows is None else rows.to(torch.float32).contiguous(),
        none if target is None else target.contiguous(),
        none if upstream is None else upstream,
        none if pending is None else pending.used,
        none if pending is None else pending.guess,
    ]  # fmt: skip
    numbers = [
        size, size if observed.ndim == 3 else 0, num_classes,
        0 if rows is None or rows.ndim == 2 else batch,
        0 if rows is None else rows[0].numel(),
        0 if upstream is None or upstream.ndim == 0 else upstream.stride(0),
        tiles, turns, shape.scale(batch, num_classes) if scale is None else scale,
        *values,
    ]  # fmt: skip
    unknown = shape.unknown.kind
    fixed = (
        pointers, stacked, shape.positive.kind, unknown, shape.negative.kind,
        rows is not None, target is not None, shape.pull is not None, factor_from,
        loss, grad, models == 1, size % block == 0, size % 16 == 0,
        shape.two_sided, skims, unknown % MIRROR in LOG_ONCE,
        16 // logits.element_size(), block,
    )  # fmt: skip
    launch(entries, (programs, models), tensors, numbers, fixed, num_warps=warps, maxnreg=registers, inner=inner)
    if pending is not None:
        tensors[0] = tensors[1] = out  # the graph keeps them
        pending.call = tensors, numbers, fixed, warps, inner
    if loss and programs > 1:
        parts, sums = sums, torch.empty(lead, dtype=torch.float32, device=device)
        # One program a model: with few and wide steps it is done in microseconds.
        wide = programs > 1024
        launch(total, (models, 1), (parts, sums), [programs], (16384 if wide else 1024,), num_warps=32 if wide else 4)
    return (sums if loss else None), (out if grad else None)


def begin(logits: Tensor, observed: Tensor, shape: Form) -> tuple[Tensor, Pending]:
    """The loss, and its gradient for the upstream gradient that came last time."""
    pending = Pending(logits, logits.shape[0] if logits.ndim == 3 else 1)
    value, _ = evaluate(logits, observed, shape, out=pending.gradient, pending=pending)
    assert value is not None
    return value, pending


def finish(logits: Tensor, observed: Tensor, shape: Form, pending: Pending | None, upstream: Tensor) -> Tensor:
    """The gradient for `upstream`: where the guess was right, what is there; else, and without `pending`, made anew."""
    if pending is None or pending.call is None:
        _, gradient = evaluate(logits, observed, shape, loss=False, upstream=upstream)
        assert gradient is not None
        return gradient
    tensors, numbers, fixed, warps, inner = pending.call
    tensors[0], tensors[1] = logits.contiguous(), observed.contiguous()
    tensors[3] = tensors[0]  # no sums are stored
    tensors[AT_UPSTREAM], numbers[AT_STRIDE] = upstream, upstream.stride(0) if upstream.ndim else 0
    tiles, models = numbers[AT_TILES], logits.shape[0] if logits.ndim == 3 else 1
    numbers[AT_TILES + 1] = turns = -(-tiles // IDLERS)
    fixed = (*fixed[:AT_FACTOR], CHECK, False, *fixed[AT_FACTOR + 2 :])
    launch(entries, (-(-tiles // turns), models), tensors, numbers, fixed, num_warps=warps, inner=inner)
    return pending.gradient


def rescale_(x: Tensor, factor: Tensor) -> Tensor:
    """x ← factor·x in place (one factor per model where x is a stack); next to nothing where the factor is 1."""
    models = x.shape[0] if factor.ndim else 1
    size = x.numel() // max(models, 1)
    numbers = [size, 0, 0, factor.stride(0) if factor.ndim else 0]
    launch(rescale, (min(-(-size // SCALED), IDLERS), models), (x, x, x, factor), numbers, (SCALED,), num_warps=8)
    return x


def rescale_all_(several: list[Tensor], factor: Tensor) -> None:
    """The same of up to three tensors with one factor, in one kernel."""
    sizes = [x.numel() for x in several]
    spare = 3 - len(several)
    tensors, numbers = (*several, *[several[0]] * spare, factor), [*sizes, *[0] * spare, 0]
    launch(rescale, (min(-(-max(sizes) // SCALED), IDLERS), 1), tensors, numbers, (SCALED,), num_warps=8)


def _guess(device: torch.device, models: int) -> Tensor:
    """Where the last upstream gradient is kept on the device: one place a stream, in whose order it is used.

    What is in it matters to speed alone, so it need not be filled. A captured graph has its own, for it may be replayed
    on any stream, and nobody can tell when it is done with it.
    """
    if device.type != "cuda":
        stream = 0
    elif torch.cuda.is_current_stream_capturing():
        _of_graphs.append(torch.empty(models, dtype=torch.float32, device=device))
        return _of_graphs[-1]
    else:
        stream = torch._C._cuda_getCurrentRawStream(device.index)
    key = (device, stream, models)
    if key not in _guesses:
        _guesses[key] = torch.ones(models, dtype=torch.float32, device=device)
    return _guesses[key]


def _arguments(shape: Form) -> tuple[list[float], list[tuple[int, Tensor]], int, int]:
    """The numbers in their slots; those in device memory, with their places; slots of these, and of those by model."""
    values: list[Any] = [*shape.positive.numbers, *_ZEROS[len(shape.positive.numbers) : 4]]
    values += [*shape.unknown.numbers, *_ZEROS[len(shape.unknown.numbers) :]]
    values += [*shape.negative.numbers, *_ZEROS[len(shape.negative.numbers) : 4]]
    values += (shape.target_weight, 0.0 if shape.pull is None else shape.pull)
    inner: list[tuple[int, Tensor]] = []
    pointers = stacked = 0
    for slot, value in enumerate(values):
        if value.__class__ is float:
            continue
        if isinstance(value, Tensor):
            pointers |= 1 << slot
            stacked |= (value.numel() > 1) << slot
            inner.append((AT_NUMBERS + slot, value.contiguous()))
            values[slot] = 0.0
        else:
            values[slot] = float(value)
    return values, inner, pointers, stacked
