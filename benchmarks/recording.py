"""What recording costs: one training step with and without it, and a whole run of each, in one process.

    PYTHONPATH=src python3 benchmarks/recording.py [--device cuda] [--json FILE]

Small-cnn at 64 px, batch 32 and 10 classes on a CPU, in processor time of one thread, which other processes disturb
less; ResNet-50 at 448 px, batch 8 and 20 classes on a GPU, the update captured in a CUDA graph. Blocks of steps of the
two take turns; the share is the median over blocks of the ratio of their times. On a CPU what recording adds to a step
is timed alone too: where the machine is busy that is the steadier number. The goal is under 3%.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch
from _timing import row, write

from onelabel.contract import Method
from onelabel.data import ArraySource, Dataset, Splits
from onelabel.labels import Labels
from onelabel.methods import method as make_method
from onelabel.models import Classifier, build_classifier
from onelabel.training import Feed, TrainConfig
from onelabel.training.machine import make_fabric
from onelabel.training.recording import Recorder
from onelabel.training.session import Phase, Session


def random_splits(rows: int, size: int, classes: int) -> Splits[Any]:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (rows, size, size, 3), dtype=np.uint8)
    first = rng.integers(0, classes, rows)
    true = (rng.random((rows, classes)) < 0.1).astype(np.uint8)
    true[np.arange(rows), first] = 1
    names = tuple(f"class {i}" for i in range(classes))
    labels = Labels.from_classes(first, num_classes=classes, class_names=names)
    return Splits("random", Dataset("random/train", names, ArraySource(pictures), labels, true))


def session(
    network: Classifier, splits: Splits[Any], feed: Feed, fabric: Any, config: TrainConfig, record: bool
) -> Session:
    torch.manual_seed(0)
    made: Method = make_method(config.method).bind(splits.train.observed)
    phase = Phase("finetune", 1, config.batch_size or 1, 1e-5)
    recorder = Recorder(splits, fabric.device) if record else None
    ready = Session(network, made, feed, fabric, config, phase, recorder)
    ready.begin_epoch(0)
    made.begin_epoch(0, 1)
    return ready


def steps(which: Session, count: int, device: str) -> float:
    """Seconds of `count` updates, from the start of an epoch."""
    plan = which.plan(0)
    which.step.begin(plan.order, plan.flips)
    sizes = [s for s in plan.updates if s == which.step.regular][:count]
    if device == "cuda":
        torch.cuda.synchronize()
    clock = time.perf_counter if device == "cuda" else time.process_time
    began = clock()
    for size in sizes:
        which.step(size)
    if device == "cuda":
        torch.cuda.synchronize()
    return (clock() - began) / len(sizes)


def alone(recorder: Recorder, feed: Feed, batch: int, times: int = 500) -> float:
    """Processor seconds of what recording adds to a step: the median of ten parts."""
    index = torch.arange(batch)
    logits, observed, taken = torch.randn(batch, feed.num_classes), feed.observed.rows(index), []
    assert feed.true is not None
    for _ in range(10):
        began = time.process_time()
        for _ in range(times // 10):
            recorder.add(logits, observed, feed.true.index_select(0, index))
        taken.append((time.process_time() - began) / (times // 10))
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--blocks", type=int, default=None, help="blocks of steps that take turns")
    parser.add_argument("--steps", type=int, default=None, help="steps of a block")
    parser.add_argument("--method", default="em")
    parser.add_argument(
        "--compile", default="auto", choices=["auto", "off"], help="off saves a minute on a cold machine"
    )
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    cuda = args.device == "cuda"
    if not cuda:
        torch.set_num_threads(1)
    backbone, size, classes, batch, rows = ("resnet50", 448, 20, 8, 800) if cuda else ("small-cnn", 64, 10, 32, 640)
    count, blocks = args.steps or (50 if cuda else 1), args.blocks or (21 if cuda else 121)
    config = TrainConfig(
        method=args.method,
        backbone=backbone,
        weights="random",
        size=size,
        batch_size=batch,
        device=args.device,
        compile=args.compile,
    ).resolved()
    began = time.perf_counter()

    def told(text: str) -> None:
        print(f"{time.perf_counter() - began:5.1f} s  {text}", flush=True)

    splits = random_splits(rows, size, classes)
    fabric = make_fabric(config)
    feed = Feed(splits.train, fabric.device, size=size)
    network = build_classifier(classes, backbone=backbone, stride="v1" if cuda else "auto")  # as the VOC runs' weights
    told("pictures and network")
    plain, recording = (session(network, splits, feed, fabric, config, record) for record in (False, True))
    for which in (plain, recording):  # one network, compiled once
        steps(which, count, args.device)
        told(f"first steps, recording {'off' if which is plain else 'on'}, graph {which.step.graph is not None}")
    case = f"{backbone}, {size} px, batch {batch}, {classes} classes, {args.method}"
    case += ", not compiled" if cuda and args.compile == "off" else ""
    recorder = recording.recorder
    assert recorder is not None
    one: list[float] = []
    two: list[float] = []
    more: dict[str, Any] = {}
    for block in range(blocks):
        order = (plain, recording) if block % 2 else (recording, plain)
        taken = {id(which): steps(which, count, args.device) for which in order}
        one.append(taken[id(plain)])
        two.append(taken[id(recording)])
        if block and (cuda or block == blocks - 1):
            low, middle, high = statistics.quantiles([b / a for a, b in zip(one, two, strict=True)], n=4)
            more = {"share": middle - 1, "quartiles": [low - 1, high - 1], "blocks": block + 1, "steps": count}
            entry = row(f"step, {case}", statistics.median(two) * 1e3, peers={"without": statistics.median(one) * 1e3})
            write(args.json, "recording", args.device, [entry], **more)
    told(f"recording costs {middle - 1:+.2%} of a step (quartiles {low - 1:+.2%} to {high - 1:+.2%})")
    if not cuda:
        more["alone"] = alone(recorder, feed, batch) / statistics.median(one)
        print(f"timed alone it is {more['alone']:.2%} of a step")
    now = time.perf_counter()
    recorder.end_epoch("finetune", 0)
    more["end_ms"] = 1e3 * (time.perf_counter() - now)
    print(f"and {more['end_ms']:.2f} ms at the end of an epoch")
    write(args.json, "recording", args.device, [entry], **more)


if __name__ == "__main__":
    main()
