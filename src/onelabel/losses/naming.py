"""A label's logit with a share of the naming distribution, and the linear classifier whose logits are such."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onelabel.contract import Number


def with_naming(outputs: Tensor, share: Number) -> Tensor:
    """s_l − λ·log Σ exp(s) = (1−λ)·s_l + λ·log softmax(s)_l, for outputs s of …×L and a share λ.

    λ = 0 leaves every class to itself: two labels of a row may both be sure. λ = 1 is which label would be *named*:
    what is added to all of a row's outputs changes nothing, so that rows are compared by how clearly a label stands
    out in its own (docs/roll-call.md).
    """
    return outputs - share * outputs.logsumexp(-1, keepdim=True)


class NamingHead(nn.Linear):
    """A linear classifier whose logits are :func:`with_naming` of its outputs; the share is saved with its weights."""

    share: Tensor

    def __init__(self, in_features: int, out_features: int, *, share: float = 0.0) -> None:
        super().__init__(in_features, out_features)
        self.register_buffer("share", torch.tensor(share))

    def forward(self, features: Tensor) -> Tensor:
        return with_naming(super().forward(features), self.share)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, share={self.share.item():g}"
