"""The demo's steps; each leaves its files under the demo's folder and takes finished ones as they are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.data import Splits, load_dataset
from onelabel.demo.settings import DemoSettings
from onelabel.labels import Labels
from onelabel.probes import Choice
from onelabel.system import need, progress
from onelabel.training import Run, train
from onelabel.training.again import Origin


@dataclass(frozen=True)
class Scenes:
    """The data: observed labels, the same with full labels for reference, and the pictures on disk."""

    splits: Splits[Any]
    full: Splits[Any]
    pictures: Path
    examples: list[str]
    seed: int

    @property
    def present(self) -> float:
        """Digits a training picture, on average."""
        return float(self.splits.train.true.sum(1).mean())


def make_scenes(folder: Path, settings: DemoSettings, seed: int) -> Scenes:
    """Compose the scenes; write the training pictures as a single-label collection would be: a folder per class."""
    draw = 1200 + seed
    splits = load_dataset("digits-scenes", seed=draw, **settings.loader)
    part, pictures = splits.train, folder / "pictures"
    full = replace(splits, train=replace(part, observed=Labels.from_true(part.true, part.class_names)))
    _, known = part.observed.positive_index()
    names = [f"{part.class_names[c]}/{name}.png" for c, name in zip(known, part.source.paths, strict=True)]
    if not pictures.is_dir():
        _write_pictures(pictures, part, names)
    return Scenes(splits, full, pictures, names, draw)


def _write_pictures(folder: Path, part: Any, names: list[str]) -> None:
    """All of them, or no folder."""
    image = need("PIL.Image", "vision")
    with tempfile.TemporaryDirectory(dir=folder.parent) as place, progress("pictures", len(names)) as advance:
        made = Path(place) / folder.name
        for name in part.class_names:
            (made / name).mkdir(parents=True)
        for row, name in enumerate(names):
            image.fromarray(part.source.read(row)).save(made / name, compress_level=1)
            advance(1)
        os.replace(made, folder)


def make_backbone(folder: Path, settings: DemoSettings, seed: int, device: str | None) -> str:
    """Train the small CNN on other scenes of the same handwriting as everybody trains on single labels (AN)."""
    options: dict[str, Any] = {
        "size": settings.size,
        "n_train": settings.before,
        "n_validation": 0,
        "n_test": 0,
        "series": 1,
    }
    scenes = load_dataset("digits-scenes", seed=1200 + seed, **options)
    own = {**settings.training, "epochs": settings.before_epochs, "select": "last"}
    _train(folder / "backbone", scenes, Origin("digits-scenes", None, {**options, "seed": 1200 + seed}),
           method="an", seed=seed, device=device or "auto", **own)  # fmt: skip
    return str(folder / "backbone" / "weights-last.safetensors")


@dataclass(frozen=True)
class Probes:
    """The leaderboard and the choice."""

    choice: Choice
    mAP: dict[str, float]  #: test mAP in percent of each method's best probe by validation, and of full labels
    leaderboard: Path


def compare_probes(
    folder: Path, settings: DemoSettings, scenes: Scenes, weights: str, seed: int, device: str | None
) -> Probes:
    """Every method as a linear classifier on the frozen backbone's features; one on full labels for reference."""
    from onelabel.data.cache import features
    from onelabel.models import build_classifier
    from onelabel.probes.compare import Parts, compare
    from onelabel.probes.role_table import write_rows

    network = build_classifier(10, backbone="small-cnn", weights=weights)
    mean, std = ((buffer.flatten() / 255).tolist() for buffer in (network.mean, network.std))
    made = {
        name: features(
            part, network.backbone, size=settings.size, device=device, mean=mean, std=std,
            cache=folder / "features",
        ).dataset(part)
        for name, part in scenes.splits.parts.items()
    }  # fmt: skip
    train_, held, test = made["train"], made["validation"], made["test"]
    options: dict[str, Any] = {
        "lr": settings.probe_lr, "epochs": settings.probe_epochs, "seeds": 2, "batch_size": 64, "device": device,
    }  # fmt: skip
    parts = Parts(train_.X, train_.observed, (held.X, held.true), (test.X, test.true))
    choice, rows = compare(parts, methods=settings.probes, **options)
    known = Labels.from_true(train_.true, train_.class_names)
    _, reference = compare(Parts(train_.X, known, parts.validation, parts.test), methods=["bce"], **options)
    rows += [{**row, "method": "full labels"} for row in reference]
    best: dict[str, float] = {}
    for row in rows:  # the best by validation of each method comes first
        best.setdefault(row["method"], 100 * row["test_mAP"])
    write_rows(rows, folder / "leaderboard.csv")
    return Probes(choice, best, folder / "leaderboard.csv")


