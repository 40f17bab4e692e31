"""The bench: recipes, protocols, plans of runs, their results, and the papers' tables made from them.

plan = bench.make_plan("voc2012", ["an", "em", "gr"], modes=["linear"], seeds=[0, 1, 2])
bench.run(plan, splits, out="results")
rows = bench.read("results")
"""

from __future__ import annotations

from dataclasses import replace

from onelabel.bench.plan import Planned, cost, make_plan
from onelabel.bench.protocols import PROTOCOLS, Protocol, protocol
from onelabel.bench.recipe import list_recipes, recipe
from onelabel.bench.results import Row, find, gather, pack, read, write
from onelabel.bench.runner import Tally, run
from onelabel.bench.sweeps import SWEEPS, sweep

__all__ = [
    "PROTOCOLS",
    "SWEEPS",
    "Planned",
    "Protocol",
    "Row",
    "Tally",
    "cost",
    "find",
    "gather",
    "list_recipes",
    "make_plan",
    "pack",
    "protocol",
    "read",
    "recipe",
    "replace",
    "run",
    "sweep",
    "write",
]
