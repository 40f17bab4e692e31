"""Recipes: what the papers say about a method on a dataset, as TOML files of the package.

``recipes/<dataset>/<method>.toml`` holds settings of `train` (see `training.recipes`), [hyper], what differs by mode
([linear], [linearinit]), ablations ([variant.NAME], settings on top of [hyper]; a table calls them METHOD:NAME) and the
papers' search grids ([search], [search.hyper]).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onelabel.methods  # noqa: F401  (registers every method)
from onelabel.bench.protocols import Protocol
from onelabel.contract import method_info
from onelabel.training.config import read_toml
from onelabel.training.recipes import MODES, settings_from

FOLDER = Path(__file__).with_name("recipes")
#: Whose ablations hold for datasets without recipes of their own.
MODEL = "voc2012"


@dataclass(frozen=True)
class Recipe:
    """A method with all its settings for one dataset and mode."""

    name: str
    method: str
    hyper: dict[str, Any]
    settings: dict[str, Any]
    search: dict[str, list[Any]] = field(default_factory=dict)  #: lr and batch_size
    search_hyper: dict[str, list[Any]] = field(default_factory=dict)


def list_recipes(dataset: str) -> list[str]:
    """The methods that have a recipe for a dataset."""
    return sorted(path.stem for path in (FOLDER / dataset).glob("*.toml"))


def recipe_file(dataset: str, method: str) -> Path | None:
    """Where the recipe lies; None where there is none."""
    path = FOLDER / Path(dataset).name / f"{Path(method).name}.toml"
    return path if path.is_file() else None


def variants(dataset: str, method: str) -> dict[str, dict[str, Any]]:
    """A method's ablations by name."""
    path = recipe_file(dataset, method) or recipe_file(MODEL, method)
    found: dict[str, dict[str, Any]] = read_toml(path).get("variant", {}) if path else {}
    return found


def recipe(dataset: str, name: str, mode: str, protocol: Protocol) -> Recipe:
    """The settings of METHOD or METHOD:VARIANT under a protocol.

    The protocol's settings, then the recipe's; the number of epochs is the recipe's when fine-tuning (a method's
    schedule belongs to it) and the protocol's otherwise. A dataset without recipes takes the method's
    defaults, for features with what lets it be a probe.
    """
    if mode not in MODES:
        raise ValueError(f"mode: {mode!r}, expected {', '.join(MODES)}")
    method, _, variant = name.partition(":")
    method_info(method)  # an unknown name is answered with the nearest
    path = recipe_file(dataset, method)
    found: dict[str, Any] = settings_from(path, {"mode": mode}) if path else {"mode": mode}
    hyper = dict(found.pop("hyper", {}))
    if path is None and (model := recipe_file(MODEL, method)):  # what makes it a method for features is of no dataset
        hyper = dict(read_toml(model).get(mode, {}).get("hyper", {}))
    found.pop("method", None)
    if mode != "finetune":
        found.pop("epochs", None)
    if variant:
        known = variants(dataset, method)
        if variant not in known:
            raise ValueError(f"{name}: {method} has no variant {variant!r}; it has {', '.join(known) or 'none'}")
        hyper |= known[variant]
    search = read_toml(path).get("search", {}) if path else {}
    return Recipe(
        name,
        method,
        hyper,
        {**protocol.settings(mode), **found},
        {key: list(values) for key, values in search.items() if key != "hyper"},
        dict(search.get("hyper", {})),
    )
