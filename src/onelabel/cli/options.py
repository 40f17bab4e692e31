"""What several commands read the same way."""

from __future__ import annotations

import json
from typing import Any


def pairs(given: list[str] | None, option: str) -> dict[str, Any]:
    """NAME=VALUE words; values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for pair in given or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{option}: {pair!r}, expected NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
