"""Training, top to bottom: data, a method and settings in; a run out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from onelabel.contract import Method
from onelabel.data import Dataset, Splits, load_dataset
from onelabel.models import Classifier
from onelabel.models.backbones import SMALL
from onelabel.system import say
from onelabel.training.carried import FILE as CALIBRATION
from onelabel.training.carried import LEAST, calibrate_run, more_rows, usable_rows
from onelabel.training.checkpoint import Checkpoints, Position
from onelabel.training.config import BY_VALIDATION, TrainConfig
from onelabel.training.evaluate import draw_likelihood, mean_ap
from onelabel.training.feeds import Feed
from onelabel.training.machine import make_fabric, precision_of, seed_everything
from onelabel.training.prepare import (
    check_loss,
    explained,
    fresh_method,
    hand_over,
    load_weights,
    make_classifier,
    make_config,
    make_feeds,
    make_recorder,
    selecting,
    staged_inputs,
    subject,
)
from onelabel.training.progress import Bar
from onelabel.training.readable import leave_out_unreadable
from onelabel.training.run import Run, RunFolder, as_begun
from onelabel.training.session import Phase, Session, phases_of
from onelabel.training.sharding import full_state
from onelabel.training.stopping import Best, should_stop
from onelabel.training.student import Student
from onelabel.training.teaching import Start, wants_student
from onelabel.training.tuning import read_off, tune

Feeds = dict[str, Feed]
#: Pixels that a large network learns from in some ten minutes of two CPU cores.
SLOW = 2000 * 448**2


def train(
    data: Splits[Any] | str | Path,
    *,
    method: str | Method | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    config: TrainConfig | Mapping[str, Any] | None = None,
    model: Classifier | None = None,
    head: tuple[Any, Any] | None = None,
    feeds: Feeds | None = None,
    fabric: Any = None,
    **settings: Any,
) -> Run:
    """Train a classifier from observed labels.

    Args:
        data: `Splits`, or what `load_dataset` takes.
        method: a name of `list_methods()`, or a made method; roll call unless said otherwise.
        out: the run folder; None keeps everything in memory.
        resume: go on in `out` where an earlier process stopped; starts afresh where there is nothing.
        config: settings as a whole; `**settings` (see `TrainConfig`) override it.
        model: a classifier to start from instead of building one. head: (weight, bias) to start the head from.
        feeds: splits that are on the device already, by part. fabric: a launched `Fabric`.

    Returns:
        The finished `Run`, its classifier holding the best weights.
    """
    splits = load_dataset(data) if isinstance(data, (str, Path)) else data
    config = as_begun(make_config(config, method, settings, splits), out if resume else None)
    fabric = fabric or make_fabric(config)
    config = replace(config, precision=precision_of(fabric))
    with RunFolder.open(out, config, splits.class_names, fabric, resume=resume) as folder:
        seed_everything(config.seed)
        classifier = make_classifier(config, splits, model, head)
        feeds = feeds or make_feeds(config, splits, fabric.device)
        splits = leave_out_unreadable(splits, feeds, fabric)
        config = selecting(config, feeds.get("validation"))
        folder.recorder = recorder = make_recorder(config, splits, folder, fabric)
        checkpoints = Checkpoints(folder)
        position = checkpoints.position() if resume else Position()
        config = replace(config, hyper={**config.hyper, **position.hyper})
        criterion = fresh_method(config, method, splits, classifier)
        start, trained, own = None, None, feeds
        if wants_student(config, criterion, feeds):
            start = Start(classifier, folder, resumed=config.mode == "linearinit" and position.phase == 1)
            if position.begins and not isinstance(method, Method) and (told := read_off(config, feeds)):
                position.hyper |= told
                config = replace(config, hyper={**config.hyper, **told})
                criterion = fresh_method(config, method, splits, classifier)
        phases = phases_of(config, student=start is not None)
        if fabric.is_global_zero:
            warn_of_the_time(phases, config, feeds["train"], fabric)
            warn_of_few(feeds)
        for number, phase in enumerate(phases):
            if number < position.phase:
                continue
            if phase.name == "student" and not isinstance(criterion, Student):  # resumed in it
                criterion = Student().bind(splits.train.observed)
            if trained is None or phase.name != "student":  # who is taught has what the teacher had
                trained, own = subject(classifier, feeds, criterion, fabric, config, phase)
            if phase.name == "linear" and position.begins and not isinstance(method, Method):
                tried = tune(config, own, phase, fabric)
                if tried:
                    position.hyper |= tried
                    config = replace(config, hyper={**config.hyper, **tried})
                    criterion = fresh_method(config, method, splits, classifier)
                    trained.head = classifier.head
            session = Session(trained, criterion, own["train"], fabric, config, phase, recorder)
            checkpoints.restore(session, position)
            fit(session, own, position, checkpoints, folder)
            if number + 1 < len(phases):
                best = position.bests[tracks(config)[-1]]
                taught = phases[number + 1].name == "student"
                if taught:
                    assert start is not None
                    criterion = start.teach(session, own, best, splits)
                else:
                    if start is not None:
                        start.keep_head(best)
                    criterion = hand_over(classifier, best, criterion, config, method, splits)
                # a student has to be better than its teacher
                position.next_phase(keep=taught and config.select in BY_VALIDATION)
        return finish(session, classifier, own, position, folder)


def fit(session: Session, feeds: Feeds, position: Position, checkpoints: Checkpoints, folder: RunFolder) -> None:
    """The epochs of one phase, from `position` on."""
    config, phase, criterion = session.config, session.phase, session.criterion
    ticked = saved = time.monotonic()
    with Bar(phase.epochs * session.train.rows, show=folder.writes) as bar, folder.saving():
        while position.epoch < phase.epochs and not position.stopped:
            epoch, plan = position.epoch, session.plan(position.epoch)
            session.begin_epoch(epoch)
            if position.update == 0:
                criterion.begin_epoch(epoch, phase.epochs)
            step, done = session.step, plan.done
            step.begin(plan.order, plan.flips, done[position.update])
            staged = staged_inputs(session, plan, position.update)
            title, before = f"{phase.name} {epoch + 1}/{phase.epochs}", epoch * done[-1]
            bar.begin()
            bar.show(title, before + done[position.update])
            for sizes in plan.updates[position.update :]:
                if staged is not None:
                    step.staged.extend(next(staged) for _ in sizes)
                try:
                    step(sizes)
                except (ValueError, torch.OutOfMemoryError) as error:
                    raise explained(error, session, plan, position) from error
                position.update += 1
                bar.rows += sum(sizes)
                now = time.monotonic()
                if now - ticked > config.log_seconds:  # only here, and for a checkpoint, the host waits for the device
                    ticked = now
                    loss = check_loss(session, plan, position)
                    bar.show(title, before + done[position.update], loss)
                due = now - saved > config.checkpoint_seconds and not session.split  # those are gathered by all at once
                due |= config.checkpoint_steps > 0 and position.update % config.checkpoint_steps == 0
                if folder.interrupted or (due and position.update < len(plan.updates)):
                    check_loss(session, plan, position)
                    checkpoints.save(session, position)
                    folder.stop_if_interrupted()
                    saved = now
            loss = check_loss(session, plan, position)
            position.speeds.append(round(bar.speed, 1))
            criterion.end_epoch(lambda: session.scores(feeds["train"]))
            row = {"phase": phase.name, "epoch": epoch, "loss": loss}
            row |= validate(session, feeds.get("validation"), position.bests, epoch, loss)
            position.history.append(row)
            if session.recorder is not None:
                session.recorder.end_epoch(phase.name, epoch)
            name = watched(config, select="mAP" if config.stop == "gr" else None)  # whose 2 points are of mAP
            values = [r[name] for r in position.history if r["phase"] == phase.name and name in r]
            position.epoch, position.update, position.stopped = epoch + 1, 0, should_stop(config.stop, values)
            checkpoints.save(session, position)
            saved = time.monotonic()
            bar.metric = f"  {'likelihood' if 'likelihood' in name else 'mAP'} {values[-1]:.2f}" if values else ""
            bar.show(title, before + done[-1], loss)
            folder.log(row, speed=position.speeds[-1], last=position.stopped or position.epoch == phase.epochs)
            folder.stop_if_interrupted()


def validate(session: Session, feed: Feed | None, bests: dict[str, Best], epoch: int, loss: float) -> dict[str, float]:
    """Score validation with the weights and with their averages; remember whichever epoch is the best of each."""
    config = session.config
    row: dict[str, float] = {}
    for track in tracks(config):
        with session.holding(track):
            values = {"loss": -loss, "last": float(epoch)}
            if feed is not None:
                scores = session.scores(feed)
                if session.recorder is not None:
                    session.recorder.add_validation(scores, feed)
                values["mAP"] = mean_ap(scores, feed, empty=config.empty_classes)
                if config.select == "likelihood":
                    values["likelihood"] = draw_likelihood(scores, feed)
                row |= {watched(config, track, name): values[name] for name in BY_VALIDATION if name in values}
            value = values.get(config.select, float(epoch))
            if value > bests[track].value:
                bests[track] = Best(value, epoch, session.weights(), session.method_state(), session.phase.name)
    return row


def finish(session: Session, classifier: Classifier, feeds: Feeds, position: Position, folder: RunFolder) -> Run:
    """Test each track's best weights, save the scores, leave the best weights in the classifier, and calibrate them."""
    config, last = session.config, session.weights()
    result: dict[str, Any] = {"stopped_early": position.stopped, "images_per_second": position.speeds}
    if position.hyper:
        result["hyper"] = position.hyper
    for track in tracks(config):
        best = position.bests[track]
        load_weights(session.classifier, best.weights)
        found: dict[str, Any] = {"best_epoch": best.epoch}
        if session.phase.name == "student":
            found["best_phase"] = best.phase  # the student's, or still its teacher's
        for part in ("validation", "test"):
            if part in feeds:
                flip = config.flip_test and part == "test" and not session.phase.head_only
                scores = session.scores_flips(feeds[part], flip=flip)
                for suffix, each in zip(("", "_flip"), scores, strict=False):
                    found[f"{part}_mAP{suffix}"] = mean_ap(each, feeds[part], empty=config.empty_classes)
                folder.save_scores(part, scores[-1])
        result[track] = found
    if config.save_scores:
        folder.save_scores("train", session.scores(feeds["train"]))
    result |= found
    warn_of_the_probe(position, config)
    weights = full_state(classifier)
    last = {**weights, **last}  # in the linear phase a head alone was trained
    run = folder.finish(classifier, weights, position.bests[track].method, last, result, position.history)
    if folder.writes and "validation" in feeds:
        held = feeds["validation"].part
        made = calibrate_run(run, run.scores["validation"], held.observed, true=held.true)
        if made is not None:
            say(f"{CALIBRATION}: predict and export give calibrated probabilities, by {made.rows:,} validation rows")
    return run


