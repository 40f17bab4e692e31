"""VOC 2012 fine-tuned through the bench, from shards of the original pictures, on a machine with a GPU.

    PYTHONPATH=src python3 benchmarks/voc_bench.py --shards DIR --labels labels.npz \
        --weights resnet50-v1-imagenet.safetensors --out $OUT/bench --runs "an:0,1 em gr:0,1,2 role@linearinit:0"

A word of --runs is NAME[@MODE][%DRAW][~SETTING=VALUE…][:SEED,…]: a method, or METHOD/VARIANT for an ablation of its
recipe, fine-tuned with seed 0 on the published draw and with the protocol's settings unless said otherwise; a draw's
colons are written as commas (%biased,1). --sweep NAME adds a sweep of `onelabel bench sweeps`. DIR holds shards of
../shared/data/pack_voc.py, also in subfolders. Pictures are decoded once and stay on the device; one classifier serves
all runs, so its step is compiled once. Several such processes may share --out, each run is claimed once; with --decoded
FILE (on /dev/shm) the first leaves the decoded pictures for the others. Runs that have a row are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from _voc import voc_splits


class Asked(NamedTuple):
    """What a word of --runs asks for."""

    name: str
    mode: str
    draw: str
    settings: dict[str, Any]
    seeds: list[int]


def parse_runs(text: str) -> list[Asked]:
    """ "em:0,1 gr/pseudo@linearinit%biased,2~stop=1" as runs."""
    runs = []
    for word in text.split():
        rest, _, seeds = word.partition(":")
        rest, *settings = rest.split("~")
        rest, _, draw = rest.partition("%")
        name, _, mode = rest.partition("@")
        numbers = [int(seed) for seed in (seeds or "0").split(",")]
        named = name.replace("/", ":"), mode or "finetune", draw.replace(",", ":") or "uniform1200"
        runs.append(Asked(*named, dict(map(parse_setting, settings)), numbers))
    return runs


def parse_setting(word: str) -> tuple[str, Any]:
    """ "stop=1" → ("stop", 1); what is no JSON is text."""
    name, _, value = word.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True, help="searched with its subfolders")
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", required=True, help="a results folder (shared by processes), or a database's URL")
    parser.add_argument("--runs", default="")
    parser.add_argument("--sweep", action="append", default=[], help="a sweep's name, fine-tuned; may be repeated")
    parser.add_argument("--seeds", default="0", help="of the sweeps")
    parser.add_argument("--protocol", default="onelabel")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--epochs", type=int, help="for every method; the recipes' unless given")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--eval-batch", type=int, default=64)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--decoded", type=Path, help="a file for the decoded pictures that processes share")
    parser.add_argument("--limit", type=int, help="use only so many rows of each part, to try the script out")
    parser.add_argument("--seconds", type=float, default=560.0, help="begin no run that would end after this")
    parser.add_argument("--gather", type=Path, help="at the end, write all rows of --out into this one file")
    parser.add_argument("--retry", action="store_true", help="make failed runs again")
    parser.add_argument("--beside", type=int, default=0, help="other processes on the same device; the rows say so")
    parser.add_argument("--reverse", action="store_true", help="begin with the last run: for a second process")
    parser.add_argument("--compile", default="auto", choices=["auto", "off"])
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--cuda-graph", default="auto", choices=["auto", "off"])
    return parser.parse_args()


def main() -> None:
    began, args = time.perf_counter(), arguments()
    splits = voc_splits(
        args.shards, args.labels, size=args.size, processes=args.processes, decoded=args.decoded, limit=args.limit
    )

    import torch

    from onelabel import bench
    from onelabel.models import build_classifier
    from onelabel.training import Feed
    from onelabel.training.config import TrainConfig
    from onelabel.training.machine import make_fabric

    plan = []
    own: dict[str, Any] = {"backbone": args.backbone, "size": args.size}
    own |= {"epochs": args.epochs} if args.epochs else {}
    dataset = "voc2012" if not args.limit else f"voc2012-first-{args.limit}"
    common: dict[str, Any] = {"protocol_name": args.protocol, "search": False}
    for run in parse_runs(args.runs):
        where: dict[str, Any] = {"modes": [run.mode], "draws": [run.draw], "seeds": run.seeds}
        plan += bench.make_plan("voc2012", [run.name], settings=own | run.settings, **where, **common)
    for name in args.sweep:
        seeds = [int(seed) for seed in args.seeds.split(",")]
        plan += bench.sweep(name, "voc2012", mode="finetune", seeds=seeds, settings=own, **common)
    plan = [bench.replace(p, dataset=dataset) for p in plan]
    if not plan:
        raise SystemExit("--runs, --sweep: nothing to do")
    if args.reverse:
        plan.reverse()

    machine = {
        "device": args.device,
        "eval_batch_size": args.eval_batch,
        "compile": args.compile,
        "compile_mode": args.compile_mode,
        "cuda_graph": args.cuda_graph,
        "save_scores": False,  # the training set's too: a fine-tuning's rows do without
        "record": "off",
    }
    fabric = make_fabric(TrainConfig.make({"size": args.size, **machine}))
    feeds = {name: Feed(p, fabric.device, size=args.size) for name, p in splits.parts.items()}
    classifier = build_classifier(len(splits.class_names), backbone=args.backbone, weights=args.weights).to(
        fabric.device
    )
    print(bench.protocol(args.protocol), flush=True)

    def told(row: Any) -> None:
        print(line(row), flush=True)
        if args.gather is not None:  # each time: the machine may be taken away before the last
            bench.gather(args.out, args.gather)

    tally = bench.run(
        plan,
        splits,
        out=args.out,
        feeds=feeds,
        fabric=fabric,
        model=classifier,
        settings=machine,
        weights=args.weights.name if args.weights else "random",
        device=str(torch.device(fabric.device)),
        beside=args.beside,
        seconds=args.seconds - (time.perf_counter() - began),
        retry=args.retry,
        told=told,
    )
    print(f"{tally}; {time.perf_counter() - began:.0f} s", flush=True)


def line(row: Any) -> str:
    """A result in one line."""
    if not row.done:
        return f"{row.label:16s} {row.mode} seed {row.seed}  FAILED {row.error}"
    speeds = row.extra.get("images_per_second", [])
    averaged = row.test_map_averaged_flip
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in row.extra.get("seconds", {}).items())
    return (
        f"{row.label:16s} {row.mode} {row.draw} seed {row.seed}  plain {row.test_map:.2f} "
        f"(epoch {row.best_epoch + 1})  averaged, flips {float('nan') if averaged is None else averaged:.2f}  "
        f"{statistics.median(speeds) if speeds else 0:,.0f} img/s  "
        f"{len(speeds)} epochs in {row.seconds:.1f} s ({spent})"
    )


if __name__ == "__main__":
    main()
