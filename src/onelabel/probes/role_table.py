"""The linear half of Table 1 of Cole et al. (2021), and of what came after, on one set of frozen features."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.labels import Labels, drop_labels
from onelabel.metrics import mean_average_precision
from onelabel.probes.engine import fit_probes
from onelabel.probes.results import ProbeResults
from onelabel.probes.spec import ProbeSpec, grid
from onelabel.system import atomic_path, reading

#: Method → (its observed labels, the published linear VOC column).
ROLE_TABLE: Mapping[str, tuple[str, float]] = {
    "bce": ("full", 86.7),
    "bce-ls": ("full", 87.6),
    "iun": ("positive+negatives", 86.4),
    "iu": ("positive+negative", 82.6),
    "an": ("positive", 84.2),
    "an-ls": ("positive", 85.3),
    "wan": ("positive", 84.1),
    "epr": ("positive", 83.8),
    "role": ("positive", 86.5),
}
#: Rows of its appendix (Table A1), and methods published later, which have no linear column.
FURTHER: Mapping[str, float | None] = {"pr": 84.2, "n-ls": 85.0, "em": None, "gr": None, "em-apl": None, "ll-r": None}
LRS, BATCHES = (1e-2, 1e-3, 1e-4, 1e-5), (8, 16)


@dataclass(frozen=True)
class FeatureSplits:
    """Features and clean labels of a benchmark: the published training, validation and test rows."""

    class_names: tuple[str, ...]
    train: tuple[NDArray[np.float32], NDArray[np.uint8]]
    validation: tuple[NDArray[np.float32], NDArray[np.uint8]]
    test: tuple[NDArray[np.float32], NDArray[np.uint8]]
    observed: Labels  #: of the training rows
    held: Labels  #: of the validation rows
    one_negative: Labels  #: the training rows' positive and one random true negative


def load_voc_features(folder: str | Path) -> FeatureSplits:
    """VOC 2012 from `labels.npz` and `features-resnet50-448.npz` (uint8 q with feature = (q/255)²·peak) in a folder."""
    base = Path(folder)
    for name in ("labels.npz", "features-resnet50-448.npz"):
        if not (base / name).is_file():
            raise FileNotFoundError(f"{base} does not hold {name}: give the folder of the VOC features")
    with reading(base, "VOC's features and labels, as many rows of each", remedy="unpack them again"):
        with np.load(base / "labels.npz", allow_pickle=False) as file:
            true, test_true = file["train_true"], file["test_true"]
            observed, names = file["train_observed_uniform1200"], tuple(map(str, file["classes"]))
        with np.load(base / "features-resnet50-448.npz", allow_pickle=False) as file:
            peak = file["peak"]
            X, test = ((file[part].astype(np.float32) / 255) ** 2 * peak for part in ("train", "test"))
        if len({len(X), len(true), len(observed)}) > 1 or len(test) != len(test_true):
            raise ValueError(f"{len(X)} and {len(test)} features for {len(true)} and {len(test_true)} labels")
        order = np.random.RandomState(1200).permutation(len(X))
        held = int(np.round(0.2 * len(X)))
        first, last = np.sort(order[:-held]), np.sort(order[-held:])
        labels = Labels.from_matrix(observed, names)
        return FeatureSplits(
            names,
            (X[first], true[first]),
            (X[last], true[last]),
            (test.astype(np.float32), test_true),
            labels.take(first),
            labels.take(last),
            drop_labels(true, seed=1200, negatives=1).take(first),
        )


def label_sets(data: FeatureSplits) -> dict[str, Labels]:
    """The four kinds of supervision of the table, by name; the positive is the same in all that have one."""
    absent = np.argwhere(data.train[1] == 0)
    return {
        "full": Labels.from_true(data.train[1]),
        "positive": data.observed,
        "positive+negatives": data.observed.with_updates(absent[:, 0], absent[:, 1], -1),
        "positive+negative": data.one_negative,
    }


def role_specs(
    *, seeds: Sequence[int] = (0, 1, 2), further: Sequence[str] = (), k: float = 1.5, epochs: int = 25
) -> list[ProbeSpec]:
    """All methods of the table over its learning rates and batch sizes.

    EPR is as in the authors' program, which weighs the observed positives L times less against the regulariser: as
    printed it all but ignores the regulariser and says yes to too much. ROLE is as printed.
    """
    hyper: dict[str, Any] = {name: {} for name in (*ROLE_TABLE, *further)}
    hyper["role"] = {"expected_positives": k}
    hyper["epr"] = {"expected_positives": k, "variant": "reference"}
    if "em-apl" in hyper:
        hyper["em-apl"] = {"warmup": epochs // 2}
    which = {name: labels for name, (labels, _) in ROLE_TABLE.items()}
    which.update(dict.fromkeys(further, "positive"))
    return grid(hyper, lr=LRS, batch_size=BATCHES, seeds=list(seeds), epochs=epochs, labels=which)


def run_role_table(
    data: FeatureSplits, specs: Sequence[ProbeSpec], *, device: Any = None, progress: bool = True, **options: Any
) -> tuple[ProbeResults, NDArray[np.float64]]:
    """Fit the grid, select on clean validation mAP; the results and every probe's test mAP."""
    sets = label_sets(data)
    results = fit_probes(
        data.train[0], sets, specs, validation=data.validation, device=device, progress=progress, **options
    )
    return results, map_on(results, *data.test, device=device)


def map_on(results: ProbeResults, X: Any, true: Any, *, device: Any = None, chunk: int = 24) -> NDArray[np.float64]:
    """mAP of every probe at its best epoch, a class without positives counting 0 as published."""
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    X, true = torch.as_tensor(X).to(where), torch.as_tensor(np.asarray(true)).to(where)
    parts = []
    for start in range(0, len(results), chunk):
        some = list(range(start, min(start + chunk, len(results))))
        scores = results.scores(X, some, device=where).nan_to_num(0.0, 0.0, 0.0)
        parts.append(torch.as_tensor(mean_average_precision(scores, true)).cpu().numpy())
    return np.concatenate(parts)


def role_rows(results: ProbeResults, test: NDArray[np.float64]) -> list[dict[str, Any]]:
    """One row a method: the cell with the best mean validation mAP, its test mAP over seeds, the published number."""
    published: dict[str, float | None] = {**{name: value for name, (_, value) in ROLE_TABLE.items()}, **FURTHER}
    rows = []
    for row in results.best_rows():
        mine = 100 * test[list(row.probes)]
        rows.append(
            {
                "method": row.spec.method,
                "labels": row.spec.labels,
                "variant": row.spec.hyper.get("variant", "paper"),
                "lr": row.spec.lr,
                "batch_size": row.spec.batch_size,
                "epoch": round(row.epoch, 1),
                "validation": round(100 * row.value, 2),
                "test": round(float(mine.mean()), 2),
                "std": round(float(mine.std(ddof=1)), 2) if len(mine) > 1 else None,
                "seeds": len(mine),
                "published": published.get(row.spec.method),
            }
        )
    order = [*ROLE_TABLE, *FURTHER]
    return sorted(rows, key=lambda r: order.index(r["method"]) if r["method"] in order else len(order))


def write_rows(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """A table of dictionaries as CSV."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def format_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same as text, columns aligned."""
    cells = [[str(h) for h in rows[0]]] + [["–" if v is None else str(v) for v in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip() for line in cells)
