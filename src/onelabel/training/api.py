"""`evaluate`: a run's classifier on any dataset."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from onelabel.data import Dataset, FeatureDataset, Splits, load_dataset
from onelabel.system import say
from onelabel.training.config import TrainConfig
from onelabel.training.evaluate import mean_ap, score, truth
from onelabel.training.feeds import Feed
from onelabel.training.machine import has_half, make_fabric, precision_of
from onelabel.training.readable import leave_out_unreadable
from onelabel.training.run import Run
from onelabel.training.step import Network


def evaluate(
    run: Run | str | Path,
    data: Splits[Any] | Dataset | FeatureDataset | str | Path,
    *,
    part: str = "test",
    device: str = "auto",
    batch_size: int = 64,
    flip: bool = False,
) -> dict[str, Any]:
    """Score one part of a dataset with a run's best weights.

    Returns:
        `mAP` (percent), `AP` per class name (fractions; NaN where a class has no positive and
        counts for nothing), `rows`, `true` (False where only observed positives could be
        compared with) and `scores`, probabilities N×L.
    """
    from onelabel.metrics import average_precision

    run = run if isinstance(run, Run) else Run.load(run)
    chosen = _part(load_dataset(data) if isinstance(data, (str, Path)) else data, part)
    if run.class_names and tuple(chosen.class_names) != tuple(run.class_names):
        raise ValueError(f"{chosen.name}: its {chosen.num_classes} class names are not those the run was trained on")
    fabric = make_fabric(dataclasses.replace(run.config, device=device, devices=1, nodes=1, strategy="auto"))
    if precision_of(fabric) == "bf16-mixed" and not has_half(fabric.device.type):
        fabric = make_fabric(TrainConfig(device=device, precision="32-true"))
        say("this machine does not multiply in bfloat16, as the run was trained: scored in float32")
    feed = Feed(chosen, fabric.device, size=run.config.size)
    origin = data.origin if isinstance(data, Splits) else str(data) if isinstance(data, (str, Path)) else ""
    chosen = leave_out_unreadable(Splits(chosen.name, chosen, origin=origin), {"train": feed}, fabric).train
    network = Network(run.classifier.to(fabric.device))
    scores: Tensor = score(network, feed, fabric, batch_size=batch_size, flip=flip)
    true, known = truth(feed)
    each = np.asarray(average_precision(scores.cpu(), true.cpu(), empty=run.config.empty_classes))
    return {
        "mAP": mean_ap(scores, feed, empty=run.config.empty_classes),
        "AP": dict(zip(chosen.class_names, each.tolist(), strict=True)),
        "rows": len(chosen),
        "true": known,
        "scores": scores.cpu().numpy(),
    }


def _part(data: Any, part: str) -> Dataset | FeatureDataset:
    if isinstance(data, (Dataset, FeatureDataset)):
        return data
    if part not in data.parts:
        raise ValueError(f"part: {part!r}, expected one of {', '.join(data.parts)} as in {data.name}")
    chosen: Dataset | FeatureDataset = data.parts[part]
    return chosen
