"""Average precision of data that does not fit in memory or lies with several processes.

    ap = StreamingAveragePrecision(num_classes, range=(-20, 20))
    for scores, true in batches:
        ap.update(scores, true)
    ap.all_reduce()                      # under torch.distributed
    result = ap.compute()                # result.lower ≤ AP ≤ result.upper, each class

`gathered_average_precision` is the exact value over all processes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from onelabel.metrics._arrays import CHUNK_DEVICE, CHUNK_HOST, check, choice, on_host
from onelabel.metrics._sorting import descending_code
from onelabel.metrics.precision import Empty, average_precision


class Bounds(NamedTuple):
    """AP of each class lies in [lower, upper]; `value` is the middle, at most `error` off. All (L,), float64."""

    value: Tensor
    lower: Tensor
    upper: Tensor

    @property
    def error(self) -> Tensor:
        return (self.upper - self.lower) / 2

    def mean(self) -> Bounds:
        """The same of the mean over classes (mAP), leaving out those that are NaN."""
        lower, upper = self.lower.nanmean(), self.upper.nanmean()
        return Bounds((lower + upper) / 2, lower, upper)


class StreamingAveragePrecision:
    """Counts of positives and negatives of every class in 2^bits bins of the score, whatever the number of examples.

    Bins keep the scores' order, so all that is lost is the order within a bin. Let a bin hold a positives and b
    negatives below P positives and N negatives in higher bins. At the threshold of the i-th positive of the bin there
    are at least P+i and at most P+a true positives, and at least N and at most N+b false ones. Precision grows with the
    first and falls with the second, so the bin adds to AP·(number of positives)

        at least  Σ_i (P+i)/(P+i+N+b) ≥ a − (N+b)·log(1 + a/(P+N+b+½)),   at most  a·(P+a)/(P+a+N),

    the inequality on the left because 1/x is convex. Both are attained (up to the ½) by some order of the bin's
    entries, so no estimate from these counts has tighter bounds in general. The sums of several processes or days add.

    Args:
        num_classes: L. bits: 2^bits bins a class, each 16 bytes.
        range: the least and greatest score, in between bins of equal width (beyond, one bin at either end). None cuts
            the float's own bits instead: any scores, bins about 2^(9−bits) of the score wide, wasteful on logits.
        device: where the counts live; scores are moved there.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        bits: int = 14,
        range: tuple[float, float] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if not 1 <= bits <= 24:
            raise ValueError(f"bits is {bits}; expected 1 to 24")
        if num_classes < 1:
            raise ValueError(f"num_classes is {num_classes}; expected at least 1")
        if range is not None and not range[0] < range[1]:
            raise ValueError(f"range is {range}; expected (least, greatest) score")
        self.num_classes, self.bits, self.range = num_classes, bits, range
        #: negatives and positives of every class and bin, the highest scores first
        self.counts = torch.zeros(num_classes, 2, 1 << bits, dtype=torch.int64, device=device)
        self.broken = torch.zeros(num_classes, dtype=torch.bool, device=device)

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes + self.broken.nbytes

    def update(self, scores: Any, true: Any, *, mask: Any = None) -> StreamingAveragePrecision:
        """Count a batch: scores (N, L), true 0/1, `mask` the entries to count."""
        inputs = check(scores, true, mask)
        device = self.counts.device
        if inputs.scores.shape[1] != self.num_classes:
            raise ValueError(f"scores has {inputs.scores.shape[1]} classes; expected {self.num_classes}")
        first = torch.arange(self.num_classes, device=device) << (self.bits + 1)
        step = max(1, (CHUNK_HOST if on_host(self.counts) else CHUNK_DEVICE) // self.num_classes)
        for at in torch.arange(0, len(inputs.scores), step).tolist():
            s, y = (x[at : at + step].to(device) for x in inputs[:2])
            where = first + (y.long() << self.bits) + self._bin(s)
            count = torch.ones_like(where) if inputs.mask is None else inputs.mask[at : at + step].to(device).long()
            self.counts.view(-1).index_add_(0, where.flatten(), count.flatten())
            self.broken |= (s.isnan() & (count > 0)).any(0)
        return self

    def _bin(self, scores: Tensor) -> Tensor:
        """0 for the highest scores … 2^bits − 1 for the lowest; never in another order than the scores."""
        last = (1 << self.bits) - 1
        if self.range is None:
            return descending_code(scores.float()) >> (32 - self.bits)
        low, high = self.range
        s = scores if scores.dtype == torch.float64 else scores.float()
        return ((high - s) * ((last + 1) / (high - low))).nan_to_num(0.0, last, 0.0).clamp(0, last).long()

    def merge(self, other: StreamingAveragePrecision) -> StreamingAveragePrecision:
        """Add what another one has counted."""
        mine, its = (self.num_classes, self.bits, self.range), (other.num_classes, other.bits, other.range)
        if mine != its:
            raise ValueError(f"other has (num_classes, bits, range) {its}; expected {mine}")
        self.counts += other.counts.to(self.counts.device)
        self.broken |= other.broken.to(self.broken.device)
        return self

    def all_reduce(self) -> StreamingAveragePrecision:
        """Add up the counts of all processes of torch.distributed, in every one of them; call it once."""
        broken = self.broken.int()
        dist.all_reduce(self.counts)
        dist.all_reduce(broken)
        self.broken = broken > 0
        return self

    def compute(self, *, empty: Empty = "zero") -> Bounds:
        """Bounds of every class's AP; a class without positives gets 0 ("zero") or NaN ("skip", "nan")."""
        choice("empty", empty, ("zero", "skip", "nan"))
        lower, upper = torch.empty(2, self.num_classes, dtype=torch.float64, device=self.counts.device)
        step = max(1, (CHUNK_HOST if on_host(self.counts) else CHUNK_DEVICE) >> self.bits)
        for at in torch.arange(0, self.num_classes, step).tolist():
            b, a = self.counts[at : at + step].double().unbind(1)
            negatives, positives = b.cumsum(1), a.cumsum(1)
            least = a - negatives * torch.log1p(a / (positives - a + negatives + 0.5))
            most = a * positives / (positives + negatives - b).clamp(min=1)
            total = positives[:, -1].clamp(min=1)
            lower[at : at + step] = (least.sum(1) / total).clamp(min=0)
            upper[at : at + step] = (most.sum(1) / total).clamp(max=1)
        without = self.counts[:, 1].sum(1) == 0
        for bound in (lower, upper):
            bound.masked_fill_(without, 0.0 if empty == "zero" else torch.nan).masked_fill_(self.broken, torch.nan)
        return Bounds((lower + upper) / 2, lower, upper)


def gathered_average_precision(
    scores: Tensor, true: Tensor, *, mask: Tensor | None = None, empty: Empty = "zero", chunk: int | None = None
) -> Tensor:
    """Exact `average_precision` of the rows of all processes together, in every one of them: (L,), float64.

    Each holds some rows (N, L), any number; `chunk` classes are gathered at a time (by default about 2²⁶ entries).
    """
    inputs = check(scores, true, mask)
    scores, known = inputs.scores, torch.ones_like(inputs.true) if inputs.mask is None else inputs.mask
    if not dist.is_initialized():
        return average_precision(scores, inputs.true, mask=inputs.mask, empty=empty)
    rows = torch.tensor(len(scores), device=scores.device)
    dist.all_reduce(rows, dist.ReduceOp.MAX)
    world, missing = dist.get_world_size(), int(rows) - len(scores)
    step = chunk or max(1, (1 << 26) // max(int(rows) * world, 1))
    parts = []
    for at in torch.arange(0, scores.shape[1], step).tolist():
        some = slice(at, at + step)
        whole = [_gather(x[:, some], missing, world) for x in (scores, inputs.true.byte(), known.byte())]
        parts.append(average_precision(whole[0], whole[1].bool(), mask=whole[2].bool(), empty=empty))
    return torch.cat(parts)


def _gather(part: Tensor, missing: int, world: int) -> Tensor:
    padded = torch.nn.functional.pad(part, (0, 0, 0, missing)).contiguous()
    every = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(every, padded)
    return torch.cat(every)
