"""Products with a weight matrix, chunk by chunk of its rows, and what a loss makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from onelabel.kernels import form as f
from onelabel.kernels.form import Curve, Form
from onelabel.losses.baselines import bce
from onelabel.losses.curves import nll, soft
from onelabel.losses.fused import engine
from onelabel.losses.observed import Observed

#: φ of an observed positive at the start: logit(0.995), as in ROLE's estimators.
KNOWN = 5.293304824724492


_NO_LABELS = torch.empty(0)


class Linear:
    """One product x·Wᵀ + b over chunks, in `half` precision where asked for, and the gradients of its parts."""

    def __init__(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, needs: tuple[bool, ...], half: torch.dtype | None
    ) -> None:
        self.dtype = torch.promote_types(x.dtype, weight.dtype) if half is None else half
        self.x, self.weight, self.bias, self.needs = x.to(self.dtype), weight, bias, needs
        self.wide = torch.promote_types(x.dtype, torch.float32)
        self.dx: Tensor | None = None
        self.dw: Tensor | None = None
        self.db: Tensor | None = None

    def logits(self, some: slice) -> Tensor:
        whole = some.stop - some.start == self.weight.shape[0]
        self.own = (self.weight if whole else self.weight[some]).to(self.dtype)
        if self.bias is None:
            return self.x @ self.own.T
        bias = self.bias if whole else self.bias[some]
        return torch.addmm(bias.to(self.dtype), self.x, self.own.T)

    def accumulate(self, some: slice, slope: Tensor, scale: float) -> None:
        """Take in scale·slope, the gradient of the logits of those classes that `logits` was last asked for."""
        whole = some.stop - some.start == self.weight.shape[0]
        if self.needs[0]:
            part = _product(slope, self.own, self.wide)
            if scale != 1:
                part *= scale
            self.dx = part if self.dx is None else self.dx.add_(part)
        if self.needs[1]:
            kept = self.weight.dtype
            if whole:
                self.dw = _product(slope.T, self.x, kept)
            else:
                self.dw = torch.empty_like(self.weight) if self.dw is None else self.dw
                _product(slope.T, self.x, kept, out=self.dw[some])
            if scale != 1:
                self.dw[some].mul_(scale)
        if self.bias is not None and self.needs[2]:
            part = slope.sum(0, dtype=self.wide).to(self.bias.dtype)
            if scale != 1:
                part *= scale
            if whole:
                self.db = part
            else:
                self.db = torch.empty_like(self.bias) if self.db is None else self.db
                self.db[some] = part

    @property
    def gradients(self) -> list[Tensor | None]:
        return [self.dx, self.dw, self.db]


def _product(a: Tensor, b: Tensor, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
    """a·b in `dtype`; of half precision the sums are handed over as they are, in float32, where the GPU can."""
    if a.dtype == dtype:
        return a @ b if out is None else torch.mm(a, b, out=out)
    if a.is_cuda and dtype == torch.float32 and hasattr(torch.ops.aten.mm, "dtype"):
        if out is None:
            return torch.mm(a, b, out_dtype=dtype)
        return torch.mm(a, b, out_dtype=dtype, out=out)
    made = a @ b
    return made.to(dtype) if out is None else out.copy_(made)


class Chunks:
    """An element-wise loss of x·Wᵀ + b. `pull` is the coefficient of a penalty's gradient p·(1−p), if there is one."""

    def __init__(self, form: Form, observed: Observed | Tensor, step: int) -> None:
        self.form, self.observed, self.step = form, observed, step
        self.pull: Tensor | None = None
        device = (observed.rows if isinstance(observed, Observed) else observed).device.type
        half = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        self.half = torch.get_autocast_dtype(device) if half else None

    def loss(self, *tensors: Tensor | None) -> Tensor:
        return _Chunked.apply(self, *tensors)

    def walk(self, num_classes: int, labels: bool = True) -> Iterator[tuple[slice, Tensor]]:
        """Every chunk of classes and its observed labels, B×chunk (empty without `labels`)."""
        observed = self.observed
        if isinstance(observed, Observed) and labels:
            rows, device = observed.shape[0], observed.rows.device
            part = torch.zeros(rows, min(self.step, num_classes), dtype=torch.int8, device=device)
        for first in range(0, num_classes, self.step):
            some = slice(first, min(first + self.step, num_classes))
            if not labels:
                yield some, _NO_LABELS
            elif isinstance(observed, Observed):
                if some.stop - first < part.shape[1]:  # the last, which is smaller
                    part = part.view(-1)[: rows * (some.stop - first)].view(rows, some.stop - first)
                observed.put(part, first)
                yield some, part
                if some.stop < num_classes:
                    observed.put(part, first, clear=True)
            else:
                yield some, observed if first == 0 and some.stop == num_classes else observed[:, some]

    @torch.no_grad()
    def expected_positives(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The mean over rows of Σp, by a product of its own."""
        total = torch.zeros((), dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        linear = Linear(x, weight, bias, (False, False, False), self.half)
        for some, _ in self.walk(weight.shape[0], labels=False):
            total += _sum_of_probabilities(linear.logits(some))
        return total / max(x.shape[0], 1)

    def run(self, tensors: Any, needs: tuple[bool, ...]) -> tuple[Tensor, list[Tensor | None]]:
        """The loss, and the gradients of those tensors that need one."""
        x, weight, bias = tensors
        linear = Linear(x, weight, bias, needs, self.half)
        scale = self.form.scale(x.shape[0], weight.shape[0])
        # In float16 the gradient of a mean would underflow, so it is made of the sum and scaled in float32.
        inside, after = (1.0, scale) if linear.dtype == torch.float16 else (scale, 1.0)
        form = self.form if self.pull is None else replace(self.form, pull=self.pull * inside)
        total: Tensor | None = None
        for some, z in self.walk(weight.shape[0]):
            g = linear.logits(some)
            loss, slope = engine(g).evaluate(g, z, form, scale=inside, grad=any(needs), out=g if any(needs) else None)
            total = loss if total is None else total + loss
            if any(needs):
                linear.accumulate(some, slope, after)
        assert total is not None
        return total if after == 1 else total * after, linear.gradients


class RoleChunks(Chunks):
    """ROLE's joint loss of classifier logits x·Wᵀ + b and estimate logits ±logit 0.995 (observed) + u·Vᵀ + c."""

    def __init__(self, observed: Observed | Tensor, step: int, *, k: float, lam: float, eps: float) -> None:
        super().__init__(Form(Curve(), Curve(), Curve()), observed, step)
        self.k, self.lam, self.eps = k, lam, eps

    def run(self, tensors: Any, needs: tuple[bool, ...]) -> tuple[Tensor, list[Tensor | None]]:
        with nullcontext() if self.half is None else torch.autocast(tensors[0].device.type, enabled=False):
            return self._run(tensors, needs)

    def _run(self, tensors: tuple[Tensor, ...], needs: tuple[bool, ...]) -> tuple[Tensor, list[Tensor | None]]:
        batch, num_classes = tensors[0].shape[0], tensors[1].shape[0]
        x, weight, bias, own, columns, column_bias = tensors
        pair = [
            Linear(x, weight, bias, needs[:3], self.half),
            Linear(own, columns, column_bias, needs[3:], self.half),
        ]
        wide = torch.promote_types(tensors[0].dtype, torch.float32)
        sums = torch.zeros(2, dtype=wide, device=tensors[0].device)
        for some, z in self.walk(num_classes):
            for i, logits in enumerate(self._logits(pair, some, z, wide)):
                sums[i] += torch.sigmoid(logits).sum()
        gaps = (sums / batch - self.k) / num_classes
        pulls = 2 * self.lam * gaps / (num_classes * batch)
        total = self.lam * (gaps**2).sum() / 2
        known = 1 / batch if not self.eps else 1 / (batch * num_classes)
        for some, z in self.walk(num_classes):
            both = [logits.requires_grad_() for logits in self._logits(pair, some, z, wide)]
            with torch.enable_grad():
                p = [torch.sigmoid(logits) for logits in both]
                part = torch.zeros((), dtype=wide, device=z.device)
                for i, logits in enumerate(both):
                    yes, no = nll(logits, eps=self.eps), nll(-logits, eps=self.eps)
                    part = part + soft(p[1 - i], yes, no).sum() / (batch * num_classes)
                    part = part + bce(logits, z, eps=self.eps).sum() * known
                penalty = (pulls * torch.stack([one.sum() for one in p])).sum()
                slopes = torch.autograd.grad((part + penalty) / 2, both)
            total = total + part.detach() / 2
            for linear, slope in zip(pair, slopes, strict=True):
                linear.accumulate(some, slope.to(linear.dtype), 1.0)
        return total, [*pair[0].gradients, *pair[1].gradients]

    @staticmethod
    def _logits(pair: list[Linear], some: slice, z: Tensor, wide: torch.dtype) -> list[Tensor]:
        own, estimate = (linear.logits(some).to(wide) for linear in pair)
        return [own, estimate + KNOWN * z]


def _sum_of_probabilities(g: Tensor) -> Tensor:
    p = Curve(f.PROBABILITY, (1.0,))
    # All three curves are the same, so any labels will do, and these are at hand.
    total, _ = engine(g).evaluate(g, g, Form(p, p, p), scale=1.0, grad=False)
    return total


class _Chunked(torch.autograd.Function):
    """The gradients are made by `forward`, up to a factor; on a retained graph they are made again."""

    @staticmethod
    def forward(ctx: Any, chunks: Chunks, *tensors: Tensor | None) -> Tensor:
        ctx.chunks, ctx.needs = chunks, tuple(ctx.needs_input_grad[1:])
        ctx.save_for_backward(*tensors)
        loss, ctx.gradients = chunks.run(tensors, ctx.needs)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("a chunked loss has no second derivatives: use the method on the logits")
        tensors = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            _, gradients = ctx.chunks.run(tensors, ctx.needs)
        made = [g for g in gradients if g is not None]
        for some in (made[i : i + 3] for i in range(0, len(made), 3)):
            engine(some[0]).rescale_all_(some, upstream)
        kept = [
            g if g is None or g.dtype == t.dtype else g.to(t.dtype) for g, t in zip(gradients, tensors, strict=True)
        ]
        return (None, *kept)
