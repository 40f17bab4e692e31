"""What every metric does first: take NumPy or torch, check it, and give the same kind back."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = "np.ndarray | Tensor"
Average: TypeAlias = Literal["micro", "macro"] | None

# Entries worked on at a time: few enough to stay in a CPU's cache, or enough to fill a GPU.
CHUNK_HOST = 400_000
CHUNK_DEVICE = 1 << 22


class Inputs(NamedTuple):
    """Checked arguments: `scores` (..., N, L), boolean `true` and `mask` of shape (N, L) or (..., N, L)."""

    scores: Tensor
    true: Tensor
    mask: Tensor | None
    numpy: bool

    def give(self, result: Tensor) -> Any:
        """The result as the caller's kind: a tensor, or a NumPy array, or a float for a single number."""
        return give(result, self.numpy)


def give(result: Tensor, numpy: bool) -> Any:
    if not numpy:
        return result
    return result.item() if result.ndim == 0 else result.numpy()


def on_host(tensor: Tensor) -> bool:
    """Whether values may be looked at: checking them on a GPU would make the host wait for it."""
    return tensor.device.type == "cpu"


def wide(device: torch.device) -> torch.dtype:
    """The floating type results are computed in: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def as_tensor(name: str, value: Any, device: torch.device | None = None) -> tuple[Tensor, bool]:
    """`value` as a detached tensor, sharing memory where possible, and whether it came from NumPy."""
    if isinstance(value, Tensor):
        tensor = value.detach()
        return (tensor if device is None else tensor.to(device)), False
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        remedy = "pass its to_dense() > 0" if hasattr(value, "to_dense") else "convert it first, as by astype(float)"
        raise TypeError(f"{name} has dtype {array.dtype}; expected numbers or booleans: {remedy}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if not (array.flags.writeable and array.dtype.isnative and all(step >= 0 for step in array.strides)):
        array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    return torch.from_numpy(array).to(device), True


def where_is(bad: Tensor) -> str:
    """Where the first True of `bad` (..., N, L) is, in words. Waits for the device."""
    *model, row, column = torch.nonzero(bad)[0].tolist()
    at = f"row {row}, class {column}"
    return f"model {model[0] if len(model) == 1 else tuple(model)}, {at}" if model else at


def check(scores: Any, true: Any, mask: Any = None, *, stack: bool = False, name: str = "scores") -> Inputs:
    """Check `scores`, `true` and `mask` against one another; `stack` allows leading dimensions of models."""
    s, numpy = as_tensor(name, scores)
    if s.ndim < 2 or (s.ndim > 2 and not stack):
        kind = "(N, L) or (..., N, L)" if stack else "(N, L)"
        raise ValueError(f"{name} has shape {tuple(s.shape)}; expected {kind}: examples by classes")
    if s.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(s.shape)}; expected at least one example and one class")
    if not s.is_floating_point():
        s = s.to(wide(s.device))
    if on_host(s) and bool((nan := s.isnan()).any()):
        raise ValueError(f"{name} is NaN at {where_is(nan)}; expected numbers")
    m = None if mask is None else binary("mask", mask, s)
    return Inputs(s, binary("true", true, s, m), m, numpy)


def binary(name: str, value: Any, scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """A 0/1 argument as booleans, shaped as `scores` or as one model of it; only `mask` entries count."""
    b, _ = as_tensor(name, value, scores.device)
    if b.shape not in (scores.shape, scores.shape[-2:]):
        one = "" if scores.ndim == 2 else f" or {tuple(scores.shape[-2:])}"
        raise ValueError(f"{name} has shape {tuple(b.shape)}; expected {tuple(scores.shape)}{one}, as scores")
    if b.dtype == torch.bool:
        return b
    positive = b > 0
    if on_host(b):
        bad = b != positive
        if mask is not None:
            bad = bad & mask
        if bool(bad.any()):
            where = where_is(bad)
            value = b.expand(bad.shape)[bad][0].item()
            raise ValueError(
                f"{name} is {value:g} at {where}; expected 0 or 1 "
                "(observed labels: pass true=observed > 0, mask=mask_from(observed))"
            )
    return positive


def ternary(observed: Any, scores: Tensor) -> Tensor:
    """Observed labels (+1, 0, −1) of the shape of `scores`, checked."""
    z, _ = as_tensor("observed", observed, scores.device)
    if z.shape not in (scores.shape, scores.shape[-2:]):
        raise ValueError(f"observed has shape {tuple(z.shape)}; expected {tuple(scores.shape)}, as scores")
    if on_host(z) and bool((bad := ~((z == 0) | (z == 1) | (z == -1))).any()):
        value = z[bad][0].item()
        raise ValueError(f"observed is {value:g} at {where_is(bad)}; expected +1, 0 (unknown) or -1")
    return z


def mask_from(observed: Any) -> Any:
    """The mask of known entries of observed labels: True where +1 or −1, False where 0 (unknown).

    With observed labels in the place of true ones:
    `average_precision(scores, observed > 0, mask=mask_from(observed))`.
    """
    z, numpy = as_tensor("observed", observed)
    return give(ternary(z, z) != 0, numpy)


def choice(name: str, value: object, options: tuple[object, ...]) -> None:
    """Refuse a word that is not one of `options`."""
    if value not in options:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, options))}")


def probabilities(scores: Tensor) -> Tensor:
    """Refuse scores outside [0, 1], on the CPU."""
    if on_host(scores) and bool((bad := (scores < 0) | (scores > 1)).any()):
        value = scores[bad][0].item()
        raise ValueError(f"scores is {value:g} at {where_is(bad)}; expected probabilities in [0, 1], not logits")
    return scores


def average_of(each: Tensor, average: str | None, *, skip: bool = False) -> Tensor:
    """Per-class values (..., L) as they are (None) or averaged; pooled ("micro") ones have a single class."""
    if average is None:
        return each
    return each.nanmean(-1) if skip else each.mean(-1)
