"""What to choose a probe or an epoch by, with clean held-out labels and without: the larger the better.

A criterion takes scores of a stack of models (M×N×L, any monotone scale) on held-out rows and gives M numbers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.labels import Labels
from onelabel.losses.calibrate import fitted_log_likelihood
from onelabel.losses.sample import LIMIT, Sample
from onelabel.metrics import mean_average_precision
from onelabel.probes.features import Features, as_features, on_device

#: What `auto` uses where no held-out row is fully labelled: none is better everywhere (docs/results/selection.csv).
DEFAULT_BLIND = "likelihood"
#: Scores of a model that `draw_likelihood` looks at: 500 rows of 20 classes.
LIKELIHOOD_ENTRIES = 10_000
#: Of its EM: what is missing to the maximum then is a twentieth of what good models differ by (docs/probes.md).
LIKELIHOOD_STEPS = 12


#: Of what a criterion has `beside` it, the share of the best model's that a model must reach to be chosen.
FLOOR = 0.9
#: Scores of a model that this is measured on, once: 2,000 rows of 1,000 classes; of 200 chance would put some behind.
BESIDE_ENTRIES = 2_000_000


@dataclass(frozen=True)
class Criterion:
    """A way to compare models on held-out rows. `clean` says that it needs fully labelled ones.

    `beside` is a second measure for what the first is blind to: models below FLOOR of the best there come last.
    """

    name: str
    doc: str
    clean: bool
    measure: Callable[[Tensor, Tensor], Tensor]
    beside: Callable[[Tensor, Tensor], Tensor] | None = None


def clean_map(scores: Tensor, true: Tensor) -> Tensor:
    """Mean average precision on fully labelled rows; classes without positives are left out."""
    return _float64(mean_average_precision(scores, true > 0, empty="skip"))


def observed_map(scores: Tensor, observed: Tensor) -> Tensor:
    """mAP with the observed positives for the true ones: everything unknown counts as absent.

    For one class and labels missing at random it orders models as the true AP does, up to the noise of the unknown
    positives among the "absent": those push every model down alike.
    """
    mask = observed >= -1  # an observed negative is one more absent entry
    return _float64(mean_average_precision(scores, observed > 0, mask=mask.expand(observed.shape), empty="skip"))


def positive_rank(scores: Tensor, observed: Tensor) -> Tensor:
    """Mean reciprocal rank of a held-out positive among its row's unknown and negative entries.

    The rank is 1 + the number of entries that score higher, ties counted half.
    """
    positive = observed > 0
    other = (~positive).to(scores.dtype)
    best = scores.masked_fill(~positive, -torch.inf).amax(-1, keepdim=True)
    above = ((scores > best) * other).sum(-1)
    tied = ((scores == best) * other).sum(-1)
    value = 1 / (1 + above + tied / 2)
    has = positive.any(-1)
    return ((value * has).sum(-1) / has.sum(-1).clamp(min=1)).double()


def lee_liu(scores: Tensor, observed: Tensor) -> Tensor:
    """Lee and Liu's r²/P(ŷ=1) of every class at its best threshold, M×L; NaN for a class nobody observed.

    r is the recall of the observed positives and P(ŷ=1) the share of rows called positive, both known without a
    negative; the ratio is F1-like: precision·recall/P(y=1). Thresholds that find fewer than two observed positives are
    passed over, for a single lucky row would win.
    """
    order = scores.argsort(dim=-2, descending=True)
    positive = (observed > 0).expand(scores.shape).gather(-2, order).double()
    ranked = scores.gather(-2, order)
    last = torch.ones_like(ranked, dtype=torch.bool)
    last[..., :-1, :] = ranked[..., 1:, :] != ranked[..., :-1, :]
    hits = positive.cumsum(-2)
    total = hits[..., -1:, :]
    share = torch.arange(1, scores.shape[-2] + 1, device=scores.device).double()[:, None] / scores.shape[-2]
    value = (hits / total.clamp(min=1)) ** 2 / share
    usable = last & ((hits >= 2) | (hits == total))
    best = value.masked_fill(~usable, 0.0).amax(-2)
    return torch.where(total.squeeze(-2) > 0, best, torch.nan)


def pu_f1(scores: Tensor, observed: Tensor) -> Tensor:
    """The macro mean of :func:`lee_liu`."""
    return lee_liu(scores, observed).nanmean(-1)


def pu_f1_log(scores: Tensor, observed: Tensor) -> Tensor:
    """The mean logarithm of :func:`lee_liu`: r²/P(ŷ=1) grows as 1/P(y=1), so the plain mean listens to rare classes."""
    return lee_liu(scores, observed).log().nanmean(-1)


def draw_likelihood(scores: Tensor, observed: Tensor) -> Tensor:
    """Mean log P(o | x) of rows with one observed positive o, as a draw from the labels present.

    Scores become probabilities σ(a_l·s + b_l), a_l and b_l of every model its own, by `LIKELIHOOD_STEPS` of the
    calibration towards the maximum of this very likelihood. It asks for all labels: a model that says the name and
    nothing else has none left for the rows where another was named. It is near mAP in two things (docs/probes.md). A
    class has a slope of its own, log a_l about the others' ± 1: mAP does not compare classes. And that a row has some
    label is for the model to say, as in roll call's loss: given it, a row's scores count only beside one another, and
    mAP compares rows. What is added to all scores of a row it hardly sees all the same; `observed_map` beside it does.
    """
    rows = _draws(observed)
    s = scores[..., rows, :].double()
    s = (s - s.mean((-2, -1), keepdim=True)) / s.std((-2, -1), keepdim=True).clamp(min=1e-12)
    sample = Sample(s.clamp(-LIMIT, LIMIT), observed[rows])
    return fitted_log_likelihood(sample, iterations=LIKELIHOOD_STEPS, doubt="both")


def _draws(observed: Tensor) -> Tensor:
    """The rows with exactly one observed positive, no more than LIKELIHOOD_ENTRIES scores of them, always the same."""
    found = torch.nonzero((observed > 0).sum(-1) == 1)[:, 0]
    if not len(found):
        raise ValueError(
            "criterion 'likelihood' needs held-out rows with exactly one observed positive; take 'observed-map'"
        )
    most = max(200, LIKELIHOOD_ENTRIES // observed.shape[-1])
    return found[torch.linspace(0, len(found) - 1, min(most, len(found)), device=found.device).round().long()]


def agreement(scores: Tensor) -> Tensor:
    """How alike repetitions rank the rows: mean over pairs of seeds and classes of Spearman's correlation.

    `scores` are R×N×L of R seeds of one cell; one number.
    """
    if scores.shape[0] < 2:
        raise ValueError(f"agreement needs at least two seeds of a probe, got {scores.shape[0]}")
    rank = scores.argsort(-2).argsort(-2).double()
    rank = rank - rank.mean(-2, keepdim=True)
    unit = rank / rank.norm(dim=-2, keepdim=True).clamp(min=1e-12)
    total = unit.sum(0)
    repeats = scores.shape[0]
    pairs = ((total**2).sum(-2) - (unit**2).sum(-2).sum(0)) / (repeats * (repeats - 1))
    return pairs.mean()


@dataclass(frozen=True)
class Interval:
    """A measured value with a bootstrap interval over rows."""

    value: float
    low: float
    high: float
    rows: int
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.level:.0%} interval {self.low:.3f}–{self.high:.3f}, {self.rows} rows)"


def audit(scores: Any, true: Any, *, level: float = 0.95, repeats: int = 400, seed: int = 0) -> Interval:
    """mAP on an audit of a few fully labelled rows, with a percentile bootstrap over the rows (N×L scores)."""
    s, y = torch.as_tensor(np.asarray(scores)), torch.as_tensor(true_matrix(true))
    if s.shape != y.shape or s.ndim != 2:
        raise ValueError(f"scores has shape {tuple(s.shape)}, true {tuple(y.shape)}; expected N×L, both")
    rng = np.random.default_rng(seed)
    drawn = torch.from_numpy(rng.integers(len(s), size=(repeats, len(s))))
    values = _float64(mean_average_precision(s[drawn], y[drawn] > 0, empty="skip"))
    values = values[values.isfinite()]
    low, high = torch.quantile(values, torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=values.dtype)).tolist()
    return Interval(float(clean_map(s, y)), low, high, len(s), level)


CRITERIA: Mapping[str, Criterion] = {
    c.name: c
    for c in (
        Criterion("clean", "mAP on fully labelled held-out rows", True, clean_map),
        Criterion("observed-map", "mAP on held-out single positives, unknown as absent", False, observed_map),
        Criterion("positive-rank", "mean reciprocal rank of the held-out positive in its row", False, positive_rank),
        Criterion(
            "likelihood",
            "of the held-out single positives as draws from the labels present",
            False,
            draw_likelihood,
            beside=observed_map,
        ),
        Criterion("pu-f1", "Lee–Liu r²/P(ŷ=1), macro mean", False, pu_f1),
        Criterion("pu-f1-log", "Lee–Liu r²/P(ŷ=1), mean logarithm over classes", False, pu_f1_log),
    )
}


def list_criteria() -> list[str]:
    """The criteria that a best epoch can be chosen by."""
    return list(CRITERIA)


def is_clean(labels: Any) -> bool:
    """Whether held-out labels are true ones: a 0/1 matrix, or `Labels` without an unknown entry."""
    return not isinstance(labels, Labels) or labels.is_fully_observed


def true_matrix(labels: Any) -> NDArray[Any]:
    """Clean labels as a 0/1 matrix."""
    if not is_clean(labels):
        raise ValueError(f"an audit must be fully labelled, got {labels!r}")
    return labels.to_dense() > 0 if isinstance(labels, Labels) else np.asarray(labels)


def criterion_for(name: str, labels: Any) -> Criterion:
    """The criterion of a name for these held-out labels, `Labels` or a 0/1 matrix; "auto" is the best they allow."""
    clean = is_clean(labels)
    if name == "auto" and not clean and not (labels.positives_per_row() == 1).any():
        name = "observed-map"  # no draws to have a likelihood
    return criterion_named(name, clean=clean)


def criterion_named(name: str, *, clean: bool) -> Criterion:
    """The criterion of a name; "auto" is the best one for clean rows or for single positives."""
    if name == "auto":
        return CRITERIA["clean" if clean else DEFAULT_BLIND]
    if name not in CRITERIA:
        near = difflib.get_close_matches(name, CRITERIA, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"there is no criterion {name!r}; {hint}list_criteria() lists them all")
    if CRITERIA[name].clean and not clean:
        raise ValueError(f"criterion {name!r} needs fully labelled rows; use {DEFAULT_BLIND!r} for single positives")
    return CRITERIA[name]


@dataclass
class Held:
    """Held-out rows on the device, and the criterion they are measured by."""

    X: Features
    labels: Tensor
    criterion: Criterion

    def measure(self, scores: Tensor) -> Tensor:
        return self.criterion.measure(scores, self.labels)


def held_out(X: Any, labels: Any, criterion: str, sets: Mapping[str, Labels], device: torch.device) -> Held:
    """Held-out features and labels, checked against the training labels."""
    features = as_features(X, "validation features")
    dense = labels.rows(slice(None)) if isinstance(labels, Labels) else torch.as_tensor(np.asarray(labels))
    classes = next(iter(sets.values())).num_classes
    if tuple(dense.shape) != (len(features), classes):
        raise ValueError(f"validation labels have shape {tuple(dense.shape)}; expected {(len(features), classes)}")
    if not isinstance(labels, Labels) and bool(((dense != 0) & (dense != 1)).any()):
        raise ValueError("validation labels must be 0/1 where they are a matrix; give observed ones as Labels")
    chosen = criterion_for(criterion, labels)
    return Held(on_device(features, device, 1 << 62), dense.to(device, torch.int8), chosen)


def _float64(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)
