"""Fine-tuning speed of the real loop beside a plain loop written the way the published code is, in one run.

    PYTHONPATH=src python3 benchmarks/training.py --device cuda [--json FILE]

Random pictures and labels; ResNet-50 at 448 px, batch 8 and 16, unless told otherwise. The plain loop has float32
(cuDNN's TF32 default), NCHW, PyTorch's default Adam, the authors' boolean-mask AN loss with log(p + 1e-5), and a
copy of predictions and loss to the host every step; its pictures already lie normalised on the device, which
favours it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onelabel.data import ArraySource, Dataset, Splits
from onelabel.labels import Labels
from onelabel.models import build_classifier
from onelabel.training import Feed, train


def random_splits(rows: int, size: int, classes: int) -> Splits[Any]:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (rows, size, size, 3), dtype=np.uint8)
    labels = Labels.from_classes(rng.integers(0, classes, rows), num_classes=classes)
    names = tuple(f"class {i}" for i in range(classes))
    return Splits("random", Dataset("random/train", names, ArraySource(pictures), labels))


def ours(splits: Splits[Any], feeds: dict[str, Feed], args: argparse.Namespace, batch: int) -> dict[str, Any]:
    """Images per second of every epoch after the first, which compiles and captures."""
    began = time.perf_counter()
    run = train(
        splits,
        method=args.method,
        feeds=feeds,
        backbone=args.backbone,
        weights="random",
        size=args.size,
        batch_size=batch,
        epochs=args.epochs + 1,
        device=args.device,
        ema=args.ema,
        drop_last=True,
        save_scores=False,
        select="last",
        compile=args.compile,
        compile_mode=args.compile_mode,
        cuda_graph=args.cuda_graph,
    )
    speeds = run.result["images_per_second"][1:]
    return {"img_per_s": statistics.median(speeds), "epochs": speeds, "seconds": time.perf_counter() - began}


def published_loss(logits: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """AN as the authors' programs have it."""
    preds = torch.sigmoid(logits)
    losses = torch.zeros_like(preds)
    losses[observed == 1] = -torch.log(preds[observed == 1] + 1e-5)
    losses[observed == 0] = -torch.log(1.0 - preds[observed == 0] + 1e-5)
    return losses.mean()


def plain(feed: Feed, args: argparse.Namespace, batch: int) -> dict[str, Any]:
    """The published way."""
    device = feed.device
    benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    classifier = build_classifier(feed.num_classes, backbone=args.backbone).to(device).train()
    optimizer = torch.optim.Adam(classifier.parameters(), lr=1e-5)
    assert feed.inputs is not None
    steps = max(3, min(args.plain_steps, feed.rows // batch))
    pictures = classifier.normalise(feed.inputs[: min(feed.rows, 8 * batch)]).contiguous()
    seen: list[Any] = []

    def step(number: int) -> None:
        rows = (torch.arange(batch, device=device) + number * batch) % len(pictures)
        observed = feed.observed.rows(rows).float()
        optimizer.zero_grad()
        logits = classifier(pictures[rows])
        loss = published_loss(logits, observed)
        loss.backward()
        optimizer.step()
        seen.append((loss.item(), torch.sigmoid(logits).detach().cpu().numpy(), observed.cpu().numpy()))

    for number in range(3):
        step(number)
    _wait(device)
    began = time.perf_counter()
    for number in range(steps):
        step(number)
    _wait(device)
    taken = time.perf_counter() - began
    torch.backends.cudnn.benchmark = benchmark
    torch.set_float32_matmul_precision(precision)
    return {"img_per_s": steps * batch / taken}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backbone", default=None)
    parser.add_argument("--size", type=int, default=None)
    parser.add_argument("--batches", default="8,16")
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--method", default="an")
    parser.add_argument("--ema", type=float, default=0.0)
    parser.add_argument("--compile", default="auto", choices=["auto", "off"])
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--cuda-graph", default="auto", choices=["auto", "off"])
    parser.add_argument("--plain-steps", type=int, default=100)
    parser.add_argument("--no-plain", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    args.backbone = args.backbone or ("resnet50" if cuda else "small-cnn")
    args.size = args.size or (448 if cuda else 64)
    args.rows = args.rows or (4096 if cuda else 512)
    splits = random_splits(args.rows, args.size, args.classes)
    feeds = {"train": Feed(splits.train, torch.device(args.device), size=args.size)}
    where = torch.cuda.get_device_name() if cuda else "CPU"
    print(f"{args.backbone}, {args.size} px, {args.method}, {where}, torch {torch.__version__}", flush=True)
    rows = []
    for batch in (int(b) for b in args.batches.split(",")):
        row: dict[str, Any] = {"batch": batch, "ours": ours(splits, feeds, args, batch)}
        if not args.no_plain:
            row["plain"] = plain(feeds["train"], args, batch)
            row["ratio"] = row["ours"]["img_per_s"] / row["plain"]["img_per_s"]
        rows.append(row)
        told = f"batch {batch:3d}: ours {row['ours']['img_per_s']:8,.0f} img/s"
        if "plain" in row:
            told += f"   as published {row['plain']['img_per_s']:8,.0f}   ratio {row['ratio']:.2f}"
        print(f"{told}   (epochs {row['ours']['epochs']}, {row['ours']['seconds']:.0f} s in all)", flush=True)
        if args.json:
            about = {
                "device": where,
                "torch": torch.__version__,
                "settings": {k: str(v) for k, v in vars(args).items()},
            }
            args.json.write_text(json.dumps({**about, "rows": rows}, indent=1))
    if cuda:
        print(f"peak GPU memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
