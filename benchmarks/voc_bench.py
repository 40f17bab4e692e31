"""VOC 2012 fine-tuned through the bench, from shards of the original pictures, on a machine with a GPU.

    PYTHONPATH=src python3 benchmarks/voc_bench.py --shards DIR --labels labels.npz \
        --weights resnet50-v1-imagenet.safetensors --out $OUT/bench --runs "an:0,1 em gr:0,1,2 role@linearinit:0"

A word of --runs is NAME[@MODE][%DRAW][~SETTING=VALUE…][:SEED,…]: a method, METHOD/VARIANT for an ablation of its
recipe, or `all` that were published (of another draw all that it changes), fine-tuned with seed 0 on the published
draw and with the protocol's settings unless said otherwise; a draw's colons are written as commas (%biased,1).
--sweep NAME adds a sweep of `onelabel bench sweeps`. DIR holds shards of ../shared/data/pack_voc.py, also in
subfolders. Pictures are decoded once and stay on the device; one classifier serves all runs, so its step is compiled
once. Several such processes may share --out, each run is claimed once; with --decoded FILE (on /dev/shm) the first
leaves the decoded pictures for the others. Runs that have a row, in --out or in --done, are not made again. `--dry`
says what is left and stops, without pictures or a GPU:

    python benchmarks/voc_bench.py --dry --done docs/results/bench --runs "all%biased,1:0,1,2 all%biased,-1:0,1,2"

--random N takes N random pictures a part instead: what is compiled for them serves the real ones after.
`benchmarks/lent.sh` does all of it on a machine that is lent by the call.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from _voc import random_splits, voc_splits

#: Methods of this project, which `all` leaves out: they are trained in another mode.
OWN = {"roll-call"}


class Asked(NamedTuple):
    """What a word of --runs asks for."""

    name: str
    mode: str
    draw: str
    settings: dict[str, Any]
    seeds: list[int]


def parse_runs(text: str) -> list[Asked]:
    """ "em:0,1 gr/pseudo@linearinit%biased,2~stop=1" as runs."""
    from onelabel import list_methods
    from onelabel.bench.draws import supervision_of

    runs = []
    for word in text.split():
        rest, _, seeds = word.partition(":")
        rest, *settings = rest.split("~")
        rest, _, draw = rest.partition("%")
        name, _, mode = rest.partition("@")
        numbers = [int(seed) for seed in (seeds or "0").split(",")]
        where = mode or "finetune", draw.replace(",", ":") or "uniform1200"
        names = [name.replace("/", ":")] if name != "all" else [each for each in list_methods() if each not in OWN]
        if name == "all" and draw:  # who is told all labels has the same in every draw
            names = [each for each in names if supervision_of(each) != "full"]
        runs += [Asked(each, *where, dict(map(parse_setting, settings)), numbers) for each in names]
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
    parser.add_argument("--shards", type=Path, help="searched with its subfolders")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--random", type=int, metavar="N", help="N random pictures a part instead, to compile ahead")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", help="a results folder (shared by processes), or a database's URL")
    parser.add_argument("--done", type=Path, help="results whose finished runs are not made again")
    parser.add_argument("--dry", action="store_true", help="say which runs are left, and stop")
    parser.add_argument("--hardware", default="NVIDIA H200", help="of whose runs in --done a dry run takes the time")
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


def planned(args: argparse.Namespace, done: list[Any]) -> list[Any]:
    """The runs that are asked for and not `done`, in the order of --runs and seed by seed."""
    from onelabel import bench

    plan = []
    own: dict[str, Any] = {"backbone": args.backbone, "size": args.size}
    own |= {"epochs": args.epochs} if args.epochs else {}
    named = f"-first-{args.limit}" if args.limit else f"-random-{args.random}" if args.random else ""
    common: dict[str, Any] = {"protocol_name": args.protocol, "search": False}
    for run in parse_runs(args.runs):
        where: dict[str, Any] = {"modes": [run.mode], "draws": [run.draw], "seeds": run.seeds}
        plan += bench.make_plan("voc2012", [run.name], settings=own | run.settings, **where, **common)
    for name in args.sweep:
        seeds = [int(seed) for seed in args.seeds.split(",")]
        plan += bench.sweep(name, "voc2012", mode="finetune", seeds=seeds, settings=own, **common)
    if not plan:
        raise SystemExit("--runs, --sweep: nothing to do")
    plan = [bench.replace(p, dataset=f"voc2012{named}") for p in plan]
    rows = [row for row in done if row.done]
    made = {row.run_id for row in rows}
    plan = [p for p in dict.fromkeys(plan) if p.run_id not in made and not replaced(p, rows)]
    return plan[::-1] if args.reverse else plan


def replaced(run: Any, rows: list[Any]) -> bool:
    """Whether tables show another row in this run's place, such as one made without early stopping."""
    from onelabel.bench.picking import candidates

    where = {"rules": run.protocol, "draw": run.draw}
    if not candidates([run.row()], run.dataset, run.name, run.mode, **where):  # with settings that are no table's
        return False
    return run.seed in {row.seed for row in candidates(rows, run.dataset, run.name, run.mode, **where)}


def main() -> None:
    began, args = time.perf_counter(), arguments()
    if args.dry:
        dry(args)
        return
    if args.out is None or (args.random is None and None in (args.shards, args.labels)):
        raise SystemExit("--out, and --shards with --labels (or --random N), say where results go and pictures lie")
    if args.random:
        splits = random_splits(args.random, size=args.size)
    else:
        splits = voc_splits(
            args.shards, args.labels, size=args.size, processes=args.processes, decoded=args.decoded, limit=args.limit
        )

    # after the decoders, which are forked: these have threads
    import torch

    from onelabel import bench
    from onelabel.models import build_classifier
    from onelabel.training import Feed
    from onelabel.training.config import TrainConfig
    from onelabel.training.machine import make_fabric

    plan = planned(args, finished(args))
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


def finished(args: argparse.Namespace) -> list[Any]:
    """The rows of --done."""
    from onelabel import bench

    return bench.read(args.done) if args.done else []


def dry(args: argparse.Namespace) -> None:
    """What is left to do, and how long it takes by the runs in --done."""
    from onelabel import bench
    from onelabel.bench.plan import expected

    rows = finished(args)
    plan = planned(args, rows)
    for p in plan:
        seconds = expected(p, rows, args.hardware)
        print(f"{p.name:16s} {p.mode} {p.draw} seed {p.seed}" + ("" if seconds is None else f"  about {seconds:.0f} s"))
    print(bench.cost(plan, rows, args.hardware))


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
