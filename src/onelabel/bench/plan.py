"""Plans: which runs, under which protocol, on which draws; what they cost."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onelabel.bench.draws import PUBLISHED, check_draw, supervision_of
from onelabel.bench.protocols import GRID_BATCH, GRID_LR, protocol
from onelabel.bench.recipe import Recipe, product, recipe
from onelabel.bench.results import Row
from onelabel.contract import method_info

Hyper = Mapping[str, Any]
#: What settings mean that a plan does not say: as published, and as rows were made before training had more to offer.
UNSAID = {"empty_classes": "zero", "student_annotators": "off", "student_context": "off"}
#: Runs by which the next is timed; older ones may be of a busier machine or of slower code.
LATEST = 12


@dataclass(frozen=True)
class Planned:
    """One run to make. Its identity (`run_id`) is all of it but the plan it belongs to."""

    dataset: str
    method: str
    name: str
    hyper: Hyper
    mode: str
    seed: int
    settings: Mapping[str, Any]
    draw: str = PUBLISHED
    supervision: str = "positive"
    protocol: str = "onelabel"
    fraction: float = 1.0
    plan: str = field(default="", compare=False)

    @property
    def run_id(self) -> str:
        what = [self.dataset, self.method, self.name, self.hyper, self.mode, self.seed, self.settings, self.draw]
        what += [self.supervision, self.protocol, self.fraction]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:10]
        return f"{_plain(self.dataset)}-{self.mode}-{_plain(self.name)}-s{self.seed}-{digest}"

    def __hash__(self) -> int:
        return hash(self.run_id)

    def __str__(self) -> str:
        share = f", {self.fraction:.0%} of the rows" if self.fraction != 1 else ""
        where = "" if self.draw == PUBLISHED else f", {self.draw}"
        rate = f"lr {self.settings['lr']:g} " if self.settings.get("lr") else ""
        return f"{self.name} {self.mode} {rate}seed {self.seed}{where}{share}"

    def row(self, **values: Any) -> Row:
        """A result of this run."""
        mine = {name: getattr(self, name) for name in _ROW}
        return Row(run_id=self.run_id, **{**mine, **values})


_ROW = tuple(f.name for f in dataclasses.fields(Planned))


def make_plan(
    dataset: str,
    methods: Iterable[str],
    *,
    modes: Sequence[str] = ("linear",),
    seeds: Sequence[int] = (0, 1, 2),
    draws: Sequence[str] = (PUBLISHED,),
    protocol_name: str = "onelabel",
    fractions: Sequence[float] = (1.0,),
    hyper: Mapping[str, Sequence[Any]] | None = None,
    k: float | None = None,
    settings: Mapping[str, Any] | None = None,
    search: bool | None = None,
    search_hyper: bool = False,
    supervision: str | None = None,
    plan: str = "table",
) -> list[Planned]:
    """Every combination, settings taken from the recipes.

    Args:
        methods: names of the catalogue, or METHOD:VARIANT for a recipe's ablation.
        hyper: settings of the method to vary, a list of values each, on top of the recipe's.
        k: the data's mean number of positives, for methods that ask where no recipe says it.
        settings: settings of `train` on top of the recipe's, such as epochs.
        search: try the protocol's grid of learning rates and batch sizes; None does in the modes the protocol says.
        search_hyper: try every point of the recipe's search of the method's settings, too.
    """
    rules = protocol(protocol_name)
    made: list[Planned] = []
    for name, mode in itertools.product(methods, modes):
        found = recipe(dataset, name, mode, rules, k)
        searched = mode in rules.search if search is None else search
        points = found.grid() if search_hyper else [found.hyper]
        for cell, point, values in itertools.product(_cells(found, searched), points, product(hyper or {})):
            chosen = {**found.settings, **cell, **(settings or {})}
            for draw, fraction, seed in itertools.product(map(check_draw, draws), fractions, seeds):
                labels = supervision or supervision_of(found.method, draw)
                what = (dataset, found.method, name, {**point, **values}, mode, int(seed), chosen)
                why = plan if point == found.hyper else "search"
                made.append(Planned(*what, draw, labels, protocol_name, fraction, why))
    return made


def _cells(found: Recipe, searched: bool) -> list[dict[str, Any]]:
    if not searched:
        return [{}]
    rates, sizes = found.search.get("lr", GRID_LR), found.search.get("batch_size", GRID_BATCH)
    return [{"lr": float(lr), "batch_size": int(size)} for lr, size in itertools.product(rates, sizes)]


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=+]+", "_", text).strip("_")[:40]


@dataclass(frozen=True)
class Cost:
    """What is left of a plan."""

    total: int
    done: int
    failed: int
    seconds: float | None  #: of what is left, one after another; None where nothing like it was ever timed here

    def __str__(self) -> str:
        left = self.total - self.done - self.failed
        words = f"{self.total} runs: {self.done} done, {self.failed} failed, {left} to do"
        if left and self.seconds is not None:
            words += f", about {_duration(self.seconds)} on this machine"
        elif left:
            words += " (nothing like them was timed on this machine yet)"
        return words


def cost(plan: Sequence[Planned], rows: Sequence[Row], hardware: str = "") -> Cost:
    """How much of a plan is finished, and how long the rest takes by the finished ones of the same method and mode."""
    by_id = {row.run_id: row for row in rows}
    mine = [by_id[run.run_id] for run in plan if run.run_id in by_id]
    done = sum(row.done for row in mine)
    left = [run for run in plan if run.run_id not in by_id]
    times = [expected(run, rows, hardware) for run in left]
    known = [t for t in times if t is not None]
    total = None if left and not known else sum(known) * len(left) / max(len(known), 1)
    return Cost(len(plan), done, len(mine) - done, total)


def expected(run: Planned, rows: Sequence[Row], hardware: str = "") -> float | None:
    """Median seconds of the latest runs like this one on this hardware: of its method, else of its mode and views.

    Without what the first run of a process takes longer, which would keep the second from being begun.
    """
    like = [r for r in rows if r.done and r.seconds and r.mode == run.mode and hardware in ("", r.hardware)]
    same = [r for r in like if r.method == run.method]
    values = [_warm(r) for r in sorted(same or like, key=lambda r: r.started)[-LATEST:]]
    if not values:
        return None
    return statistics.median(values) * (1 if same or run.mode == "linear" else views(run.method))


def _warm(row: Row) -> float:
    """A run's seconds had its first epochs (which compile and capture) been as fast as the others of their phase."""
    speeds, pictures = row.extra.get("images_per_second", []), row.rows.get("train", 0)
    phases: dict[str, list[float]] = defaultdict(list)
    for epoch, speed in zip(row.history, speeds, strict=False):
        phases[epoch.get("phase", "")].append(pictures / max(speed, 1e-9))
    slow = sum(max(times[0] - statistics.median(times), 0.0) for times in phases.values())
    return float(row.seconds or 0.0) - slow


def views(method: str) -> int:
    """Pictures a method looks at per example; 1 where the catalogue does not have it."""
    try:
        return method_info(method).needs.views
    except ValueError:
        return 1


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
