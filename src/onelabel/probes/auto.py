"""`choose`: try everything as probes, pick by the best criterion the data allows, and say why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.contract import method_info
from onelabel.labels import Labels, estimate_k
from onelabel.probes.criteria import CRITERIA, DEFAULT_BLIND, Interval, audit, criterion_for, is_clean, true_matrix
from onelabel.probes.engine import fit_probes
from onelabel.probes.features import Features, as_features
from onelabel.probes.folds import held_out_logits
from onelabel.probes.prior import estimate_priors
from onelabel.probes.results import ProbeResults, Row
from onelabel.probes.spec import ProbeSpec, grid

#: Fewer audited rows than this choose worse than the single positives do (docs/probes.md); they still give k.
AUDIT_ROWS = 200
#: Rows with one label from which k is estimated at most.
K_ROWS = 4000
#: What is tried unless the caller says otherwise, with the method's own `trials` where nothing is said: every family
#: that works without clean labels.
METHODS: Mapping[str, Mapping[str, Any]] = {
    "an": {},
    "an-ls": {},
    "wan": {},
    "em": {"alpha": [0.1, 0.2]},
    "gr": {},
    "focal": {},
    "asl": {},
    "role": {},
    "ll-r": {},
    "roll-call": {},
}


@dataclass(frozen=True)
class Choice:
    """The winner, its weights, and the grounds.

    Weight and bias give the winner's logits, unless its method reads them otherwise, as roll call's with `naming` does:
    `onelabel.method(spec.method, **spec.hyper).presence(X·weightᵀ + bias)` always does.
    """

    spec: ProbeSpec
    weight: NDArray[np.float32]  #: L×D
    bias: NDArray[np.float32]  #: L
    criterion: str
    value: float
    reason: str
    leaderboard: list[Row]
    results: ProbeResults
    k: float
    interval: Interval | None = None  #: of the winner on the audit, where there is one


def choose(
    features: Any,
    labels: Labels,
    *,
    specs: Sequence[ProbeSpec] | None = None,
    methods: Any = None,
    validation: tuple[Any, Any] | None = None,
    audit_rows: tuple[Any, Any] | None = None,
    criterion: str = "auto",
    k: float | None = None,
    lr: Sequence[float] = (1e-2, 1e-3, 1e-4),
    batch_size: int | None = None,
    epochs: int = 25,
    seeds: Sequence[int] = (0, 1),
    held: float = 0.2,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> Choice:
    """Fit a grid of probes and choose one.

    The criterion is the best that the data allows: mAP on clean validation rows; mAP on an audit of at least
    `AUDIT_ROWS` fully labelled rows; else, with a share `held` of the rows kept out of training, `DEFAULT_BLIND`
    on their single positives (docs/probes.md has what each criterion loses). A cell counts by its mean over seeds;
    the weights are those of its best seed.

    Args:
        features, labels: the training set.
        specs: the probes to try; else `methods` (names, or settings by name) × `lr` × `seeds`.
        validation: features and labels of held-out rows: clean (a 0/1 matrix), or single positives (`Labels`).
        audit_rows: features and the clean 0/1 labels of a few checked rows.
        criterion: a name of `list_criteria()`, to insist.
        k: the mean number of positives for the methods that ask; else from the audit (5 rows or more), clean
            validation, or the scores of a first probe.
    """
    X = as_features(features, "features")
    source, kind = validation, "given"
    clean = validation is not None and is_clean(validation[1])
    checked = 0 if audit_rows is None else len(audit_rows[1])
    rows = np.arange(len(X))
    if not clean and criterion in ("auto", "clean") and checked >= AUDIT_ROWS:
        source, kind, clean = audit_rows, "audit", True
    if source is None:
        rows, kept = _hold_out(labels, held)
        source, kind = (_take(X, kept), labels.take(kept)), "held"
    train, observed = (X, labels) if len(rows) == len(X) else (_take(X, rows), labels.take(rows))
    chosen = criterion_for(criterion, source[1])
    if k is None:
        k, k_said = _k(X, labels, source, clean, audit_rows, device, progress)
    else:
        k, k_said = float(k), f"k = {k:g} as given"
    if specs is None:
        size = batch_size or (16 if len(train) < 20_000 else 64)
        table = methods if methods is not None else candidates(labels.num_classes)
        specs = grid(table, lr=list(lr), batch_size=size, seeds=list(seeds), epochs=epochs)
    specs = [_with_k(spec, k) for spec in specs]
    results = fit_probes(
        train, observed, specs, validation=source, criterion=chosen.name, device=device, progress=progress
    )
    board = results.leaderboard()
    top = board[0]
    values = results.values[list(top.probes)]
    if not np.isfinite(values).any():
        raise RuntimeError("every probe diverged: scale the features, or give smaller learning rates")
    winner = top.probes[int(np.nanargmax(values))]
    interval = None
    if audit_rows is not None and checked:
        interval = audit(results.scores(audit_rows[0], winner), audit_rows[1])
    reason = _reason(top, board, chosen.name, kind, len(as_features(source[0], "validation")), k_said, interval)
    return Choice(
        results.specs[winner],
        results.weight[winner],
        results.bias[winner],
        chosen.name,
        top.value,
        reason,
        board,
        results,
        k,
        interval,
    )


def candidates(num_classes: int, *, frozen: bool = True) -> dict[str, Mapping[str, Any]]:
    """`METHODS`, each with its own `trials`."""
    return {name: said or method_info(name).cls.trials(num_classes, frozen=frozen) for name, said in METHODS.items()}


def _take(X: Features, rows: NDArray[np.int64]) -> Features:
    return X[torch.from_numpy(rows)]


def _hold_out(labels: Labels, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and held-out rows; of the latter only those with a positive can measure anything."""
    if not 0 < share < 1:
        raise ValueError(f"held must lie strictly between 0 and 1, got {share!r}")
    named = np.flatnonzero(labels.positives_per_row() > 0)
    order = np.random.default_rng(0).permutation(named)
    count = max(1, round(share * len(named)))
    if len(named) < 10 or count >= len(named):
        raise ValueError(f"labels hold {len(named)} rows with a positive; at least 10 are needed to hold some out")
    kept = np.sort(order[:count])
    return np.setdiff1d(np.arange(labels.num_examples), kept), kept


