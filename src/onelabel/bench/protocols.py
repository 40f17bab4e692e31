"""Protocols: how a benchmark is run, named, printed with every result."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onelabel.bench.published import COLUMNS

#: Rules of early stopping that have a name (`training.stopping`), in words.
STOPPING = {
    "none": "none",
    "em": "at the first epoch that does not improve on validation",
    "gr": "when validation mAP is more than 2 below its best",
}
GRID_LR, GRID_BATCH = (1e-2, 1e-3, 1e-4, 1e-5), (8, 16)


@dataclass(frozen=True)
class Protocol:
    """Everything about a benchmark that is not the method.

    Attributes:
        draw: which labels are observed. split: how validation is held out.
        search: modes in which learning rate and batch size are searched on validation; elsewhere the recipe's hold.
        runs: how many seeds the paper averages. stop: rule of early stopping (`training.stopping`), a number for so
            many epochs of patience.
        head_lr_scale: the head's learning rate relative to the backbone's when fine-tuning.
        ema, flip_test: whether averaged weights and mirrored test pictures are measured beside the plain ones.
    """

    name: str
    source: str
    draw: str = "uniform1200"
    split: str = "published: the last 20% of RandomState(1200).permutation are validation, with all true labels"
    backbone: str = "resnet50"
    size: int = 448
    epochs_linear: int = 25
    epochs_finetune: int = 10
    epochs_linearinit: int = 5
    selection: str = "best epoch and settings by validation mAP"
    search: tuple[str, ...] = ("linear",)
    stop: str | int = "none"
    runs: int = 3
    drop_last: bool = False
    head_lr_scale: float = 1.0
    ema: float = 0.0
    flip_test: bool = False
    notes: str = ""

    def settings(self, mode: str) -> dict[str, Any]:
        """What it asks of `train`; a recipe says more."""
        epochs = {"linear": self.epochs_linear, "finetune": self.epochs_finetune, "linearinit": self.epochs_linearinit}
        if mode not in epochs:
            raise ValueError(f"mode: {mode!r}, expected linear, finetune or linearinit")
        common: dict[str, Any] = {"mode": mode, "epochs": epochs[mode], "drop_last": self.drop_last}
        if mode == "linear":
            return common
        return {
            **common,
            "backbone": self.backbone,
            "size": self.size,
            "stop": self.stop,
            "head_lr_scale": self.head_lr_scale,
            "ema": self.ema,
            "flip_test": self.flip_test,
        }

    @property
    def _stopping(self) -> str:
        if isinstance(self.stop, str):
            return STOPPING[self.stop]
        weights = "the averaged weights'" if self.ema else "the weights'"
        return f"(not linear) after {self.stop} epochs in which {weights} validation mAP has not improved"

    @property
    def _averaged(self) -> str:
        measured = self.ema or self.flip_test
        return f"averaged weights (EMA {self.ema:g} a step) and mirrored test pictures" if measured else ""

    def __str__(self) -> str:
        last = "dropped" if self.drop_last else "kept"
        searched = f"lr and batch searched ({', '.join(self.search)})" if self.search else "lr and batch of the recipe"
        words = [
            f"protocol {self.name} ({self.source}): labels {self.draw}; split {self.split}",
            f"{self.backbone}, {self.size} px; epochs {self.epochs_linear} linear, {self.epochs_finetune} fine-tuned, "
            f"{self.epochs_linearinit} after linear initialisation",
            f"{self.selection}; {searched}; early stopping {self._stopping}; {self.runs} runs",
            f"last incomplete batch {last}; head at {self.head_lr_scale:g}× the backbone's rate",
        ]
        if self._averaged:
            words.append(f"also {self._averaged}")
        return "; ".join([*words, *([self.notes] if self.notes else [])])


PROTOCOLS: Mapping[str, Protocol] = {
    p.name: p
    for p in (
        Protocol(
            "role",
            "Cole et al. 2021",
            search=("linear", "finetune", "linearinit"),
            runs=1,
            drop_last=True,
            notes="its program also drops the last batch of validation and test, and fine-tunes 10 epochs after linear "
            "initialisation where the paper says 5; NUS-WIDE scraped anew, comparable with nobody else's",
        ),
        Protocol(
            "em",
            "Zhou et al. 2022",
            search=("finetune", "linearinit"),
            stop="em",
            notes="not linear in the paper; EM's own lr and batch are printed and in the recipe (--search none), the "
            "others' are not; NUS-WIDE in its official release",
        ),
        Protocol(
            "gr",
            "Chen et al. 2024",
            search=(),
            stop="gr",
            head_lr_scale=10.0,
            notes="fine-tuned alone in the paper, epochs of the recipe (VOC 8); how many runs it averages, and what lr "
            "and batch were chosen from, is not said; NUS-WIDE in its official release",
        ),
        Protocol(
            "lasd",
            "LASD 2024",
            search=("finetune",),
            runs=10,
            notes="fine-tuned alone in the paper; its head's learning rate, early stopping and last batch are not "
            "said; as many pictures of NUS-WIDE as ROLE's",
        ),
        Protocol(
            "onelabel",
            "this project",
            epochs_linearinit=10,
            stop=2,
            head_lr_scale=10.0,
            ema=0.998,
            flip_test=True,
            notes="linear: lr and batch by mean validation mAP over seeds, hyperparameters of the recipe; fine-tuned: "
            "all of the recipe",
        ),
    )
}


def applied(runs: Sequence[Any]) -> list[str]:
    """The protocols of runs (planned or made), a line each, with the draws that were made: in full for the papers'
    datasets, else what applies.
    """
    found = []
    for name in sorted({run.protocol for run in runs}):
        mine = [run for run in runs if run.protocol == name]
        papers = any(run.dataset in COLUMNS for run in mine)
        drawn = replace(protocol(name), draw=_draws(mine))
        found.append(str(drawn) if papers else _of_own_data(drawn, mine))
    return found


def _draws(runs: Sequence[Any]) -> str:
    return ", ".join(sorted({run.draw for run in runs}))


def _of_own_data(rules: Protocol, runs: Sequence[Any]) -> str:
    """Labels, network and epochs as the runs have them; what concerns pictures where the network is trained."""

    def values(key: str, some: Sequence[Any] = runs) -> str:
        return ", ".join(sorted({f"{run.settings[key]}" for run in some if key in run.settings}))

    words = [f"protocol {rules.name} ({rules.source}): labels {rules.draw}"]
    words += [f"{values('backbone')}, {values('size')} px"] if values("backbone") else []
    for mode in sorted({run.mode for run in runs}):
        epochs = values("epochs", [run for run in runs if run.mode == mode])
        words += [f"{mode} {epochs} epochs"] if epochs else []
    words += [rules.selection, f"last incomplete batch {'dropped' if rules.drop_last else 'kept'}"]
    if any(run.mode != "linear" for run in runs):
        words += [f"early stopping {rules._stopping}", f"head at {rules.head_lr_scale:g}× the backbone's rate"]
        words += [f"also {rules._averaged}"] if rules._averaged else []
    return "; ".join(words)


def protocol(name: str) -> Protocol:
    """The protocol of a name; unknown ones are answered with the nearest."""
    if name not in PROTOCOLS:
        near = difflib.get_close_matches(name, PROTOCOLS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"there is no protocol {name!r}; {hint}there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