def warn_of_the_probe(position: Position, config: TrainConfig) -> None:
    """Say so where the linear phase was better on validation than what was fine-tuned from it."""
    linear = [r[watched(config)] for r in position.history if r["phase"] == "linear" and watched(config) in r]
    best = position.bests[tracks(config)[-1]]
    if config.mode == "linearinit" and config.select in BY_VALIDATION and linear and max(linear) > best.value:
        say(
            f"fine-tuning ended below its linear probe on validation ({best.value:.2f}, {max(linear):.2f}): "
            "give it more epochs or larger pictures, or keep the probe with mode 'linear'"
        )


def warn_of_the_time(phases: list[Phase], config: TrainConfig, feed: Feed, fabric: Any) -> None:
    """Say what is quicker where a network learns many large pictures without a GPU; the bar counts one phase alone."""
    epochs = sum(phase.epochs for phase in phases if not phase.head_only)
    slow = epochs * feed.rows * config.size**2 > SLOW and config.backbone not in SMALL
    if slow and isinstance(feed.part, Dataset) and fabric.device.type == "cpu":
        say(
            f"no GPU: {epochs} epochs of {feed.rows:,} pictures of {config.size} px may take hours; --size "
            f"{config.size // 2} takes a quarter of the time, fewer --epochs take less, --mode linear takes minutes"
        )


def warn_of_few(feeds: Feeds) -> None:
    """Say before the hours that what is held out will not do for a calibration."""
    if "validation" in feeds:
        part = feeds["validation"].part
        rows = usable_rows(part.observed, part.true)
        if rows < LEAST:
            more = more_rows(feeds["train"].rows + feeds["validation"].rows)
            say(f"{rows} held-out rows, a calibration of predict's probabilities needs {LEAST}: {more}")


def tracks(config: TrainConfig) -> tuple[str, ...]:
    """Which weights are evaluated; the last is the run's result."""
    return ("plain", "ema") if config.ema else ("plain",)


def watched(config: TrainConfig, track: str | None = None, select: str | None = None) -> str:
    """The validation metric's name in metrics.jsonl; where none is named, that which the run goes by."""
    metric = "likelihood" if (select or config.select) == "likelihood" else "mAP"
    return f"validation_{metric}_ema" if (track or tracks(config)[-1]) == "ema" else f"validation_{metric}"
