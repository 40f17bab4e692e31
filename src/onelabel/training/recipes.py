"""Settings from a recipe and from whoever overrides it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onelabel.training.config import read_toml


def settings_from(recipe: str | Path | None, *overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's settings with `overrides` on top, later ones winning.

    A recipe is TOML with the names of `TrainConfig`; a table [train] may hold them instead, and [hyper] the method's.
    Another method than the recipe's drops the recipe's [hyper].
    """
    found: dict[str, Any] = {}
    if recipe is not None:
        found = read_toml(recipe)
        found = {**{k: v for k, v in found.items() if k != "train"}, **found.get("train", {})}
        for name in ("schema_version", "name", "dataset", "notes", "source"):
            found.pop(name, None)
    for override in overrides:
        if override.get("method", found.get("method")) != found.get("method"):
            found.pop("hyper", None)
        found |= dict(override)
    return found
