"""Settings from a recipe and from whoever overrides it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onelabel.system import check_schema
from onelabel.training.config import SCHEMA, read_toml

MODES = ("linear", "finetune", "linearinit")
#: What a recipe holds besides settings: words about it, and what only the bench reads.
ASIDE = ("schema_version", "name", "dataset", "notes", "source", "search", "variant")


def settings_from(recipe: str | Path | None, *overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's settings with `overrides` on top, later ones winning.

    A recipe is TOML with the names of `TrainConfig`; a table [train] may hold them instead, [hyper] the method's, and a
    table named after a mode ([linear], with [linear.hyper]) what differs in that mode. Another method than the recipe's
    drops all that is about its method.
    """
    found: dict[str, Any] = {}
    if recipe is not None:
        found = read_toml(recipe)
        check_schema(found.get("schema_version", 1), SCHEMA, recipe)
        for name in ("train", "hyper", *MODES):
            if not isinstance(found.get(name, {}), dict):
                raise ValueError(f"{recipe}: {name} is {found[name]!r:.40}, expected a table [{name}]")
        found = {**{k: v for k, v in found.items() if k != "train"}, **found.get("train", {})}
    modes = {mode: found.pop(mode, {}) for mode in MODES}
    for name in ASIDE:
        found.pop(name, None)
    wanted = [override["mode"] for override in overrides if "mode" in override] or [found.get("mode", "finetune")]
    own = dict(modes.get(str(wanted[-1]), {}))
    hyper = {**found.get("hyper", {}), **own.pop("hyper", {})}
    found |= own | ({"hyper": hyper} if hyper else {})
    for override in overrides:
        if override.get("method", found.get("method")) != found.get("method"):
            found.pop("hyper", None)
        found |= dict(override)
    return found
