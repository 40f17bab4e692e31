"""Which probes train together: blocks of seeds × cells that share a batch size, cut to the cache or the memory."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from onelabel.contract import Method, method, method_info
from onelabel.labels import Labels
from onelabel.probes.spec import ProbeSpec

#: Bytes of W, its gradient and its two moments that a block may have on a CPU: what a shared L3 holds (measured).
CACHE = 24 << 20
#: Methods that draw random numbers in each step: such a probe draws its own, whatever its company.
RANDOM = frozenset({"pseudo-negative", "smile"})


@dataclass(frozen=True)
class Slice:
    """Cells that one stacked method serves: the same class and static settings, numbers that differ stacked."""

    cells: tuple[ProbeSpec, ...]
    start: int  #: position of the first in the block

    @property
    def stop(self) -> int:
        return self.start + len(self.cells)

    def make(self, seeds: Sequence[int], shape: tuple[int, int]) -> Method:
        """The stacked method, models ordered seed by seed and within a seed cell by cell; `shape` is D, L."""
        first = self.cells[0]
        settings = [_settings(cell) for cell in self.cells]
        stacked = _stackable(first.method)
        hyper: dict[str, Any] = {}
        for name in settings[0]:
            values = [s[name] for s in settings]
            if name in stacked and all(_is_number(v) for v in values) and len(set(values)) > 1:
                hyper[name] = [float(v) for v in values] * len(seeds)
            else:
                hyper[name] = values[0]
        hyper = {k: v for k, v in hyper.items() if v != method_info(first.method).defaults.get(k, _MISSING)}
        if settings[0].get("seed", _MISSING) is None:  # what the method draws at its start
            hyper["seed"] = [seed for seed in seeds for _ in self.cells]
        if settings[0].get("feature_dim", _MISSING) is None:
            hyper["feature_dim"] = shape[0]
        made = method(first.method, **hyper, stack=len(self.cells) * len(seeds))
        refuse(first.method, made, shape)
        return made


@dataclass(frozen=True)
class Block:
    """Seeds × cells trained as one product: `where[s][c]` is the position of that probe in the caller's list."""

    seeds: tuple[int, ...]
    slices: tuple[Slice, ...]
    where: tuple[tuple[int, ...], ...]
    nbytes: int  #: of weights, moments and memory

    @property
    def cells(self) -> tuple[ProbeSpec, ...]:
        return tuple(cell for part in self.slices for cell in part.cells)

    def __len__(self) -> int:
        return len(self.seeds) * len(self.cells)


_MISSING = object()
Key = tuple[Any, ...]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@cache
def _stackable(name: str) -> frozenset[str]:
    """Settings of which each model of a stack may have its own; a table's rank, say, is the stack's."""
    return frozenset(method_info(name).cls.hyperparameters()) & frozenset(method(name)._hyper)


def _settings(spec: ProbeSpec) -> dict[str, Any]:
    """All settings of a probe's method, the defaults and the preset of its name filled in."""
    info = method_info(spec.method)
    return {k: v for k, v in {**info.defaults, **spec.hyper}.items() if k != "stack"}


def _static(spec: ProbeSpec) -> tuple[Any, ...]:
    """What must agree for two probes to share a stacked method."""
    stacked = _stackable(spec.method)
    fixed = tuple(sorted((k, repr(v)) for k, v in _settings(spec).items() if k not in stacked or not _is_number(v)))
    alone = (spec.cell, spec.seed) if spec.method in RANDOM else ()
    return spec.method, fixed, spec.labels, alone


def refuse(name: str, made: Method, shape: tuple[int, int]) -> None:
    """Raise where a method cannot train a linear classifier on frozen features."""
    if made.needs.views > 1:
        raise ValueError(
            f"{name} compares {made.needs.views} views of a picture and frozen features have one: "
            "give it alpha=0 (no consistency term), or train it with onelabel train"
        )
    with torch.random.fork_rng(devices=[]):
        head = made.head(*shape)
    read = type(made).presence is not Method.presence  # what its own linear head does to outputs, probes do too
    if not (head is None or type(head) is nn.Linear or (read and isinstance(head, nn.Linear))):
        fix = "give it bottleneck=False, or " if "bottleneck" in method_info(name).defaults else ""
        raise ValueError(
            f"{name} puts layers of its own before the classifier, so it is no linear probe: "
            f"{fix}train it with onelabel train"
        )


