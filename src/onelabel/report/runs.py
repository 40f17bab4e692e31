"""Runs as the report and its figures see them: numbers, labels, scores and recordings, without the network."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.metrics import average_precision, best_thresholds
from onelabel.report import style
from onelabel.system import reading
from onelabel.training import TrainConfig
from onelabel.training.config import BY_VALIDATION
from onelabel.training.loop import watched
from onelabel.training.recording import PartLabels, Recording, metadata, read_labels

Floats = NDArray[np.float64]
#: The phases of a training in words.
PHASES = {"linear": "the linear phase", "finetune": "fine-tuning", "student": "the student"}


@dataclass
class RunView:
    """One run folder. `label` is unique among the runs read together; `full`: every label was observed."""

    path: Path
    config: TrainConfig
    result: dict[str, Any]
    history: list[dict[str, Any]]
    class_names: tuple[str, ...]
    recording: Recording | None
    environment: dict[str, Any]
    label: str = ""
    given: dict[str, PartLabels] = field(default_factory=dict, repr=False)

    @property
    def method(self) -> str:
        return self.config.method

    @property
    def look(self) -> style.Look:
        return style.look("bce" if self.full else self.method)

    @cached_property
    def labels(self) -> dict[str, PartLabels]:
        """Per part the labels it was trained and measured with; empty where the folder and its data are silent."""
        return read_labels(self.path) or self.given or _labels_of_data(self)

    @cached_property
    def full(self) -> bool:
        known = self.labels.get("train")
        return known is not None and bool((known.observed != 0).all())

    @cached_property
    def header(self) -> dict[str, Any]:
        """What its weights say of themselves; nothing where they are gone."""
        return _weights_header(self.path)

    @cached_property
    def network(self) -> list[str]:
        """The options by which another command sees pictures as this run did; none where it was given features."""
        if self.header.get("backbone", "none") == "none":
            return []
        config = self.config
        given = [] if config.weights in (None, "pretrained") else ["--weights", str(config.weights)]
        return ["--backbone", config.backbone, *given, "--size", str(config.size)]

    def scores(self, part: str) -> NDArray[np.float32] | None:
        """Probabilities N×L of the best epoch; None where they were not saved or do not fit the labels."""
        path = self.path / f"scores-{part}.npy"
        if not path.is_file():
            return None
        found: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
        return found if part not in self.labels or found.shape == self.labels[part].observed.shape else None

    def true(self, part: str) -> NDArray[np.uint8] | None:
        return self.labels[part].true if part in self.labels else None

    def judged(self, part: str) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """A part's scores and true labels, or an error that says which is missing."""
        scores, true = self.scores(part), self.true(part)
        if true is None:
            raise self.untold(part)
        if scores is None:
            raise ValueError(f"{self.path}: no scores-{part}.npy; train with --set save_scores=true")
        return scores, true

    def untold(self, part: str, known: Sequence[str] | None = None) -> ValueError:
        """What to say where a part's true labels are wanted and not there: the parts that have them (`known`)."""
        here = [name for name in self.labels if self.true(name) is not None] if known is None else known
        there = not self.labels or part in self.labels
        what = f"nobody knows the true labels of its {part} part" if there else f"it has no {part} part"
        return ValueError(f"{self.path}: {what}; {other_part(here)}")

    def recorded(self) -> Recording:
        """The recording, or an error that says how to have one."""
        if self.recording is None:
            raise ValueError(f"{self.path}: nothing was recorded; train with --set record=on")
        return self.recording

    @cached_property
    def test_ap(self) -> Floats | None:
        """AP per class on the test part, NaN for a class without positives; None where it cannot be known."""
        return self._ap("test")

    def _ap(self, part: str) -> Floats | None:
        scores, true = self.scores(part), self.true(part)
        if scores is None or true is None:
            return None
        return np.asarray(average_precision(np.asarray(scores), true, empty="nan"), np.float64)

    @cached_property
    def thresholds(self) -> Floats:
        """Per class: of best F1 on validation where its true labels are known, else 0.5."""
        scores, true = self.scores("validation"), self.true("validation")
        if scores is None or true is None:
            return np.full(len(self.class_names), 0.5)
        found = np.asarray(best_thresholds(np.asarray(scores), true), np.float64)
        return np.where(np.isfinite(found), found, 0.5)

    @property
    def criterion(self) -> str:
        """What its best epoch went by: "mAP" or "likelihood" of validation, "loss", or "last" (without validation).

        Training takes the likelihood where validation has observed labels alone, whatever config.toml says.
        """
        if self.config.select not in BY_VALIDATION:
            return self.config.select
        if any(watched(self.config, select="likelihood") in row for row in self.history):
            return "likelihood"
        return "mAP" if "validation_mAP" in self.result else "last"

    @property
    def best_at(self) -> int | None:
        """The best epoch's place among those of all phases, from 0; None where the run does not say."""
        if "best_epoch" not in self.result or not self.history:
            return None
        wanted = self.result.get("best_phase") or self.history[-1].get("phase"), self.result["best_epoch"]
        return next((i for i, row in enumerate(self.history) if (row.get("phase"), row.get("epoch")) == wanted), None)

    def validated(self, by: str) -> float | None:
        """Validation's "mAP" (percent) or "likelihood" at the best epoch, where it was measured."""
        if by == "mAP":
            return self.result.get("validation_mAP")
        return None if self.best_at is None else self.history[self.best_at].get(watched(self.config, select=by))

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """A column of metrics.jsonl over the epochs of all phases, counted from 1."""
        found = [(i + 1, float(row[name])) for i, row in enumerate(self.history) if name in row]
        return [i for i, _ in found], [value for _, value in found]


