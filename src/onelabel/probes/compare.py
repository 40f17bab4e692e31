"""The leaderboard of a dataset's probes: from a name, a folder or a file to a table, a CSV and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.labels import Labels
from onelabel.models.columns import even
from onelabel.probes.auto import Choice, choose
from onelabel.probes.results import Row
from onelabel.probes.role_table import load_voc_features, map_on
from onelabel.system import atomic_path


@dataclass(frozen=True)
class Parts:
    """Features and labels of training rows; validation (clean or `Labels`) and clean test rows where there are any."""

    features: Any
    labels: Labels
    validation: tuple[Any, Any] | None = None
    test: tuple[Any, Any] | None = None


def read_parts(
    source: str,
    *,
    root: str | None = None,
    backbone: str | None = None,
    weights: str | None = None,
    size: int = 448,
    device: str | None = None,
    blind: bool = False,
    loader: Mapping[str, Any] | None = None,
) -> Parts:
    """The parts of FEATURES (a file, or a folder with labels.npz and features-…npz) or of DATA.

    Pictures become features of `backbone`, training's own unless given; one line says what was left out.
    `blind` hides the clean validation labels: the held-out rows keep only what was observed. `loader` are the data
    loader's own options.
    """
    folder = Path(source).expanduser()
    if (folder / "labels.npz").is_file():
        voc = load_voc_features(folder)
        return Parts(voc.train[0], voc.observed, (voc.validation[0], voc.held) if blind else voc.validation, voc.test)
    from onelabel.data import load_dataset

    own = {"size": size} if source == "digits-scenes" else {}
    splits = load_dataset(source, root=root, **{**own, **(loader or {})})
    made: dict[str, Any] = dict(splits.parts)
    if not hasattr(splits.train, "X"):
        from onelabel.data.cache import features
        from onelabel.training.frozen import frozen_backbone

        network, look = frozen_backbone(backbone, weights, size=size)
        for name, part in made.items():
            made[name] = features(part, network, size=size, device=device, **look).dataset(part)
    splits.tell()
    train, validation, test = (made.get(name) for name in ("train", "validation", "test"))
    assert train is not None
    arrays = [None if part is None else part.X for part in (train, validation, test)]
    X, X_held, X_test = even(*arrays) if hasattr(splits.train, "X") else arrays
    held: tuple[Any, Any] | None = None
    if validation is not None:
        clean = validation.true is not None and not blind
        held = (X_held, validation.true if clean else validation.observed)
    return Parts(X, train.observed, held, (X_test, test.true) if test is not None and test.true is not None else None)


def compare(
    parts: Parts,
    *,
    methods: Sequence[str] | None = None,
    lr: Sequence[float] = (1e-2, 1e-3, 1e-4),
    batch_size: int | None = None,
    seeds: int = 2,
    epochs: int = 25,
    criterion: str = "auto",
    k: float | None = None,
    device: str | None = None,
    progress: bool = True,
) -> tuple[Choice, list[dict[str, Any]]]:
    """Fit the grid, choose, and measure every probe on the test rows; the choice and the leaderboard's rows."""
    choice = choose(
        parts.features,
        parts.labels,
        methods=list(methods) if methods else None,
        validation=parts.validation,
        criterion=criterion,
        k=k,
        lr=lr,
        batch_size=batch_size,
        epochs=epochs,
        seeds=range(seeds),
        device=device,
        progress=progress,
    )
    test = None if parts.test is None else map_on(choice.results, *parts.test, device=device)
    return choice, [_row(row, choice.criterion, test) for row in choice.leaderboard]


def _row(row: Row, criterion: str, test: Any) -> dict[str, Any]:
    line: dict[str, Any] = {
        "method": row.spec.method,
        "hyper": " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.spec.hyper.items()),
        "lr": row.spec.lr,
        "batch_size": row.spec.batch_size,
        "epoch": round(row.epoch, 1),
        criterion: round(row.value, 4),
        "std": round(row.std, 4) if np.isfinite(row.std) else None,
    }
    if np.isfinite(row.beside):
        line["observed_mAP"] = round(row.beside, 4)
    if test is not None:
        line["test_mAP"] = round(float(test[list(row.probes)].mean()), 4)
    return line


def plot(choice: Choice, path: str | Path) -> None:
    """The best setting of every method: its criterion by epoch, and at its best epoch."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs matplotlib: pip install 'onelabel[cli]'") from error

    rows = choice.results.best_rows()
    figure = Figure(figsize=(11, 0.32 * len(rows) + 2.6), layout="constrained")
    curves, bars = figure.subplots(1, 2, width_ratios=[3, 2])
    history = choice.results.history["validation"]
    for i, row in enumerate(rows):
        mean = history[list(row.probes)].mean(0)
        curves.plot(np.arange(1, len(mean) + 1), mean, color=f"C{i % 10}", lw=1.2)
        bars.barh(i, row.value, xerr=None if np.isnan(row.std) else row.std, color=f"C{i % 10}")
    bars.set_yticks(range(len(rows)), [str(row.spec) for row in rows], fontsize=8)
    bars.invert_yaxis()
    low = min(row.value for row in rows if np.isfinite(row.value))
    bars.set_xlim(left=max(0.0, low - 0.05) if low >= 0 else None)
    curves.set(xlabel="epoch", ylabel=choice.criterion)
    bars.set(xlabel=f"{choice.criterion} at the best epoch")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        figure.savefig(temporary, dpi=130)
