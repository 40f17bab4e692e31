"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `ok`, a `note` (works, with a limit) or `bad` (something wrong), and the remedy."""

    what: str
    level: Level
    found: str
    remedy: str = ""