def train_networks(
    folder: Path, settings: DemoSettings, scenes: Scenes, probes: Probes, weights: str, seed: int, device: str | None,
    echo: Callable[[str], Any],
) -> dict[str, Run]:  # fmt: skip
    """Fine-tune the backbone with each method, with full labels for reference, and as `--method auto` does."""
    options = {**settings.loader, "seed": scenes.seed}
    common = {**settings.training, "weights": weights, "seed": seed, "device": device or "auto"}
    runs = {}
    for name in ("full labels", *settings.methods):
        full = name == "full labels"
        origin = Origin("digits-scenes", None, {**options, "drop": "none"} if full else options)
        echo(f"     training {name}")
        data, method = (scenes.full, "bce") if full else (scenes.splits, name)
        runs[name] = _train(folder / "runs" / name.replace(" ", "-"), data, origin, method=method, **common)
    spec = probes.choice.spec
    echo(f"     training {spec.method} from its probe, then a student of what it found")
    head = (probes.choice.weight, probes.choice.bias)
    runs[f"auto ({spec.method})"] = _train(
        folder / "runs" / "auto", scenes.splits, Origin("digits-scenes", None, options),
        method=spec.method, hyper=dict(spec.hyper), head=head, student="on", **common,
    )  # fmt: skip
    return runs


def _train(out: Path, data: Splits[Any], origin: Origin, **settings: Any) -> Run:
    if (out / "result.json").is_file():
        return Run.load(out)
    run = train(data, out=out, resume=True, **settings)
    origin.save(out)
    return run


@dataclass(frozen=True)
class RecoveredLabels:
    """The file, what it says of itself, and, because these scenes' truth is known, what is true."""

    file: Path
    numbers: dict[str, float]

    def text(self) -> list[str]:
        n = self.numbers
        return [
            f"     {n['added']:,.0f} labels added; {n['expected_precision']:.0%} of them expected right, "
            f"{n['precision']:.0%} are; {n['recall']:.0%} of the missing ones found",
            f"     digits a picture: {n['k']:.2f} estimated ({n['k_low']:.2f}–{n['k_high']:.2f}), "
            f"{n['true_k']:.2f} in truth; expected calibration error {n['ece']:.3f}",
        ]


def recover_labels(
    folder: Path, settings: DemoSettings, scenes: Scenes, probes: Probes, weights: str, seed: int, device: str | None
) -> RecoveredLabels:
    """Recover from networks of the chosen method that did not see what they score; compare with the hidden truth."""
    from onelabel.metrics import calibration_error
    from onelabel.recovery import recover
    from onelabel.recovery.networks import held_out_scores

    part, spec = scenes.splits.train, probes.choice.spec
    labels = Labels(part.observed.indptr, part.observed.indices, part.observed.values, 10, list(part.class_names))
    scores = held_out_scores(
        scenes.splits, folds=2, seed=seed, out=folder / "folds", method=spec.method, hyper=dict(spec.hyper),
        weights=weights, device=device or "auto", **settings.training,
    )  # fmt: skip
    done = recover(
        None, labels, folder / "recovered.parquet", scores=scores, examples=scenes.examples, root="pictures",
        seed=seed, floor=0.01, precision=None,
    )  # fmt: skip
    true, observed = part.true.astype(bool), labels.to_dense() > 0
    added = (done.labels().to_dense() > 0) & ~observed
    probability = np.zeros(true.shape)  # entries below the floor are not written
    for columns in done.file.batches():
        probability[columns["row"], columns["class_index"]] = columns["probability"]
    hidden, (low, high) = ~observed, done.k_interval
    numbers = {
        "added": float(added.sum()),
        "expected_precision": float(probability[added].mean()) if added.any() else float("nan"),
        "precision": float(true[added].mean()) if added.any() else float("nan"),
        "recall": float(added[hidden & true].mean()),
        "k": done.k,
        "k_low": low,
        "k_high": high,
        "true_k": float(true.sum(1).mean()),
        "ece": float(calibration_error(probability, true, mask=hidden)),
    }
    return RecoveredLabels(done.file.path, numbers)
