"""A run's calibration, kept beside its weights: `train` writes it, `predict` and `export` apply it.

`recover RUN` writes it where training did not, and again where an audit or the user says how many labels a row has.
What recovery itself finds of that is of other scores, and one label a row leaves it open; so it stays out of here.

The classifier's logits s become P(y_l=1 | x) = σ(f(s_l) + intercept_l) (`Calibration.said`), learnt from rows that the
run did not train on, its validation rows: by a logistic regression of their true labels where they are known, else by
the naming EM, for which one label each is enough. Rows that have a label each say nothing of rows that have none, so
that what is learnt from them is said of pictures that hold one of the classes at least: p_l / (1 − Π(1−p_j)).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from onelabel.labels import Labels
from onelabel.losses.calibrate import Calibration, fit_calibration
from onelabel.losses.sample import LIMIT, draw_sample, known_sample
from onelabel.system import atomic_write, check_schema, read_json, reading, say
from onelabel.training.evaluate import to_logits

FILE, SCHEMA = "calibration.json", 1
#: Held-out rows with true labels, or else with one observed label, below which nothing is learnt from them.
LEAST = 100


@dataclass(frozen=True)
class Carried:
    """A calibration, the rows it was learnt from, and a digest of the weights that it belongs to."""

    calibration: Calibration
    class_names: tuple[str, ...]
    rows: int
    weights: str

    def to_json(self) -> dict[str, Any]:
        """What is written."""
        c = self.calibration
        numbers = {name: getattr(c, name).tolist() for name in ("slope", "knots", "intercept")}
        told = {
            "some": c.some,
            "k": c.k,
            "rows": self.rows,
            "weights": self.weights,
            "class_names": list(self.class_names),
        }
        return {"schema_version": SCHEMA, **numbers, **told}

    @classmethod
    def load(cls, path: Path) -> Carried:
        """Read a calibration.json."""
        found = read_json(path, remedy="write it again with onelabel recover RUN")
        with reading(path, "a calibration", remedy="write it again with onelabel recover RUN"):
            check_schema(found.get("schema_version"), SCHEMA, path)
            slope, knots, intercept = (np.array(found[name], np.float64) for name in ("slope", "knots", "intercept"))
            names = tuple(map(str, found["class_names"]))
            sizes = (slope.shape, knots.shape, intercept.shape)
            if sizes != ((len(knots) + 1,), (len(knots),), (len(names),)) or not np.isfinite(intercept).all():
                raise ValueError(f"slopes, knots and intercepts of shape {sizes} for {len(names)} classes")
            some = bool(found.get("some", False))  # calibrations of before it was written say it of any picture
            made = Calibration(slope, knots, intercept, float(found["k"]), some=some)
            return cls(made, names, int(found["rows"]), str(found["weights"]))


def usable_rows(labels: Labels, true: Any = None) -> int:
    """Rows from which a calibration can be learnt; none where nothing is known to be there."""
    if true is not None:
        return len(true) if np.any(true) else 0
    return int((labels.positives_per_row() == 1).sum())


def more_rows(rows: int) -> str:
    """What makes held-out rows enough for a calibration, of so many rows in all."""
    return f"-o validation={math.ceil(100 * LEAST / rows) / 100:g}" if rows >= 2 * LEAST else "more pictures"


def calibrate_run(
    run: Any, probabilities: Any, labels: Labels, *, true: Any = None, k: float | None = None
) -> Carried | None:
    """Learn a run's calibration from its sigmoids of rows it did not train on, and leave it beside its weights.

    Args:
        labels: what was observed of these rows. true: all their labels, 0/1, where they are known.
        k: mean positives per row; what true labels say goes before.

    Returns:
        None where the rows are too few or a score is not a number, and nothing was written.
    """
    rows = usable_rows(labels, true)
    logits = to_logits(torch.as_tensor(probabilities))
    if run.path is None or rows < LEAST or not logits.isfinite().all():
        return None
    if true is not None:
        fitted = fit_calibration(known_sample(logits, true), doubt="both")
    else:
        level = None if k is None else min(max(k, 1.001), float(labels.num_classes))
        fitted = dataclasses.replace(fit_calibration(draw_sample(logits, labels), k=level), some=True)
    found = Carried(fitted, tuple(run.class_names), rows, digest(run.path))
    atomic_write(Path(run.path) / FILE, json.dumps(found.to_json(), ensure_ascii=False) + "\n")
    return found


def calibration_of(run: Any) -> Calibration | None:
    """A run's calibration, where one lies beside its weights and belongs to them."""
    path = None if run.path is None else Path(run.path) / FILE
    if path is None or not path.is_file():
        return None
    found = Carried.load(path)
    if not _belongs(found, run):
        say(f"{path} is of other weights and is not used; write it again with onelabel recover {run.path}")
        return None
    return found.calibration


def is_calibrated(run: Any) -> bool:
    """Whether `calibration_of` has one; a damaged file is none."""
    path = Path(run.path) / FILE
    try:
        return path.is_file() and _belongs(Carried.load(path), run)
    except ValueError:
        return False


def _belongs(found: Carried, run: Any) -> bool:
    return found.class_names == tuple(run.class_names) and found.weights == digest(run.path)


def digest(folder: str | Path) -> str:
    """SHA-256 of a run's best weights."""
    state = hashlib.sha256()
    with open(Path(folder) / "weights-best.safetensors", "rb") as file:
        while piece := file.read(1 << 20):
            state.update(piece)
    return state.hexdigest()


class Probabilities(nn.Module):
    """uint8 pictures B×S×S×3 (or float features B×D) → probabilities B×L, normalisation and calibration included."""

    slope: Tensor
    knots: Tensor
    intercept: Tensor

    def __init__(self, classifier: nn.Module, calibration: Calibration | None = None) -> None:
        super().__init__()
        self.classifier, self.calibrated = classifier, calibration is not None
        self.some = calibration is not None and calibration.some
        if calibration is not None:
            for name in ("slope", "knots", "intercept"):
                self.register_buffer(name, torch.tensor(getattr(calibration, name), dtype=torch.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        s = self.classifier(inputs).float()
        if not self.calibrated:
            return torch.sigmoid(s)
        s = s.clamp(-LIMIT, LIMIT)
        bends = (s[..., None] - self.knots).clamp(min=0) @ self.slope[1:]
        z = self.slope[0] * s + bends + self.intercept
        p = torch.sigmoid(z)
        if not self.some:
            return p
        half = torch.tanh(functional.softplus(z).sum(-1, keepdim=True) / 2)  # 1 − Π(1−p) = 2h/(1+h), exact for small p
        return (p * (1 + half) / (2 * half).clamp(min=1e-30)).clamp(max=1)
