"""The thin module around an element-wise loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from onelabel.contract import Batch, Method


class ElementWise(Method):
    """A method whose loss is a function of each entry's logit and observed label: subclasses give :meth:`entries`.

    Where it pays, loss and gradient are computed in one pass over the logits instead; see :mod:`onelabel.losses.fused`.
    """

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        """The loss of every entry, in the shape of `logits`."""
        raise NotImplementedError

    def compute(self, batch: Batch) -> Tensor:
        return self.reduce(self.entries(batch.logits, batch.observed))

    def forward(
        self,
        logits: Tensor,
        observed: Tensor,
        *,
        index: Tensor | None = None,
        features: Tensor | None = None,
        views: Sequence[Tensor] = (),
        weights: Iterable[Tensor] = (),
    ) -> Tensor:
        from onelabel.losses import fused

        weights = tuple(weights)
        # Ahead of the rest, for half precision is read as it is.
        if not views and fused.chosen(logits):
            self._check(logits, observed, index, features, views, weights)
            if self._columns:
                self._match(torch.promote_types(logits.dtype, torch.float32))
            loss = fused.loss(self, logits, observed)
            if loss is not None:
                return loss
        return super().forward(logits, observed, index=index, features=features, views=views, weights=weights)
