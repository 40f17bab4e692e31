"""A student of a method's calibrated probabilities: docs/roll-call.md.

The teacher's logits on held-out rows are turned into probabilities by maximum likelihood (`looking`). The same reading,
steeper by SHARPEN and moved so that a training row has as many labels as a held-out one, gives the training set's
targets, smoothed a little; a fresh start of the network learns them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from onelabel.contract import Batch, Needs
from onelabel.methods.memory import Remembering

if TYPE_CHECKING:
    from onelabel.labels import Labels
    from onelabel.training.looking import Belief

#: How much steeper than calibrated a student's targets are. Calibrated ones taught less, by validation mAP on VOC 2012.
SHARPEN = 1.5
#: Rows at a time where the whole training set is gone through.
ROWS = 65_536


@torch.no_grad()
def targets(
    belief: Belief,
    looks: Tensor,
    observed: Any,
    *,
    sharpen: float = SHARPEN,
    smoothing: float = 0.0,
    steps: int = 50,
) -> Tensor:
    """q = σ(sharpen·z + c) of the training rows, N×L, z what held-out rows make of their looks; known is known.

    A network's logits on rows it was trained on lie elsewhere than on others; how many labels a row has does not, so c
    is such that they have `belief.line.k` each, as the held-out rows.
    Returned is (1 − ε)·q + ε/2 with ε the `smoothing`, of what is known too.
    """

    def parts() -> Any:
        for start in range(0, len(looks), ROWS):
            rows = torch.arange(start, min(start + ROWS, len(looks)), device=looks.device)
            yield rows, observed.rows(rows)

    steep = torch.empty_like(looks)
    for rows, _ in parts():
        steep[rows] = sharpen * belief.logits(looks[rows])

    def counted(shift: float) -> float:
        total = torch.zeros((), dtype=torch.float64, device=looks.device)
        for rows, z in parts():
            p = torch.sigmoid(steep[rows] + shift)
            total += torch.where(z == 0, p, (z > 0).to(p)).sum(dtype=torch.float64)
        return float(total) / max(len(looks), 1)

    low, high = -30.0, 30.0
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if counted(middle) < belief.line.k else (low, middle)
    for rows, z in parts():
        steep[rows] = torch.where(z == 0, torch.sigmoid(steep[rows] + low), (z > 0).to(steep))
    return steep.mul_(1 - smoothing).add_(smoothing / 2)


class Student(Remembering):
    """Cross-entropy to given probabilities q, mean over entries, of what is observed too.

    −q·log p − (1−q)·log(1−p)
    """

    name = "student"
    taught: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("taught", None)

    @property
    def needs(self) -> Needs:
        return Needs(index=True)

    def allocate(self, labels: Labels) -> None:
        self.taught = self.remembered(0, torch.float16)

    def teach(self, q: Tensor) -> Student:
        """Take the training set's probabilities, N×L."""
        self.check_bound()
        if tuple(q.shape) != self.size:
            raise ValueError(f"q must have shape {self.size} as bind(labels) had, got {tuple(q.shape)}")
        self.taught.copy_(q)
        return self

    def compute(self, batch: Batch) -> Tensor:
        assert batch.index is not None
        q = self.recall(self.taught, self.rows(batch.index)).to(batch.logits.dtype)
        return self.reduce(-q * logsigmoid(batch.logits) - (1 - q) * logsigmoid(-batch.logits))
