"""Settings whose best value depends on the data, found before training.

Some follow from labels alone (`Method.read_off`), others are tried as linear probes before a linear phase
(`Method.trials`).
"""

from __future__ import annotations

from typing import Any

import torch

from onelabel.contract import method_info
from onelabel.system import say
from onelabel.training.config import BY_VALIDATION, TrainConfig
from onelabel.training.evaluate import draws
from onelabel.training.feeds import Feed
from onelabel.training.looking import names_of
from onelabel.training.session import Phase


def read_off(config: TrainConfig, feeds: dict[str, Feed]) -> dict[str, float]:
    """What names and held-out rows with true labels say outright of the settings of a student's teacher.

    A method without a student is left as it is: what finds more labels that were left open does not rank better. So is
    a network that is fine-tuned, unless asked (docs/roll-call-tried.md).
    """
    held, asked = feeds["validation"], config.student_annotators
    if held.true is None or not (asked == "on" or (asked == "auto" and config.mode == "linear")):
        return {}
    names = names_of(feeds["train"].part.observed)
    found = method_info(config.method).cls.read_off(names, torch.as_tensor(held.true).cpu()) if names.any() else {}
    found = {name: value for name, value in found.items() if name not in config.hyper}
    if found:
        told = ", ".join(f"{name} = {value:g}" for name, value in found.items())
        say(f"{config.method}: {told} by what annotators named and held-out rows hold")
    return found


def tune(config: TrainConfig, feeds: dict[str, Feed], phase: Phase, fabric: Any) -> dict[str, float]:
    """The settings under which linear probes on the features of `feeds` do best on held-out rows.

    By their true labels where they have them, else by the likelihood of their one observed label. Only what the config
    leaves open is tried; {} where that is nothing, or where no held-out rows can tell.
    """
    frozen = config.mode == "linear"
    trials = method_info(config.method).cls.trials(feeds["train"].num_classes, frozen=frozen)
    trials = {name: values for name, values in trials.items() if name not in config.hyper}
    held = feeds.get("validation")
    if not trials or held is None or config.select not in BY_VALIDATION:
        return {}
    if held.true is None and not draws(held):
        return {}
    from onelabel.probes import fit_probes, grid  # which train by this room's means

    asked: dict[str, Any] = {**{name: [value] for name, value in config.hyper.items()}, **trials}
    how: dict[str, Any] = {"lr": phase.lr, "batch_size": phase.batch_size, "epochs": phase.epochs}
    specs, best = grid({config.method: asked}, seeds=config.seed, **how), 0
    if fabric.is_global_zero:
        results = fit_probes(
            feeds["train"].inputs,
            feeds["train"].part.observed,
            specs,
            validation=(held.inputs, held.part.observed if held.true is None else held.part.true),
            device=fabric.device,
            drop_last=config.drop_last,
        )
        best = results.best
    hyper = specs[int(fabric.broadcast(best))].hyper
    found = {name: float(hyper[name]) for name in trials}
    told = ", ".join(f"{name} = {value:g} of {trials[name]}" for name, value in found.items())
    say(f"{config.method}: {told} is the best on held-out rows, by linear probes")
    return found
