"""`held_out_scores`: whole networks, each trained without the rows it scores, where frozen features say too little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.data import Splits
from onelabel.probes.folds import assign_folds
from onelabel.training import Run, evaluate, train

LIMIT = 15.0  # float32 probabilities end there: σ(15) = 1 − 3e-7


def held_out_scores(
    splits: Splits[Any], *, folds: int = 2, seed: int = 0, out: str | Path | None = None, **settings: Any
) -> NDArray[np.float32]:
    """Logits N×L of the training rows, each by a network that was trained without it; `recover(scores=…)` takes them.

    K networks see (K−1)/K of the rows each, so that two cost as much as one on everything.

    Args:
        folds: how many networks.
        seed: of the folds and of training.
        out: a folder for their runs, taken as they are where finished and resumed where not.
        settings: those of `train`.
    """
    part = splits.train
    fold = assign_folds(part.observed, folds, seed=seed)
    logits = np.empty(part.observed.shape, np.float32)
    device = settings.get("device", "auto")
    for number in range(folds):
        mine, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        folder = None if out is None else Path(out) / str(number)
        if folder is not None and (folder / "result.json").is_file():
            run = Run.load(folder)
        else:
            run = train(
                replace(splits, train=part.take(rest)), out=folder, resume=folder is not None, seed=seed, **settings
            )
        p = evaluate(run, part.take(mine), device=device)["scores"].astype(np.float64)
        with np.errstate(divide="ignore"):
            logits[mine] = np.clip(np.log(p) - np.log1p(-p), -LIMIT, LIMIT)
    return logits
