"""The thin module around an element-wise loss."""

from __future__ import annotations

from torch import Tensor

from onelabel.contract import Batch, Method


class ElementWise(Method):
    """A method whose loss is a function of each entry's logit and observed label: subclasses give :meth:`entries`."""

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        """The loss of every entry, in the shape of `logits`."""
        raise NotImplementedError

    def compute(self, batch: Batch) -> Tensor:
        return self.reduce(self.entries(batch.logits, batch.observed))
