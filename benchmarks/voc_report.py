"""Whole VOC 2012 fine-tunings for the report, on a machine with a GPU: run folders without their weights, in one file.

    PYTHONPATH=src python3 benchmarks/voc_report.py --shards DIR --labels labels.npz \
        --weights resnet50-v1-imagenet.safetensors --out $OUT/voc-runs.tar.xz

ResNet-50, 448 px, the published split and label draw, the recipes' settings, recording on; one classifier serves all
runs, so its step is compiled once. AN stops after two epochs without a better validation mAP. Of each run the loss
landscape around its weights is computed too, while they are here. A cold H200 took 27 s to begin, 138 s for GR's eight
epochs (about 70 of them compiling, 4 an epoch, the rest validation, checkpoints and scores) and 11 s for its landscape.
The page is made of the file by `tests/report/voc.py`, on any machine.
"""

from __future__ import annotations

import argparse
import gc
import tarfile
import time
from pathlib import Path
from typing import Any

from _voc import voc_splits

RECIPES = Path(__file__).parents[1] / "recipes" / "voc2012"
STOP = {"an": 2}  #: epochs without a better validation mAP
WANTED = ("config.toml", "environment.json", "data.json", "metrics.jsonl", "result.json", "recording.safetensors")
WANTED += (
    "landscape.safetensors",
    "scores-train.npy",
    "scores-validation.npy",
    "scores-test.npy",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a .tar.xz file")
    parser.add_argument("--runs", type=Path, default=Path("/tmp/voc-report"), help="the whole run folders")
    parser.add_argument("--decoded", type=Path, help="a file for the decoded pictures that processes share")
    parser.add_argument("--methods", default="gr,an")
    parser.add_argument("--seconds", type=float, default=150.0, help="begin no further run after this")
    parser.add_argument("--grid", type=int, default=15, help="of the landscapes; 0 for none")
    parser.add_argument("--rows", type=int, default=48, help="pictures a landscape is computed on")
    parser.add_argument("--span", type=float, default=0.5, help="of the landscapes' directions")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--epochs", type=int, help="instead of the recipes'")
    parser.add_argument("--limit", type=int, help="use only so many rows of each part, to try the script out")
    parser.add_argument("--cuda-graph", default="auto", choices=["auto", "off"])
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    began = time.perf_counter()
    splits = voc_splits(args.shards, args.labels, size=args.size, decoded=args.decoded, limit=args.limit)

    import torch

    from onelabel.models import build_classifier
    from onelabel.training import Feed, TrainConfig, train
    from onelabel.training.again import Origin
    from onelabel.training.machine import make_fabric
    from onelabel.training.recipes import settings_from

    common: dict[str, Any] = {
        "mode": "finetune",
        "backbone": args.backbone,
        "size": args.size,
        "device": args.device,
        "cuda_graph": args.cuda_graph,
        "record": "on",
        "logger": "none",
        "weights": None if args.weights is None else args.weights.name,
    }
    common |= {"epochs": args.epochs} if args.epochs else {}
    fabric = make_fabric(TrainConfig.make({"device": args.device}))
    feeds = {name: Feed(part, fabric.device, size=args.size) for name, part in splits.parts.items()}
    classifier = build_classifier(len(splits.class_names), backbone=args.backbone, weights=args.weights)
    classifier.to(fabric.device)
    start = {name: value.clone() for name, value in classifier.state_dict().items()}

    def told(text: str) -> None:
        print(f"{time.perf_counter() - began:5.0f} s  {text}", flush=True)

    told("ready")
    made = []
    for method in args.methods.split(","):
        if made and time.perf_counter() - began > args.seconds:
            told(f"no time left for {method}")
            continue
        classifier.load_state_dict(start)
        torch.manual_seed(0)
        classifier.head.reset_parameters()  # type: ignore[operator]
        settings = settings_from(RECIPES / f"{method}.toml", common, {"stop": STOP.get(method, "none")})
        made.append(args.runs / method)
        run = train(splits, out=made[-1], resume=True, model=classifier, feeds=feeds, fabric=fabric, **settings)
        Origin("voc2012").save(made[-1])
        speed = max(run.result["images_per_second"])
        test, best = run.result["test_mAP"], run.result["best_epoch"] + 1
        told(f"{method}: test mAP {test:.2f}, epoch {best} of {len(run.history)}, {speed:,.0f} img/s")
        del run
        gc.collect()  # captured graphs and optimisers hold the device's memory in cycles
        pack(args.out, made)
    if args.grid:
        from onelabel.report.figures.surface import run_surface
        from onelabel.report.runs import read_runs

        for view in read_runs(made):
            run_surface(view, data=splits, rows=args.rows, grid=args.grid, span=args.span)
            told(f"{view.label}: landscape")
        pack(args.out, made)
    told(f"{args.out}: {args.out.stat().st_size:,} bytes")


def pack(target: Path, runs: list[Path]) -> None:
    """The small files of run folders as one archive."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    with tarfile.open(temporary, "w:xz") as archive:
        for run in runs:
            for name in WANTED:
                if (run / name).is_file():
                    archive.add(run / name, f"{run.name}/{name}")
    temporary.replace(target)


if __name__ == "__main__":
    main()