def other_part(known: Sequence[str], otherwise: str = "") -> str:
    """The end of an error about a part: the parts that can be drawn, or what to do where none can."""
    if known:
        return f"--set part={known[-1]} (part={known[-1]!r}) takes another, of {', '.join(known)}"
    return otherwise or "train with -o complete=true where its labels are complete, or draw learning-curves"


def read_run(path: str | Path) -> RunView:
    """Read a run folder, finished or not."""
    folder = Path(path)
    if not (folder / "config.toml").is_file():
        raise FileNotFoundError(f"{folder}: no run there (config.toml is missing)")
    config = TrainConfig.load(folder / "config.toml").resolved()
    metrics = folder / "metrics.jsonl"
    history: list[dict[str, Any]] = []
    if metrics.is_file():
        with reading(metrics, "a line of JSON per epoch", remedy="resume the run"):
            history = [dict(json.loads(line)) for line in metrics.read_text(encoding="utf-8").splitlines()]
    recording = Recording.load(folder)
    names = recording.class_names if recording is not None else _class_names(folder)
    return RunView(
        folder,
        config,
        _json(folder / "result.json"),
        history,
        names,
        recording,
        _json(folder / "environment.json"),
    )


def read_runs(paths: Sequence[str | Path], labels: dict[str, PartLabels] | None = None) -> list[RunView]:
    """Read runs on the same classes and name them apart: by method, then settings, seed or folder."""
    if not paths:
        raise ValueError("runs: none given; a run is a folder that onelabel train wrote")
    found = [read_run(path) for path in paths]
    for run in found:
        if run.class_names != found[0].class_names:
            raise ValueError(f"{run.path}: its classes are not those of {found[0].path}; report them apart")
        run.given = dict(labels or {})
    plain = [f"full labels ({style.title(r.method)})" if r.full else style.title(r.method) for r in found]
    settings = [
        _differing(r, [o for o, name in zip(found, plain, strict=True) if name == p])
        for r, p in zip(found, plain, strict=True)
    ]
    seeds = [f"seed {r.config.seed}" for r in found]
    folders = [r.path.name for r in found]
    names = plain
    for extra in (settings, [r.config.mode for r in found], seeds, folders):
        count = Counter(names)
        if all(n == 1 for n in count.values()):
            break
        differs = {n: len({e for e, m in zip(extra, names, strict=True) if m == n}) > 1 for n in count}
        names = [f"{n}, {e}" if e and differs[n] else n for n, e in zip(names, extra, strict=True)]
    for run, name in zip(found, names, strict=True):
        run.label = name
    return found


def _differing(run: RunView, alike: Sequence[RunView]) -> str:
    """The settings of a run's method that the other runs of the method have otherwise; a default is not named."""
    own = run.config.hyper
    names = sorted({name for r in alike for name in r.config.hyper})
    apart = [name for name in names if len({repr(r.config.hyper.get(name)) for r in alike}) > 1]
    return ", ".join(f"{name}={own[name]}" for name in apart if name in own)


def baseline(runs: Sequence[RunView]) -> RunView | None:
    """The AN run, where there is one."""
    return next((r for r in runs if r.method == "an"), None)


def _labels_of_data(run: RunView) -> dict[str, PartLabels]:
    """For runs without recorded labels: from the data they say they were trained on."""
    splits = splits_of(run)
    if splits is None:
        return {}
    return {name: PartLabels(part.observed.to_dense(), part.true) for name, part in splits.parts.items()}


def splits_of(run: RunView) -> Any:
    """The data a run was trained on, where data.json names them and they are still there; else None."""
    from onelabel.data import load_dataset
    from onelabel.training.again import Origin

    try:
        origin = Origin.load(run.path)
        splits = load_dataset(origin.source, root=origin.root, **origin.options)
    except (OSError, ValueError, TypeError, ImportError):
        return None
    return splits if tuple(splits.class_names) == run.class_names else None


def _class_names(folder: Path) -> tuple[str, ...]:
    for name in ("labels.safetensors", "weights-best.safetensors"):
        if (folder / name).is_file():
            if name.startswith("labels"):
                return tuple(metadata(folder / name)["class_names"])
            return tuple(map(str, _weights_header(folder)["class_names"]))
    raise FileNotFoundError(f"{folder}: no epoch is done yet; resume the run first")


def _weights_header(folder: Path) -> dict[str, Any]:
    """What a run's weights say of themselves; nothing where there are none yet."""
    from safetensors import safe_open

    path = folder / "weights-best.safetensors"
    if not path.is_file():
        return {}
    with reading(path, "a run's weights"), safe_open(str(path), framework="np") as file:
        found = json.loads((file.metadata() or {})["onelabel"])
        if not isinstance(found["class_names"], list):
            raise TypeError(f"class_names {found['class_names']!r:.40}, expected a list")
        return dict(found)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    with reading(path, "a run's numbers", remedy="resume the run"):
        return dict(json.loads(path.read_text(encoding="utf-8")))
