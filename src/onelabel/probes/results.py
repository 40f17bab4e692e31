"""What came of the probes: weights, histories, the leaderboard."""

from __future__ import annotations

import csv
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.labels import Labels
from onelabel.probes.block import product
from onelabel.probes.criteria import FLOOR, Held, agreement
from onelabel.probes.features import as_features
from onelabel.probes.spec import ProbeSpec, presence
from onelabel.system import atomic_path


@dataclass(frozen=True)
class Row:
    """A line of the leaderboard: one cell, i.e. all seeds of a probe."""

    spec: ProbeSpec
    probes: tuple[int, ...]
    value: float  #: mean criterion over seeds
    std: float  #: over seeds, NaN for one
    epoch: float  #: mean best epoch, 1-based
    monitors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    beside: float = math.nan  #: mean of what the criterion has beside it
    behind: bool = False  #: too far below the best there to be chosen


@dataclass
class ProbeResults:
    """M trained probes, in the order of `specs`.

    Attributes:
        weight, bias: M×L×D and M×L float32, of the best epoch.
        best_epoch: M, 0-based.
        history: per held-out set, M×epochs (NaN after a probe's last epoch, or where it diverged).
        criteria: per held-out set, what it was measured by.
        beside: M, what the criterion has beside it (`Criterion.beside`), where it has something.
        seconds: how long the training took.
    """

    specs: Sequence[ProbeSpec]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    best_epoch: NDArray[np.int64]
    history: dict[str, NDArray[np.float64]]
    criteria: dict[str, str]
    class_names: tuple[str, ...] | None = None
    seconds: float = 0.0
    beside: NDArray[np.float64] | None = None

    @classmethod
    def empty(cls, specs: Sequence[ProbeSpec], dim: int, labels: Labels, held: Mapping[str, Held]) -> ProbeResults:
        probes, classes = len(specs), labels.num_classes
        epochs = max(spec.epochs for spec in specs)
        return cls(
            specs,
            np.zeros((probes, classes, dim), np.float32),
            np.zeros((probes, classes), np.float32),
            np.zeros(probes, np.int64),
            {name: np.full((probes, epochs), np.nan) for name in held},
            {name: part.criterion.name for name, part in held.items()},
            labels.class_names,
        )

    def record(self, name: str, where: NDArray[Any], epoch: int, values: Tensor) -> None:
        self.history[name][where, epoch] = values.cpu().numpy()

    def keep(self, where: NDArray[Any], weight: Tensor, bias: Tensor, epoch: Tensor) -> None:
        for s, positions in enumerate(where):
            self.weight[positions] = weight[s].float().cpu().numpy()
            self.bias[positions] = bias[s].float().cpu().numpy()
        self.best_epoch[where] = epoch.cpu().numpy()

    def __len__(self) -> int:
        return len(self.specs)

    # -- choosing ----------------------------------------------------------------------------------------------

    @property
    def values(self) -> NDArray[np.float64]:
        """The criterion at each probe's best epoch; NaN without validation."""
        return self.at_best("validation")

    def at_best(self, name: str) -> NDArray[np.float64]:
        """A held-out set's value at each probe's best epoch."""
        if name not in self.history:
            return np.full(len(self), np.nan)
        return self.history[name][np.arange(len(self)), self.best_epoch]

    @property
    def best(self) -> int:
        """The probe with the highest criterion, of those that are not behind in what it has beside it."""
        values = self.values
        if np.isnan(values).all():
            raise ValueError("no probe was measured: give fit_probes validation=")
        return int(np.nanargmax(np.where(behind(self.beside, values), np.nan, values)))

    def leaderboard(self) -> list[Row]:
        """Cells (all seeds of a probe together) from the best mean criterion to the worst.

        Those that are `behind` come after the others, diverged ones last.
        """
        cells: dict[Any, list[int]] = defaultdict(list)
        for i, spec in enumerate(self.specs):
            cells[spec.cell].append(i)
        values = self.values
        others = {name: self.at_best(name) for name in self.history if name != "validation"}
        of_cells = [values[members].mean() for members in cells.values()]
        means = None if self.beside is None else np.array([self.beside[members].mean() for members in cells.values()])
        late = np.broadcast_to(behind(means, np.array(of_cells)), len(cells))
        rows = [
            Row(
                self.specs[members[0]],
                tuple(members),
                *_mean_std(values[members]),
                float(self.best_epoch[members].mean() + 1),
                {name: _mean_std(each[members]) for name, each in others.items()},
                math.nan if means is None else float(means[i]),
                bool(late[i]),
            )
            for i, members in enumerate(cells.values())
        ]
        return sorted(rows, key=lambda row: (row.behind, -row.value) if math.isfinite(row.value) else (True, math.inf))

    def best_rows(self) -> list[Row]:
        """The best cell of every method (and set of labels), as the papers' tables have it."""
        seen: dict[tuple[str, str], Row] = {}
        for row in self.leaderboard():
            seen.setdefault((row.spec.method, row.spec.labels), row)
        return list(seen.values())

    # -- using -------------------------------------------------------------------------------------------------

    def scores(self, X: Any, which: int | Sequence[int] | None = None, *, device: torch.device | str = "cpu") -> Tensor:
        """Logits of some probes (N×L for one, else M×N×L) on features X, computed when asked for.

        They are X·weightᵀ + bias, unless the method reads that otherwise (`Method.presence`).
        """
        features, where = as_features(X, "X"), torch.device(device)
        chosen = range(len(self)) if which is None else [which] if isinstance(which, int) else list(which)
        W = torch.from_numpy(self.weight[list(chosen)]).to(where)
        b = torch.from_numpy(self.bias[list(chosen)]).to(where)
        flat = product(features, W.flatten(0, 1).T, where).view(len(features), len(chosen), -1)
        out = presence(flat.transpose(0, 1) + b[:, None, :], [self.specs[i] for i in chosen])
        return out[0] if isinstance(which, int) else out

    def agreement(self, X: Any) -> dict[tuple[Any, ...], float]:
        """Per cell, how alike its seeds rank the rows of X."""
        return {row.spec.cell: float(agreement(self.scores(X, row.probes))) for row in self.leaderboard()}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """One line a probe: its settings, best epoch, and the value of every held-out set there."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        columns = {name: self.at_best(name) for name in self.history}
        with atomic_path(target) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            heads = ["method", "labels", "hyper", "lr", "batch_size", "weight_decay", "epochs", "seed", "best_epoch"]
            if self.beside is not None:
                columns["beside"] = self.beside
            named = (f"{name}_{self.criteria[name]}" if name in self.criteria else name for name in columns)
            writer.writerow([*heads, *named])
            for i, spec in enumerate(self.specs):
                hyper = " ".join(f"{k}={v}" for k, v in spec.hyper.items())
                line = [spec.method, spec.labels, hyper, spec.lr, spec.batch_size, spec.weight_decay, spec.epochs]
                extra = [f"{each[i]:.6f}" for each in columns.values()]
                writer.writerow([*line, spec.seed, int(self.best_epoch[i]) + 1, *extra])


def behind(beside: NDArray[np.float64] | None, values: NDArray[np.float64]) -> NDArray[np.bool_] | bool:
    """Which are below FLOOR of the best of those that were measured; a comparison with NaN is not."""
    if beside is None or np.isnan(beside[np.isfinite(values)]).all():
        return False
    found: NDArray[np.bool_] = beside < FLOOR * np.nanmax(beside[np.isfinite(values)])
    return found


def _mean_std(values: NDArray[np.float64]) -> tuple[float, float]:
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return float(values.mean()), std
