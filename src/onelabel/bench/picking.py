"""Which runs a table shows: a method's, under a protocol, with its recipe's settings or the best of those searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onelabel.bench.patience import as_stopped
from onelabel.bench.plan import UNSAID, Planned
from onelabel.bench.protocols import protocol
from onelabel.bench.published import COLUMNS
from onelabel.bench.recipe import K, differing, recipe
from onelabel.bench.results import Found, Row
from onelabel.bench.stats import Cell, cells, chosen, in_reach

NOT_RUN = "not run"


@dataclass(frozen=True)
class Results(Found):
    """Rows, and facts about label matrices (`labels-DATASET.json`) for the tables that need no run.

    `remarks` is what somebody wrote about them (`remarks.md`); `absent` says that there are none at all, and what to
    do; `rules` is the protocol whose runs are shown, `searched` whether the best point of each recipe's grid of the
    method's settings is, instead of the recipe's own.
    """

    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    remarks: str = ""
    absent: str = ""
    rules: str = "onelabel"
    searched: bool = False

    @property
    def which(self) -> dict[str, Any]:
        """What `pick` and `candidates` are to know of it."""
        return {"rules": self.rules, "searched": self.searched}


def candidates(
    rows: Sequence[Row], dataset: str, name: str, mode: str, *, rules: str = "onelabel", draw: str = "uniform1200",
    backbone: str | None = None, searched: bool = False,
) -> list[Row]:  # fmt: skip
    """The runs of a method with its recipe's settings under a protocol, at every rate and batch size of its search.

    `searched` adds the other points of the recipe's search of the method's own settings.

    A run without early stopping counts where the protocol's rule would have kept the same epochs.
    """
    mine = [r for r in _named(rows, dataset, name, mode) if (r.protocol, r.draw) == (rules, draw)]
    mine = [r for r in mine if r.fraction == 1 and backbone in (None, r.settings.get("backbone", "resnet50"))]
    try:
        wanted = recipe(dataset, name, mode, protocol(rules))
    except ValueError:  # a method of a later catalogue
        return mine
    free = {"lr", "batch_size"} if mode in protocol(rules).search else set()
    free |= {"backbone"} if backbone else set()
    free |= {"backbone", "size"} if dataset not in COLUMNS else set()  # a protocol's network is for the papers' data
    fixed = _without(wanted.settings, free)
    mine = [as_stopped(r, fixed.get("stop", "none")) for r in mine]
    points = wanted.grid() if searched else [wanted.hyper]
    dropped = set() if K in wanted.hyper else {K}  # without a recipe k is the data's
    return [r for r in mine if _but(r.hyper, dropped) in points and _without(r.settings, free) == fixed]


def _without(settings: Mapping[str, Any], free: set[str]) -> dict[str, Any]:
    """Settings but for some; unsaid: the protocols' own network, and what any plan means."""
    whole = {"backbone": "resnet50", "size": 448, **UNSAID, **settings}
    return _but(whole, free)


def _but(settings: Mapping[str, Any], dropped: set[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in dropped}


def pick(rows: Sequence[Row], dataset: str, name: str, mode: str, **which: Any) -> Cell | None:
    """The finished runs of a method (see `candidates`); where learning rates were searched, the best cell's."""
    return chosen(candidates(rows, dataset, name, mode, **which))


def still_open(plan: Sequence[Planned], rows: Sequence[Row]) -> list[Planned]:
    """Of a plan the runs without a result whose learning rate and batch size may still win (see `stats.in_reach`).

    A rate or size that was not tried yet is left out as well: try them all with one seed first.
    """
    made = {row.run_id for row in rows if row.done}
    reached: dict[tuple[str, ...], list[tuple[Any, Any]]] = {}
    kept = []
    for p in plan:
        key = (p.dataset, p.name, p.mode, p.protocol, p.draw)
        if key not in reached:
            tried = cells(candidates(rows, p.dataset, p.name, p.mode, rules=p.protocol, draw=p.draw))
            first = [cell.rows[0].settings for cell in in_reach(tried)]
            reached[key] = [(settings.get("lr"), settings.get("batch_size")) for settings in first]
        if p.run_id not in made and (p.settings.get("lr"), p.settings.get("batch_size")) in reached[key]:
            kept.append(p)
    return kept


def settings_of(cell: Cell | None, found: Results, **which: Any) -> str:
    """What a cell was run with, and of how many settings it is the best."""
    if cell is None:
        return "–"
    first = cell.rows[0]
    asked = {**found.which, "rules": first.protocol, "draw": first.draw, **which}
    tried = len(cells(candidates(found.rows, first.dataset, first.label, first.mode, **asked)))
    return run_with(cell, searched=found.searched) + (f" (best of {tried})" if tried > 1 else "")


def run_with(cell: Cell, *, searched: bool = False) -> str:
    """A cell's learning rate and batch size; `searched`: and where its method's settings are not the recipe's."""
    first = cell.rows[0]
    rate = f"{first.settings['lr']:g}, {first.settings.get('batch_size', '–')}" if "lr" in first.settings else "default"
    if not searched:
        return rate
    own = recipe(first.dataset, first.label, first.mode, protocol(first.protocol)).hyper
    return "; ".join(filter(None, (differing(first.hyper, own), rate)))


def _named(rows: Sequence[Row], dataset: str, name: str, mode: str) -> list[Row]:
    return [r for r in rows if (r.dataset, r.label, r.mode) == (dataset, name, mode)]


def why_absent(rows: Sequence[Row], dataset: str, name: str, mode: str) -> str:
    """Why a method has no cell: not run, failed, or run with settings that are not those of the table."""
    mine = _named(rows, dataset, name, mode)
    failed = [r for r in mine if not r.done]
    if failed:
        return f"failed: {failed[0].error[:60]}"
    others = f" so ({len(mine)} run{'s' * (len(mine) > 1)} with other settings)" if mine else ""
    return NOT_RUN + others