def memory_of(made: Method, rows: int, classes: int) -> int:
    """Bytes that a method keeps per probe: N×L where it remembers entries, with the moments of what it learns."""
    needs = made.needs
    if not (needs.index or needs.scores):
        return 0
    if getattr(made, "estimator", None) is not None and made._hyper.get("estimator") != "table":
        return 12 * rows * int(getattr(made.estimator, "width", 0))
    tables = 3 if getattr(made, "estimator", None) is not None else 2
    return (tables + (1 if needs.scores else 0)) * rows * classes * 4


def plan(
    specs: Sequence[ProbeSpec],
    labels: Mapping[str, Labels],
    dim: int,
    *,
    device: torch.device,
    limit: int,
    block: int | None = None,
    workers: int = 1,
) -> list[Block]:
    """Divide probes into blocks.

    Cells (all but the seed) that have the same seeds and batch size form a rectangle seeds × cells. On a CPU it is cut
    into pieces whose weights and moments stay in the cache; anywhere it is cut to `limit` bytes. A single probe that
    is over the limit is refused with what it needs.
    """
    rows, classes = next(iter(labels.values())).shape
    weights = 4 * 4 * dim * classes
    together: dict[Key, dict[int, int]] = defaultdict(dict)
    first: dict[Key, ProbeSpec] = {}
    for position, spec in enumerate(specs):
        if spec.labels not in labels:
            raise ValueError(f"labels: there is no set {spec.labels!r}; there are {', '.join(map(repr, labels))}")
        key = (spec.cell, spec.seed if spec.method in RANDOM else None)
        if spec.seed in together[key]:
            raise ValueError(f"specs: the probe {spec}, seed {spec.seed} is there twice")
        together[key][spec.seed] = position
        first.setdefault(key, spec)
    rectangles: dict[Key, list[Key]] = defaultdict(list)
    for key, seeds in together.items():
        spec = first[key]
        rectangles[tuple(sorted(seeds)), spec.batch_size, spec.epochs].append(key)
    blocks: list[Block] = []
    for (seeds, _, _), keys in rectangles.items():
        keys.sort(key=lambda key: _static(first[key]))
        runs = [list(run) for _, run in itertools.groupby(keys, key=lambda key: _static(first[key]))]
        costs: dict[Key, int] = {}
        for run in runs:
            made = Slice((first[run[0]],), 0).make((0,), (dim, classes))
            costs.update(dict.fromkeys(run, weights + memory_of(made, rows, classes)))
        for key, cost in costs.items():
            if cost > limit:
                raise MemoryError(
                    f"{first[key].method} on {rows:,}×{classes:,} labels needs {cost / 2**30:.1f} GiB for one probe "
                    f"and {limit / 2**30:.1f} GiB are allowed: use a method without memory (an, em, gr …), fewer rows, "
                    "or raise memory="
                )
        budget = limit if device.type != "cpu" else max(min(CACHE // workers, limit), weights)
        size = block or max(1, budget // weights)
        at_once = max(1, min(len(seeds), size, limit // (workers * max(costs.values()))))
        for s in range(0, len(seeds), at_once):
            some = seeds[s : s + at_once]
            for piece in _cut(runs, costs, max(size // len(some), 1), limit // (len(some) * workers)):
                blocks.append(_block(some, piece, first, together, len(some) * sum(costs[key] for key in piece)))
    return blocks


def _cut(runs: list[list[Key]], cost: Mapping[Key, int], size: int, limit: int) -> list[list[Key]]:
    """Pieces of at most `size` cells and `limit` bytes; a run (one method's cells) is cut only where it must be."""
    pieces: list[list[Key]] = [[]]
    for run in runs:
        if pieces[-1] and (len(pieces[-1]) + len(run) > size or sum(cost[k] for k in pieces[-1] + run) > limit):
            pieces.append([])
        for key in run:
            if pieces[-1] and (len(pieces[-1]) >= size or sum(cost[k] for k in pieces[-1]) + cost[key] > limit):
                pieces.append([])
            pieces[-1].append(key)
    return pieces


def _block(
    seeds: tuple[int, ...],
    keys: list[Key],
    first: Mapping[Key, ProbeSpec],
    together: Mapping[Key, Mapping[int, int]],
    nbytes: int,
) -> Block:
    slices: list[Slice] = []
    for key in keys:
        spec = first[key]
        if slices and _static(slices[-1].cells[0]) == _static(spec):
            slices[-1] = Slice((*slices[-1].cells, spec), slices[-1].start)
        else:
            slices.append(Slice((spec,), slices[-1].stop if slices else 0))
    where = tuple(tuple(together[key][seed] for key in keys) for seed in seeds)
    return Block(seeds, tuple(slices), where, nbytes)
