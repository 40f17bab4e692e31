"""Real runs and real benchmark results on digits-scenes, small for tests, larger for the golden pictures.

python tests/report/material.py FOLDER writes the golden pictures of every figure into docs/figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from onelabel.data import FeatureDataset, Splits, load_dataset
from onelabel.labels import Labels
from onelabel.training import Feed, train
from onelabel.training.again import Origin

METHODS: dict[str, dict[str, Any]] = {"an": {}, "em": {}, "gr": {}, "role": {"expected_positives": 2.1}, "bce": {}}
TINY = {"size": 16, "n_train": 120, "n_validation": 40, "n_test": 60}
LARGE = {"size": 32, "n_train": 2000, "n_validation": 300, "n_test": 1000}


def make_runs(
    folder: Path, options: dict[str, Any], methods: Sequence[str] = tuple(METHODS), **settings: Any
) -> dict[str, Path]:
    """A fine-tuned small-cnn per method; `bce` sees every label."""
    splits = load_dataset("digits-scenes", **options)
    known = Labels.from_true(splits.train.true, splits.train.class_names)
    full = replace(splits, train=replace(splits.train, observed=known))
    common = {
        "mode": "finetune", "backbone": "small-cnn", "size": options["size"], "epochs": 3, "lr": 3e-3,
        "head_lr_scale": 1.0, "batch_size": 32, "augment": "none", "device": "cpu", "logger": "none",
    }  # fmt: skip
    made = {}
    for name in methods:
        made[name] = folder / name
        if (folder / name / "result.json").is_file():
            continue
        method = name.partition(":")[0]
        hyper = METHODS.get(name, settings.get("hyper", {}))
        data = full if name == "bce" else splits
        train(data, method=method, out=folder / name, resume=True, **{**common, **settings, "hyper": hyper})
        Origin("digits-scenes", None, options).save(folder / name)
    return made


def feature_splits(options: dict[str, Any], run: Path | None = None, seed: int = 0) -> Splits[Any]:
    """Features of the scenes: of a run's backbone, or of a small-cnn that learnt nothing."""
    from onelabel.models import build_classifier
    from onelabel.training import Run

    splits = load_dataset("digits-scenes", **options)
    torch.manual_seed(seed)
    network = build_classifier(10, backbone="small-cnn") if run is None else Run.load(run).classifier
    network.eval()
    parts = {}
    for name, part in splits.parts.items():
        feed = Feed(part, torch.device("cpu"), size=options["size"])
        with torch.no_grad():
            batches = feed.batches(torch.arange(feed.rows), 64)
            X = torch.cat([network.backbone(network.normalise(inputs)) for inputs in batches]).numpy()
        parts[name] = FeatureDataset(part.name, part.class_names, X, part.observed, part.true)
    return Splits(splits.name, **parts)


def make_results(folder: Path, splits: Splits[Any], names: Sequence[str], **options: Any) -> Path:
    """Benchmark results: the bench room's own sweeps, run as probes."""
    from onelabel.bench.runner import run
    from onelabel.bench.sweeps import sweep

    common = {"seeds": (0, 1), "search": False, "settings": {"epochs": 4, "batch_size": 16, "lr": 1e-2}}
    for name in names:
        run(sweep(name, "digits-scenes", **{**common, **options}), splits, out=folder, device="cpu")
    return folder


GOLDEN: dict[str, dict[str, Any]] = {
    "curves": {"what": "gradient", "epoch": "end"}, "learning-curves": {}, "positive-loss": {}, "heatmap": {},
    "logits-by-group": {}, "scores-by-group": {}, "wasserstein-epochs": {}, "false-negative-share": {},
    "predictive-values": {}, "unknown-shares": {}, "class-counts": {}, "class-improvement": {}, "wasserstein": {},
    "densities": {}, "gallery": {}, "landscape": {"rows": 128, "grid": 15}, "apl-variants": {"warmup": 3},
}  # fmt: skip


def golden(folder: Path, out: Path) -> None:
    from onelabel.bench.results import read
    from onelabel.report import style
    from onelabel.report.figures import entry
    from onelabel.report.figures.sweeps import found_sweeps
    from onelabel.report.runs import read_runs

    schedule = {"epochs": 8, "schedule": "cosine"}
    runs = make_runs(folder / "runs", LARGE, **schedule)
    variants = {"soft": {}, "hard": {"soft": False}, "beta1": {"beta": 1.0}, "low": {"proportion": 0.1}}
    apl = {
        name: make_runs(folder / "apl" / name, LARGE, ["em-apl"], hyper={"warmup": 3, **hyper}, **schedule)["em-apl"]
        for name, hyper in variants.items()
    }
    for name, settings in GOLDEN.items():
        if name == "curves":
            drawn = entry(name).draw(["an", "em", "gr", "lasd", "asl", "hill"], **settings)
        elif name == "apl-variants":
            drawn = entry(name).draw(read_runs(list(apl.values())), **settings)
        else:
            chosen = list(runs) if name in ("learning-curves", "positive-loss") else ["an", "em", "gr", "role"]
            chosen = ["an", "em"] if name in ("landscape", "wasserstein", "class-improvement", "gallery") else chosen
            drawn = entry(name).draw(read_runs([runs[n] for n in chosen]), **settings)
        style.save(drawn, out / f"{name}.png")
    sweeps = ("em.alpha", "gr.mu", "role.k", "images", "missing")
    splits = feature_splits(LARGE, runs["em"])
    results = read(make_results(folder / "results", splits, sweeps, settings={"epochs": 8, "lr": 1e-2}))
    for name, rows, settings, _ in found_sweeps(results):
        style.save(entry(name).draw(rows, **settings), out / f"{name}{'-' + settings['hyper'] if settings else ''}.png")


if __name__ == "__main__":
    torch.set_num_threads(1)
    golden(Path(sys.argv[1]), Path(__file__).parents[2] / "docs" / "figures")
