"""`method="auto"`: choose among probes on the backbone's features, then train the winner from its probe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onelabel.data import FeatureDataset, Splits
from onelabel.probes.auto import Choice, candidates, choose
from onelabel.system import say
from onelabel.training.config import TrainConfig
from onelabel.training.evaluate import features_of
from onelabel.training.loop import train
from onelabel.training.machine import make_fabric, seed_everything
from onelabel.training.prepare import make_classifier, make_config, make_feeds
from onelabel.training.readable import leave_out_unreadable
from onelabel.training.run import Run
from onelabel.training.teaching import student_lacks


def config_before(splits: Splits[Any], settings: Mapping[str, Any]) -> TrainConfig:
    """The config of `settings` with method "auto" before a method is chosen: its mode above all.

    The winning probe is the linear phase, so that "linearinit" is fine-tuning from it.
    """
    given = dict(settings)
    for name in ("method", "hyper"):
        if given.pop(name, None) not in (None, "auto", {}):
            raise ValueError(f"{name}: method='auto' chooses it; leave it out")
    if given.get("mode") in (None, "linearinit"):
        given["mode"] = "linear" if isinstance(splits.train, FeatureDataset) else "finetune"
    return make_config(None, None, given, splits)


def train_chosen(
    splits: Splits[Any],
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    **settings: Any,
) -> tuple[Run, Choice | None]:
    """Fit the grid of probes, choose by the best criterion the data allows, and train what won.

    Fine-tuning starts from the winning probe's head; in linear mode the winner is trained again under the loop, for a
    run folder. `settings` are those of `train`, less method, hyper and the linear phase that the probes replace. Where
    `resume` finds a run under way it goes on with what was chosen then, and there is no `Choice`.
    """
    config = config_before(splits, settings)
    settings = {name: value for name, value in settings.items() if name not in ("method", "hyper")}
    if resume and out is not None and (Path(out) / "checkpoint" / "latest.json").is_file():
        return train(splits, config=TrainConfig.load(Path(out) / "config.toml"), out=out, resume=True), None
    settings["mode"] = config.mode
    pictures = not isinstance(splits.train, FeatureDataset)
    fabric = make_fabric(config)
    if fabric.world_size > 1:
        raise ValueError("devices: method='auto' chooses in one process; train its winner by name on several")
    seed_everything(config.seed)
    classifier = make_classifier(config, splits, None, None).to(fabric.device)
    feeds = make_feeds(config, splits, fabric.device)
    splits = leave_out_unreadable(splits, feeds, fabric)
    if config.student == "auto" and not student_lacks(config, feeds.get("validation")):
        settings["student"] = "on"  # it gains whatever the teacher (docs/roll-call-measured.md)
    wanted = {name: feeds[name] for name in ("train", "validation") if name in feeds}
    held = {
        name: features_of(classifier, feed, fabric, config) if pictures else classifier.backbone(feed.inputs)
        for name, feed in wanted.items()
    }
    validation = None
    if splits.validation is not None:
        clean = splits.validation.true is not None
        validation = (held["validation"], splits.validation.true if clean else splits.validation.observed)
    choice = choose(
        held["train"],
        splits.train.observed,
        methods=candidates(len(splits.class_names), frozen=config.mode == "linear"),
        validation=validation,
        seeds=(config.seed, config.seed + 1),
        device=fabric.device,
        progress=progress,
    )
    say(f"auto: {choice.reason}")
    if config.mode == "linear":
        settings = {"lr": choice.spec.lr, "batch_size": choice.spec.batch_size, **settings}
    run = train(
        splits,
        method=choice.spec.method,
        hyper=dict(choice.spec.hyper),
        out=out,
        resume=resume,
        model=classifier,
        head=(choice.weight, choice.bias) if config.mode != "linear" else None,
        feeds=feeds,
        fabric=fabric,
        **settings,
    )
    return run, choice