def _k(
    X: Features, labels: Labels, source: tuple[Any, Any], clean: bool, audit_rows: tuple[Any, Any] | None,
    device: torch.device | str | None, progress: bool,
) -> tuple[float, str]:  # fmt: skip
    named = labels.positives_per_row()
    if audit_rows is not None and len(audit_rows[1]) >= 5:
        estimate = estimate_k(np.asarray(audit_rows[1]), least=float(named.mean()))
        return max(estimate.mean, 1e-3), f"{estimate} from the audit"
    if clean:
        mean = float(true_matrix(source[1]).sum(1).mean())
        return max(mean, 1e-3), f"k = {mean:.2f} from the validation rows"
    if labels.is_fully_observed:
        mean = float(named.mean())
        return max(mean, 1e-3), f"k = {mean:.2f}, counted"
    single = np.flatnonzero(named == 1)
    if len(single) < 2:  # no draw to learn from: what was observed is the least there can be
        mean = float(named.mean())
        return max(mean, 1e-3), f"k = {mean:.2f}, counted: no rows with exactly one observed positive"
    if len(single) > K_ROWS:
        single = np.sort(np.random.default_rng(0).choice(single, K_ROWS, replace=False))
    part = labels.take(single)
    found = estimate_priors(
        torch.sigmoid(held_out_logits(_take(X, single), part, device=device, progress=progress)), part
    )
    return found.k, str(found)


def _with_k(spec: ProbeSpec, k: float) -> ProbeSpec:
    takes = "expected_positives" in method_info(spec.method).defaults
    if not takes or "expected_positives" in spec.hyper:
        return spec
    return replace(spec, hyper={**spec.hyper, "expected_positives": k})


def _reason(
    top: Row, board: list[Row], criterion: str, kind: str, rows: int, k_said: str, interval: Interval | None
) -> str:
    where = {
        "given": f"the {rows} validation rows",
        "audit": f"the {rows} audited rows",
        "held": f"{rows} rows held out, of which one positive each is known",
    }[kind]
    spread = f" ± {top.std:.3f}" if np.isfinite(top.std) else ""
    text = f"{top.spec} has the highest {criterion} ({top.value:.3f}{spread}) of {len(board)} settings on {where}"
    passed = [row for row in board if row.behind and row.value > top.value]
    if passed:
        first = passed[0]
        text += (
            f", less {len(passed)} that rank the rows of a class far worse, such as {first.spec} ({first.value:.3f}; "
            f"mAP of the observed labels {first.beside:.3f}, here {top.beside:.3f})"
        )
    if len(board) > 1 and not board[1].behind:
        text += f"; next is {board[1].spec} ({board[1].value:.3f})"
    if kind == "held" and criterion == DEFAULT_BLIND:
        text += "; without fully labelled rows no criterion is better everywhere (docs/probes.md)"
    elif not CRITERIA[criterion].clean:
        text += f"; {criterion} uses observed positives only"
    text += f"; {k_said}"
    return text + (f"; mAP on the audit {interval}." if interval else ".")
