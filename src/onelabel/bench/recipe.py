"""Recipes: what the papers say about a method on a dataset, as TOML files of the package.

``recipes/<dataset>/<method>.toml`` holds settings of `train` (see `training.recipes`), [hyper], what differs by mode
([linear], [linearinit]), ablations ([variant.NAME], settings on top of [hyper]; a table calls them METHOD:NAME) and the
papers' search grids: [search] of learning rates and batch sizes, [search.hyper] of the method's settings, all
combinations of it; several [[search.hyper]] are the planes of a figure, each around the recipe's values.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onelabel.methods  # noqa: F401  (registers every method)
from onelabel.bench.datasets import without_mark
from onelabel.bench.protocols import Protocol
from onelabel.contract import method_info
from onelabel.training.config import read_toml
from onelabel.training.recipes import MODES, settings_from

FOLDER = Path(__file__).with_name("recipes")
#: Whose ablations hold for datasets without recipes of their own.
MODEL = "voc2012"
K = "expected_positives"


@dataclass(frozen=True)
class Recipe:
    """A method with all its settings for one dataset and mode."""

    name: str
    method: str
    hyper: dict[str, Any]
    settings: dict[str, Any]
    search: dict[str, list[Any]] = field(default_factory=dict)  #: lr and batch_size
    planes: tuple[dict[str, list[Any]], ...] = ()  #: of [search.hyper]

    def grid(self) -> list[dict[str, Any]]:
        """The method's settings at every point of its search, the recipe's own first; no point twice."""
        defaults = method_info(self.method).defaults
        made, seen = [self.hyper], [{**defaults, **self.hyper}]
        for point in (point for plane in self.planes for point in product(plane)):
            hyper = {**self.hyper, **settled(self.method, point)}
            whole = {**defaults, **hyper}  # what is not said is the default
            if whole not in seen:
                made.append(hyper)
                seen.append(whole)
        return made


def product(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the axes' values."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def differing(hyper: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """What settings have that the recipe's own do not."""
    return spelled({key: value for key, value in hyper.items() if own.get(key) != value})


def spelled(settings: Mapping[str, Any]) -> str:
    """Settings as NAME=VALUE."""
    return ", ".join(f"{k}={v:g}" if type(v) in (int, float) else f"{k}={v}" for k, v in settings.items())


def takes(method: str, key: str) -> bool:
    """Whether a method has a setting."""
    return key in method_info(method).defaults


def settled(method: str, point: Mapping[str, Any]) -> dict[str, Any]:
    """A point of a grid in the method's own settings: GR plots b and its threshold τ = −b/w."""
    own = dict(point)
    if method == "gr" and "tau" in own:
        own["w"] = -own["b"] / own.pop("tau")
    return own


def list_recipes(dataset: str) -> list[str]:
    """The methods that have a recipe for a dataset."""
    return sorted(path.stem for path in (FOLDER / without_mark(dataset)).glob("*.toml"))


def recipe_file(dataset: str, method: str) -> Path | None:
    """Where the recipe lies; None where there is none."""
    path = FOLDER / without_mark(Path(dataset).name) / f"{Path(method).name}.toml"
    return path if path.is_file() else None


def variants(dataset: str, method: str) -> dict[str, dict[str, Any]]:
    """A method's ablations by name."""
    path = recipe_file(dataset, method) or recipe_file(MODEL, method)
    found: dict[str, dict[str, Any]] = read_toml(path).get("variant", {}) if path else {}
    return found


def recipe(dataset: str, name: str, mode: str, protocol: Protocol, k: float | None = None) -> Recipe:
    """The settings of METHOD or METHOD:VARIANT under a protocol.

    The protocol's settings, then the recipe's; the number of epochs is the recipe's when fine-tuning (a method's
    schedule belongs to it) and the protocol's otherwise. A dataset without recipes takes the method's
    defaults, for features with what lets it be a probe, and `k` as the expected positives. What a mode fixes is not
    searched in it, and ablations are not searched: they stand beside the recipe's values. A method that has no recipe
    anywhere is searched over the values that its own `hyper` says are worth it.
    """
    if mode not in MODES:
        raise ValueError(f"mode: {mode!r}, expected {', '.join(MODES)}")
    method, _, variant = name.partition(":")
    info = method_info(method)  # an unknown name is answered with the nearest
    path = recipe_file(dataset, method)
    found: dict[str, Any] = settings_from(path, {"mode": mode}) if path else {"mode": mode}
    hyper = dict(found.pop("hyper", {}))
    source = path or recipe_file(MODEL, method)
    worth = {key: each.search for key, each in info.hyper.items() if each.search}
    whole: dict[str, Any] = read_toml(source) if source else {"search": {"hyper": worth}}
    fixed = dict(whole.get(mode, {}).get("hyper", {}))
    if path is None:  # what makes it a method for features is of no dataset
        hyper = {**({K: k} if k is not None and takes(method, K) else {}), **fixed}
    found.pop("method", None)
    if mode != "finetune":
        found.pop("epochs", None)
    if variant:
        known = variants(dataset, method)
        if variant not in known:
            raise ValueError(f"{name}: {method} has no variant {variant!r}; it has {', '.join(known) or 'none'}")
        hyper |= known[variant]
    search = whole.get("search", {})
    return Recipe(
        name,
        method,
        hyper,
        {**protocol.settings(mode), **found},
        {key: list(values) for key, values in search.items() if key != "hyper"},
        () if variant else _planes(search.get("hyper", []), {K, *fixed}),
    )


def _planes(given: Any, fixed: Collection[str]) -> tuple[dict[str, list[Any]], ...]:
    planes = [given] if isinstance(given, dict) else given
    free = [{key: list(values) for key, values in plane.items() if key not in fixed} for plane in planes]
    return tuple(plane for plane in free if plane)
