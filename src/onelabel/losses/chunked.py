"""The last layer and its loss in one, some classes at a time: B×L logits never exist, so L may be a million.

    head = ChunkedHead(768, 1_000_000, onelabel.method("an"))
    loss = head(features, observed)             # observed: sparse, of the batch
    loss.backward(); optimizer.step()
    scores, classes = head.predict_topk(features, 10)

Sigmoid losses separate by class. For each chunk of classes the logits are computed, replaced by their gradient in place
(:mod:`onelabel.losses.fused`), multiplied into the gradients of features, weight and bias, and forgotten. Memory beyond
these gradients is B×chunk, and nothing is computed twice. Two methods look at the whole batch: EPR at Σp, for which all
chunks are multiplied once more beforehand, and pairwise ranking at the numbers of labels, which are known. ROLE needs
its factorised estimator, whose logits are a product just like the classifier's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from onelabel.contract import Method, check_k
from onelabel.kernels.form import Curve, Form, nll
from onelabel.losses.baselines import PseudoNegative
from onelabel.losses.batch import EPR, PairwiseRanking, known_form, ranking_form
from onelabel.losses.chunks import Chunks, RoleChunks
from onelabel.losses.forms import make_form
from onelabel.losses.observed import Observed, observed_rows

#: Bytes of logits of a chunk.
BUDGET_DEVICE, BUDGET_HOST = 1 << 28, 1 << 24


def chunked_loss(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    observed: Any,
    method: Method,
    *,
    chunk: int | None = None,
    index: Tensor | None = None,
) -> Tensor:
    """The loss `method(features @ weight.T + bias, observed)` of a batch without its logits.

    Args:
        features: B×D. weight: L×D. bias: L, or None.
        observed: B×L as a sparse tensor, `Labels` of the batch's rows, `Observed`, or a dense tensor.
        method: element-wise, `pr`, `epr`, or `role` with ``estimator="factorised"``.
        chunk: classes at a time; by default as many as make 256 MiB of logits on a GPU, 16 MiB on a CPU.
        index: the examples' positions in the training set, where the method needs them.
    """
    batch, num_classes = features.shape[0], weight.shape[0]
    _check(features, weight, bias, method, index)
    sparse = observed_rows(observed, batch, num_classes, features.device)
    step = chunk_size(features, num_classes) if chunk is None else int(chunk)
    if step < 1:
        raise ValueError(f"chunk must be at least 1 class, got {step}")
    if method._columns:
        method._match(torch.promote_types(features.dtype, torch.float32))
    if hasattr(method, "estimator"):
        return _role(features, weight, bias, sparse, method, step, index)
    form, sparse = _form(method, sparse, num_classes)
    chunks = Chunks(form, sparse, step)
    if not isinstance(method, EPR):
        return chunks.loss(features, weight, bias)
    check_k(method._hyper["expected_positives"], num_classes)
    expected = chunks.expected_positives(features, weight, bias)
    gap = (expected - method.expected_positives) / num_classes
    # d/dg of λ·gap², relative to the other terms' scale
    chunks.pull = 2 * method.lam * gap / (num_classes * batch) / form.scale(batch, num_classes)
    loss = chunks.loss(features, weight, bias)
    return loss + method.lam * gap**2


def chunk_size(features: Tensor, num_classes: int) -> int:
    """Classes whose logits make up the budget, a multiple of 256 for the matrix units; all of them where they fit."""
    budget = BUDGET_HOST if features.device.type == "cpu" else BUDGET_DEVICE
    most = budget // (4 * max(features.shape[0], 1))
    return num_classes if num_classes <= most else max(256, most // 256 * 256)


def _check(features: Tensor, weight: Tensor, bias: Tensor | None, method: Method, index: Tensor | None) -> None:
    if features.ndim != 2 or weight.ndim != 2 or features.shape[1] != weight.shape[1]:
        raise ValueError(f"features must be B×D and weight L×D, got {tuple(features.shape)} and {tuple(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({len(weight)},), got {tuple(bias.shape)}")
    if method.stack is not None:
        raise ValueError("a stack of models cannot be chunked over classes: train one, or use the method itself")
    if method.needs.index and index is None:
        raise ValueError(f"{type(method).__name__} needs index=: the batch's positions in the training set")


def _form(method: Method, observed: Observed | Tensor, num_classes: int) -> tuple[Form, Observed | Tensor]:
    """The form that chunks are evaluated by, and the labels it is evaluated on."""
    if isinstance(method, EPR):
        return known_form(method), observed
    if isinstance(method, PairwiseRanking):
        positive, negative = _counts(observed, 1), _counts(observed, -1)
        return ranking_form(positive, negative, num_classes, by_rows=method.variant == "paper"), observed
    if isinstance(method, PseudoNegative):
        if isinstance(observed, Tensor):
            draw = torch.rand(observed.shape, device=observed.device).masked_fill_(observed != 0, -1.0)
            chosen = torch.zeros_like(observed).scatter_(1, draw.argmax(1, keepdim=True), 1)
            observed = torch.where((chosen == 1) & (observed == 0), -1, observed)
        else:
            observed = observed.with_random_negatives()
        return Form(nll(), Curve(), nll().mirrored()), observed
    made = make_form(method, num_classes, lambda: _counts(observed).double())
    if made is None or method.needs.views > 1:
        raise ValueError(
            f"{type(method).__name__} cannot be chunked over classes; element-wise methods with constant settings, "
            "'pr', 'epr' and role(estimator='factorised') can"
        )
    return made, observed


def _counts(observed: Observed | Tensor, sign: int | None = None) -> Tensor:
    if isinstance(observed, Observed):
        return observed.counts(sign)
    return (observed != 0 if sign is None else observed == sign).sum(1, dtype=torch.float32)


def _role(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    observed: Observed | Tensor,
    method: Any,
    step: int,
    index: Tensor | None,
) -> Tensor:
    estimator = method.estimator
    if not all(hasattr(estimator, name) for name in ("rows", "columns", "bias")):
        raise ValueError("role over chunks of classes needs estimator='factorised', for a table is N×L")
    method.check_bound()
    assert index is not None
    own = nn.functional.embedding(index.long(), estimator.rows, sparse=True)
    chunks = RoleChunks(observed, step, k=method.expected_positives, lam=method.lam, eps=method.eps)
    return chunks.loss(features, weight, bias, own, estimator.columns, estimator.bias.reshape(-1))


class ChunkedHead(nn.Module):
    """A linear layer for very many classes, together with its loss: ``loss = head(features, observed)``.

    `method` is part of it, so its parameters and memory are trained, moved and saved with the layer.
    """

    def __init__(
        self, in_features: int, num_classes: int, method: Method, *, chunk: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.chunk = chunk
        self.method = method
        self.weight = nn.Parameter(torch.empty(num_classes, in_features))
        self.bias = nn.Parameter(torch.zeros(num_classes)) if bias else None
        nn.init.uniform_(self.weight, -(in_features**-0.5), in_features**-0.5)

    def forward(self, features: Tensor, observed: Any, *, index: Tensor | None = None) -> Tensor:
        """The loss of a batch: features B×D, observed labels B×L sparse; see :func:`chunked_loss`."""
        return chunked_loss(features, self.weight, self.bias, observed, self.method, chunk=self.chunk, index=index)

    def logits(self, features: Tensor, classes: slice | Tensor | None = None) -> Tensor:
        """The logits of some classes, all by default, which are B×L numbers."""
        if classes is None:
            return nn.functional.linear(features, self.weight, self.bias)
        bias = None if self.bias is None else self.bias[classes]
        return nn.functional.linear(features, self.weight[classes], bias)

    @torch.no_grad()
    def predict_topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k most probable classes of each row, the best first: probabilities and classes, both B×k."""
        num_classes = len(self.weight)
        if not 0 < k <= num_classes:
            raise ValueError(f"k must lie in [1, {num_classes}], the number of classes, got {k}")
        best = torch.full((len(features), 0), 0.0, device=features.device)
        classes = torch.zeros(best.shape, dtype=torch.int64, device=features.device)
        for part in self._parts(features):
            values, at = self.logits(features, part).float().topk(min(k, part.stop - part.start), dim=1)
            best, classes = torch.cat([best, values], 1), torch.cat([classes, at + part.start], 1)
            best, at = best.topk(min(k, best.shape[1]), dim=1)
            classes = classes.gather(1, at)
        return torch.sigmoid(best), classes

    def _parts(self, features: Tensor) -> Iterator[slice]:
        num_classes = len(self.weight)
        step = self.chunk or chunk_size(features, num_classes)
        for first in range(0, num_classes, step):
            yield slice(first, min(first + step, num_classes))

    def extra_repr(self) -> str:
        classes, width = self.weight.shape
        return f"in_features={width}, num_classes={classes}, chunk={self.chunk}, bias={self.bias is not None}"
