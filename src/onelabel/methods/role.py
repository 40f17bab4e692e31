"""ROLE: regularised online label estimation (Cole et al. 2021, Sec. 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from onelabel.contract import Batch, Hyper, Method, Needs, Number, Variant, check_k, register
from onelabel.losses.baselines import bce
from onelabel.losses.batch import expected_positives_penalty
from onelabel.losses.curves import nll, soft
from onelabel.methods.estimators import CLAMP, Estimator, Factorised, Network, Table
from onelabel.methods.memory import Remembering

if TYPE_CHECKING:
    from onelabel.labels import Labels

PAPER = "Cole et al., Multi-Label Learning from Single Positive Labels"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def role_half(
    logits: Tensor, other: Tensor, observed: Tensor, *, k: Number, lam: Number = 1.0, reference: bool = False
) -> Tensor:
    """L′(F|Ỹ): mean BCE(F, sg(Ỹ)) + mean over rows of −Σ_{z=+1} log F + λ·((k̂ − k)/L)², both given as logits.

    The paper's BCE carries 1/L (its Eq. 5), its term of the observed labels does not. The authors' program divides
    both by L (`reference`) and adds 1e-5 inside logarithms. Observed negatives cost −log(1−F) beside the positives.
    """
    eps = Method.reference_eps if reference else 0.0
    cross = soft(torch.sigmoid(other), nll(logits, eps=eps), nll(-logits, eps=eps)).mean((-2, -1))
    known = bce(logits, observed, eps=eps).sum(-1).mean(-1)
    if reference:
        known = known / logits.shape[-1]
    return cross + known + lam * expected_positives_penalty(torch.sigmoid(logits), k)


@register(
    "role",
    title="Regularised online label estimation",
    paper=PAPER,
    year=2021,
    formula="½·(L′(F|Ỹ) + L′(Ỹ|F)), L′(F|Ỹ) = BCE(F, sg(Ỹ)) + EPR(F), Ỹ = σ(φ) learned with the classifier",
)
class ROLE(Remembering):
    """ROLE: the classifier and an estimate ỹ of every label train each other, each held to k positives a row.

    `estimator` is "table" (φ is N×L), "factorised" (`rank` numbers a row) or "network" (of `feature_dim` features and
    `hidden` units; needs ``features=``). The paper's only estimator is the table; the other two are our reading of what
    its limits section asks for, and add to their φ the value at which an observed entry starts in a table.

    A step of the default variant changes the rows of the batch and nothing else (:class:`RowAdam`);
    ``variant="reference"`` trains the table with ordinary Adam, under which rows outside the batch keep moving, and
    normalises like the authors' program. `dtype` "bfloat16" halves the table, ``split=True`` divides it among the
    processes of torch.distributed, each of which saves its own part. `seed` fixes the start of φ (one per model in a
    stack), else the global generator draws it.
    """

    lr_scale = 10.0
    hyper: ClassVar = {
        "expected_positives": Hyper("k, the mean number of positives", 0, 1e9, (1.5,)),
        "lam": Hyper("weight of the regulariser", 0, 1e6, (1.0,)),
        "rank": Hyper("rank of the factorised estimator", 1, 1e6, (4, 16, 64)),
        "hidden": Hyper("hidden units of the network estimator", 1, 1e6, (256, 1024)),
    }
    estimator: Estimator

    def __init__(
        self,
        *,
        expected_positives: Any = 1.5,
        lam: Any = 1.0,
        estimator: Literal["table", "factorised", "network"] = "table",
        rank: int = 16,
        feature_dim: int | None = None,
        hidden: int = 256,
        dtype: Literal["float32", "bfloat16"] = "float32",
        split: bool = False,
        seed: Any = None,
        variant: Variant = "paper",
        stack: int | None = None,
    ) -> None:
        super().__init__(expected_positives=expected_positives, lam=lam, seed=seed, variant=variant, stack=stack)
        for name, value in (("rank", rank), ("hidden", hidden)):
            self.hyper[name].check(name, value)
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be 'float32' or 'bfloat16', got {dtype!r}")
        if estimator != "table" and (split or dtype != "float32"):
            raise ValueError(f"split and dtype are for estimator='table', got estimator={estimator!r}")
        if estimator == "table":
            self.estimator = Table(self.stack, dense=variant == "reference", dtype=DTYPES[dtype], split=split)
        elif estimator == "factorised":
            self.estimator = Factorised(self.stack, rank=rank)
        elif estimator == "network":
            if feature_dim is None:
                raise ValueError("estimator='network' needs feature_dim=, the width of the features it will be given")
            self.estimator = Network(self.stack, feature_dim=feature_dim, hidden=hidden)
        else:
            raise ValueError(f"estimator must be 'table', 'factorised' or 'network', got {estimator!r}")
        self._hyper["estimator"] = estimator

    @property
    def needs(self) -> Needs:
        network = isinstance(self.estimator, Network)
        return Needs(index=not network, features=network)

    def allocate(self, labels: Labels) -> None:
        check_k(self._hyper["expected_positives"], labels.num_classes)
        seed = self._hyper["seed"]
        seeds: list[int | None] = [None] * (self.stack or 1)
        if seed is not None:
            seeds = [int(s) for s in self.each("seed")]
        self.estimator.allocate(labels, seeds, self.clock.device)

    def compute(self, batch: Batch) -> Tensor:
        logits, observed = batch.logits, batch.observed
        self.check_bound()
        phi = self.estimator(batch.index, observed, batch.features)
        terms: dict[str, Any] = {
            "k": self.column(self.expected_positives),
            "lam": self.column(self.lam),
            "reference": self.variant == "reference",
        }
        classifier = role_half(logits, phi.detach(), observed, **terms)
        return (classifier + role_half(phi, logits.detach(), observed, **terms)) / 2

    def optimizers(self, lr: float | Tensor) -> list[torch.optim.Optimizer]:
        self.check_bound()
        return self.estimator.optimizers(lr * self.lr_scale)

    # -- the estimates -----------------------------------------------------------------------------------------

    @torch.no_grad()
    def estimated_labels(self, index: Tensor | None = None, *, features: Tensor | None = None) -> Tensor:
        """ỹ of some examples (all by default): n×L, or M×n×L in a stack. The network needs their `features`."""
        n = self.size[0]
        at = torch.arange(n, device=self.clock.device) if index is None else index.to(self.clock.device)
        labels = self.estimator.labels
        assert labels is not None
        if self.needs.features and (features is None or features.shape[-2] != at.shape[-1]):
            raise ValueError(f"the network estimates from features: give features= of {at.shape[-1]} rows")
        # A table holds what is observed; the others are told.
        table = isinstance(self.estimator, Table)
        observed = at if table else labels.rows(at.cpu(), device=at.device)
        return torch.sigmoid(self.estimator(at, observed, features))

    def initialise(self, estimates: Tensor) -> ROLE:
        """Start from given estimates of all labels, N×L (or M×N×L): LinearInit hands on the linear phase's."""
        n, classes = self.size
        lead = () if self.stack is None else (self.stack,)
        if tuple(estimates.shape) not in ((n, classes), (*lead, n, classes)):
            raise ValueError(f"estimates must have shape {(*lead, n, classes)}, got {tuple(estimates.shape)}")
        given = estimates.detach().to(self.clock.device).clamp(CLAMP, 1 - CLAMP)
        self.estimator.initialise(torch.logit(given))
        return self
