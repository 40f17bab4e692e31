"""What `onelabel bench` does: plan, say what it costs, make the runs that are missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onelabel.bench import datasets
from onelabel.bench.draws import PUBLISHED
from onelabel.bench.measure import hardware
from onelabel.bench.plan import Planned, cost, make_plan
from onelabel.bench.protocols import applied, protocol
from onelabel.bench.recipe import K, differing, list_recipes, recipe, takes
from onelabel.bench.results import Row
from onelabel.bench.runner import Tally, check_parts, run
from onelabel.bench.store import look
from onelabel.bench.sweeps import find_sweep, settings_of, sweep
from onelabel.contract import list_methods, method_info
from onelabel.contract import method as make_method
from onelabel.data import FeatureDataset, Splits
from onelabel.training.config import TrainConfig


def plan_for(
    dataset: str,
    *,
    methods: Sequence[str] = (),
    modes: Sequence[str] = ("linear",),
    seeds: Sequence[int] = (0, 1, 2),
    draws: Sequence[str] = (PUBLISHED,),
    sweeps: Sequence[str] = (),
    protocol_name: str = "onelabel",
    settings: Mapping[str, Any] | None = None,
    hyper: Mapping[str, Any] | None = None,
    k: float | None = None,
    search: bool | None = None,
    search_hyper: bool = False,
) -> list[Planned]:
    """The runs that the command line asks for: tables' or sweeps'. Settings that cannot be are an error here, once.

    `hyper` is of the methods that take it.
    """
    TrainConfig.make(settings or {})
    common: dict[str, Any] = {"seeds": seeds, "protocol_name": protocol_name, "settings": settings, "search": search}
    common["k"] = k
    if sweeps and (search_hyper or hyper):
        raise ValueError("a sweep has settings of its own: --search hyper and --hyper without it")
    if sweeps:
        return [p for name in sweeps for mode in modes for p in sweep(name, dataset, mode=mode, **common)]
    common |= {"modes": modes, "draws": draws, "search_hyper": search_hyper}
    names = methods or list_methods()
    plans = [make_plan(dataset, [name], hyper=_taken(name, hyper or {}, names), **common) for name in names]
    return [p for plan in plans for p in plan]


def _taken(name: str, hyper: Mapping[str, Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """Of settings by hand those a method takes, checked; one that no method of the plan takes is an error."""
    methods = [each.partition(":")[0] for each in names]
    for key in hyper:
        if not any(takes(method, key) for method in methods):
            known = sorted({other for method in methods for other in method_info(method).defaults})
            raise ValueError(f"--hyper: no method here takes {key!r}; they take {', '.join(known) or 'none'}")
    mine = {key: value for key, value in hyper.items() if takes(name.partition(":")[0], key)}
    make_method(name.partition(":")[0], **mine)
    return {key: [value] for key, value in mine.items()}


def summary(plan: Sequence[Planned], out: str | Path, device: str | None = None) -> str:
    """The protocol, what is planned, and the cost of it."""
    import torch

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    told = [*applied(plan), *_planned(plan), *_without_k(plan), str(cost(plan, _rows(out), hardware(where)))]
    return "\n".join(told)


def _planned(plan: Sequence[Planned]) -> list[str]:
    """A plan in words, a line a mode: methods, how many settings each, draws, shares of the rows, seeds."""
    lines = []
    for mode in dict.fromkeys(p.mode for p in plan):
        mine = [p for p in plan if p.mode == mode]
        cells = {(p.name, json.dumps([p.hyper, p.settings], sort_keys=True, default=str)) for p in mine}
        each = Counter(name for name, _ in cells)
        words = [name for name in dict.fromkeys(p.dataset for p in mine) if name != datasets.without_mark(name)]
        words += [", ".join(dict.fromkeys(p.name for p in mine)), mode]
        if max(each.values()) > 1:
            words += [" or ".join(map(str, sorted(set(each.values())))) + " settings each"]
        drawn, shares = ({getattr(p, what) for p in mine} for what in ("draw", "fraction"))
        words += [f"draws {', '.join(sorted(drawn))}"] if drawn != {PUBLISHED} else []
        words += [f"{len(shares)} shares of the rows"] if len(shares) > 1 else []
        lines.append(" · ".join([*words, f"seeds {', '.join(map(str, sorted({p.seed for p in mine})))}"]))
    return lines


def _without_k(plan: Sequence[Planned]) -> list[str]:
    """A line where methods ask for k and nobody has said it."""
    asking = dict.fromkeys(p.name for p in plan if takes(p.method, K) and K not in p.hyper)
    if not asking:
        return []
    return [f"k is not known here: {', '.join(asking)} with the default; -y {K}=K sets it"]


def mean_positives(splits: Splits[Any] | None) -> float | None:
    """k: true labels a training row has; None where nobody knows them."""
    true = None if splits is None else splits.train.true
    return None if true is None else round(float(true.sum(1).mean()), 4)


def open_data(
    source: str, *, name: str = "", root: str | None = None, loader: Mapping[str, Any] | None = None, size: int = 448
) -> tuple[str, Splits[Any] | None]:
    """What rows call the data, and the data where that or k depends on what they hold; a published set is not read.

    `size` is of the pictures of digits-scenes.
    """
    options = dict(loader or {})
    datasets.check_options(source, options)
    called = name or datasets.short_name(source)
    published = datasets.is_published(source, options) and called == datasets.short_name(source)
    if published and list_recipes(called):
        return called, None
    if source == "digits-scenes":
        options.setdefault("size", size)
    splits = load(source, root=root, loader=options)
    return called if published else datasets.marked(called, splits), splits


def load(source: str, *, root: str | None = None, loader: Mapping[str, Any] | None = None) -> Splits[Any]:
    """The data of a benchmark, whose validation and test rows must have their true labels."""
    splits = datasets.load(source, root=root, **(loader or {}))
    check_parts(splits)
    return splits


def work(
    splits: Splits[Any],
    plan: Sequence[Planned],
    *,
    out: str | Path,
    backbone: str = TrainConfig.backbone,
    weights: str | None = None,
    size: int = 448,
    device: str | None = None,
    seconds: float | None = None,
    retry: bool = False,
    told: Any = None,
) -> Tally:
    """Make the missing runs of a plan: linear ones on features as probes, the others on the pictures.

    `backbone` and `size` are those of the plan.
    """
    linear, other = [p for p in plan if p.mode == "linear"], [p for p in plan if p.mode != "linear"]
    pictures = not isinstance(splits.train, FeatureDataset)
    if other and not pictures:
        raise ValueError(
            f"{splits.name} holds features: mode {other[0].mode} needs the pictures; give the dataset itself"
        )
    about: dict[str, Any] = {"device": device, "seconds": seconds, "retry": retry, "told": told, "out": out}
    about["weights"] = "given as features" if not pictures else Path(weights).name if weights else "pretrained"
    total = Tally()
    if linear:
        if pictures:
            features = datasets.as_features(splits, backbone=backbone, weights=weights, size=size, device=device)
        else:
            features = splits
        total = run(linear, features, **about)
    if other:
        machine = {"weights": weights, "device": device or "auto"}
        more = run(other, splits, settings=machine, **about)
        total = Tally(*(getattr(total, f) + getattr(more, f) for f in ("made", "failed", "skipped", "left")))
    return total


def failed(plan: Sequence[Planned], out: str | Path) -> int:
    """How many runs of a plan have failed, now or before."""
    wanted = {p.run_id for p in plan}
    return sum(row.run_id in wanted and not row.done for row in _rows(out))


def _rows(out: str | Path) -> list[Row]:
    try:
        return look(out).rows
    except FileNotFoundError:  # to be made
        return []


def line(row: Row) -> str:
    """A new result in one line, with what tells it from the others of its sweep."""
    words = [row.label, row.mode]
    if row.plan.startswith("sweep:"):
        found = find_sweep(row.plan.removeprefix("sweep:"))
        words += [f"{key}={row.hyper[key]:g}" for key in settings_of(found) if key in row.hyper]
    elif own := differing(row.hyper, recipe(row.dataset, row.label, row.mode, protocol(row.protocol)).hyper):
        words += [own]
    if row.settings.get("lr"):
        words += [f"lr {row.settings['lr']:g} batch {row.settings.get('batch_size')}"]
    where = [f"seed {row.seed}", *([row.draw] if row.draw != PUBLISHED else [])]
    where += [f"{row.fraction:.0%} of the rows"] if row.fraction != 1 else []
    came = [f"validation {row.validation_map:.2f}"] if row.validation_map is not None else []
    came += [f"test {row.test_map:.2f}"] if row.test_map is not None else []
    return f"{' '.join(words)} {', '.join(where)}: {', '.join(came) if row.done else f'failed, {row.error}'}"
