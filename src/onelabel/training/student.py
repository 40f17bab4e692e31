"""A student of a method's calibrated probabilities: docs/roll-call.md.

The teacher's logits s on held-out rows are turned into probabilities σ(a·s + b_l), a and b_l by maximum likelihood: of
true labels where the held-out rows have them, else of their one observed label as a draw from the labels present. The
same line, steeper by SHARPEN and moved so that a training row has as many labels as a held-out one, gives the training
set's targets; a fresh start of the network learns them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from onelabel.contract import Batch, Needs
from onelabel.losses.draw import draw_log_likelihood, posterior
from onelabel.methods.memory import Remembering

if TYPE_CHECKING:
    from onelabel.labels import Labels

#: Entries (rows × classes) that a line is fitted to.
ENTRIES = 1_000_000
#: How much steeper than calibrated a student's targets are. Calibrated ones taught less, by validation mAP on VOC 2012.
SHARPEN = 1.5
#: Rows at a time where the whole training set is gone through.
ROWS = 65_536


@dataclass(frozen=True)
class Line:
    """P(y_l=1 | x) = σ(slope·s_l + intercept_l). k: labels per row that the held-out rows have."""

    slope: float
    intercept: Tensor  #: L, float32
    k: float

    def __call__(self, logits: Tensor) -> Tensor:
        return logits * self.slope + self.intercept.to(logits)


def fit_line(logits: Tensor, *, true: Tensor | None = None, observed: Tensor | None = None) -> Line:
    """Slope and intercepts by maximum likelihood on held-out rows.

    Args:
        logits: n×L. true: 0/1, n×L; or observed: +1, 0, −1, n×L, of which rows with one positive are used.
    """
    if (true is None) == (observed is None):
        raise ValueError("fit_line needs true or observed labels of the held-out rows, one of them")
    labels = true if true is not None else observed
    assert labels is not None
    s, z = logits.detach().double().cpu(), labels.detach().cpu()
    if true is None:
        use = (z > 0).sum(1) == 1
        s, z = s[use], z[use]
    if not len(s):
        raise ValueError("no held-out row has exactly one observed positive: a student needs some, or true labels")
    if s.numel() > ENTRIES:
        keep = torch.randperm(len(s), generator=torch.Generator().manual_seed(0))[: max(200, ENTRIES // s.shape[1])]
        s, z = s[keep], z[keep]
    centre, spread = s.mean(), s.std().clamp(min=1e-6) if s.numel() > 1 else torch.ones((), dtype=s.dtype)
    s = (s - centre) / spread
    y = z.double()
    slope = torch.zeros(1, dtype=s.dtype, requires_grad=True)  # its logarithm: more evidence never means less
    level = torch.full((1,), -2.0, dtype=s.dtype, requires_grad=True)
    shift = torch.zeros(s.shape[1], dtype=s.dtype, requires_grad=True)

    def line() -> Tensor:
        return s * slope.clamp(-6, 6).exp() + level + shift

    def objective() -> Tensor:
        at = line()
        if true is not None:
            likelihood = (y * logsigmoid(at) + (1 - y) * logsigmoid(-at)).sum()
        else:  # every such row has a positive, which the draw's likelihood does not know
            none = logsigmoid(-at).sum(1).clamp(max=-1e-9)
            likelihood = (draw_log_likelihood(at, z) - torch.log(-torch.expm1(none))).sum()
        # intercepts differ by about 2 logits between classes: keeps a class finite that no held-out row has
        return -likelihood + (shift**2).sum() / 8

    optimizer = torch.optim.LBFGS([slope, level, shift], max_iter=80, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = objective()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(closure)
    with torch.no_grad():
        k = float(y.sum(1).mean()) if true is not None else float(posterior(line(), z).sum(1).mean())
        a = float(slope.clamp(-6, 6).exp() / spread)
        return Line(a, (level + shift - a * centre).float(), k)


@torch.no_grad()
def targets(line: Line, logits: Tensor, observed: Any, *, sharpen: float = SHARPEN, steps: int = 50) -> Tensor:
    """σ(sharpen·line + c) of the training rows, N×L, c such that they have `line.k` labels each; known is known.

    A network's logits on rows it was trained on lie elsewhere than on others; how many labels a row has does not.
    """

    def parts() -> Any:
        for start in range(0, len(logits), ROWS):
            rows = torch.arange(start, min(start + ROWS, len(logits)), device=logits.device)
            yield rows, observed.rows(rows)

    def counted(shift: float) -> float:
        total = torch.zeros((), dtype=torch.float64, device=logits.device)
        for rows, z in parts():
            p = torch.sigmoid(sharpen * line(logits[rows]) + shift)
            total += torch.where(z == 0, p, (z > 0).to(p)).sum(dtype=torch.float64)
        return float(total) / max(len(logits), 1)

    low, high = -30.0, 30.0
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if counted(middle) < line.k else (low, middle)
    found = torch.empty_like(logits)
    for rows, z in parts():
        found[rows] = torch.where(z == 0, torch.sigmoid(sharpen * line(logits[rows]) + low), (z > 0).to(logits))
    return found


class Student(Remembering):
    """Cross-entropy to given probabilities q, mean over entries; what is observed stays as it is.

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
        q = torch.where(batch.observed == 0, q, (batch.observed > 0).to(q))
        return self.reduce(-q * logsigmoid(batch.logits) - (1 - q) * logsigmoid(-batch.logits))
