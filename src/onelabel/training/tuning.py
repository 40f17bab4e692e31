"""Settings whose best value depends on the data, found before the linear phase.

Some follow from labels alone (`Method.read_off`), others are tried as linear probes (`Method.trials`).
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


def tune(
    config: TrainConfig, feeds: dict[str, Feed], phase: Phase, fabric: Any, *, teaches: bool = False
) -> dict[str, float]:
    """What held-out rows say of the settings that the config leaves open; {} where they cannot tell, or nothing is.

    Args:
        teaches: a student follows. A method by itself is judged by the held-out rows' mAP as it is.
    """
    cls, held, found = method_info(config.method).cls, feeds.get("validation"), {}
    if held is None or config.select not in BY_VALIDATION:
        return {}
    if teaches and config.student_annotators == "auto" and held.true is not None:
        names = names_of(feeds["train"].part.observed)
        read = cls.read_off(names, torch.as_tensor(held.true).cpu()) if names.any() else {}
        found = {name: value for name, value in read.items() if name not in config.hyper}
    if found:
        told = ", ".join(f"{name} = {value:g}" for name, value in found.items())
        say(f"{config.method}: {told} by how annotators named, where held-out rows have all labels")
    trials = cls.trials(feeds["train"].num_classes, frozen=config.mode == "linear")
    trials = {name: values for name, values in trials.items() if name not in config.hyper}
    if trials and (held.true is not None or draws(held)):
        found |= _tried(config, {**config.hyper, **found}, trials, feeds, phase, fabric)
    return found


def _tried(
    config: TrainConfig,
    hyper: dict[str, Any],
    trials: dict[str, tuple[float, ...]],
    feeds: dict[str, Feed],
    phase: Phase,
    fabric: Any,
) -> dict[str, float]:
    """Of `trials`, those under which linear probes on the features of `feeds` do best on held-out rows.

    By their true labels where they have them, else by the likelihood of their one observed label.
    """
    from onelabel.probes import fit_probes, grid  # which train by this room's means

    held = feeds["validation"]
    asked: dict[str, Any] = {**{name: [value] for name, value in hyper.items()}, **trials}
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
    chosen = specs[int(fabric.broadcast(best))].hyper
    found = {name: float(chosen[name]) for name in trials}
    told = ", ".join(f"{name} = {value:g} of {trials[name]}" for name, value in found.items())
    say(f"{config.method}: {told} is the best on held-out rows, by linear probes")
    return found
