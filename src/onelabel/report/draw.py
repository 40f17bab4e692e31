"""A figure by name: from the words of a command line to a file."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onelabel.report import style
from onelabel.report.figures import FIGURES, entry

WORDS = {"methods": "METHOD…", "runs": "RUN…", "results": "RESULTS"}
MADE = {
    "methods": "`onelabel methods` lists them",
    "runs": "a run is a folder that `onelabel train` wrote",
    "results": "results are a folder that `onelabel bench` wrote",
}


def draw(name: str, given: Sequence[str], out: str | Path, **options: Any) -> Path:
    """Draw figure `name` from methods, run folders or a results folder, and write it."""
    found = entry(name)
    if unknown := [key for key in options if key not in found.options]:
        settings = ", ".join(found.options) or "none"
        raise TypeError(f"figure {name!r} has no setting {unknown[0]!r}; it takes {settings}")
    if not given:
        raise ValueError(f"figure {name!r} is drawn from {WORDS[found.takes]}: none given; {MADE[found.takes]}")
    for key, default in found.options.items():
        if default is inspect.Parameter.empty and key not in options:
            raise ValueError(f"figure {name!r} needs the setting {key}: --set {key}=VALUE ({key}=)")
    source: Any = list(given)
    if found.takes == "runs":
        from onelabel.report.runs import read_runs

        source = read_runs(given)
    elif found.takes == "results":
        from onelabel.bench.results import read

        source = [row for folder in given for row in read(folder)]
    return style.save(found.draw(source, **options), out)


def listed(*, as_json: bool = False) -> str:
    """What there is to draw, as text or JSON."""
    if as_json:
        rows = [
            {"name": e.name, "from": e.takes, "papers": e.papers, "says": e.says, "settings": list(e.options)}
            for e in FIGURES.values()
        ]
        return json.dumps(rows, ensure_ascii=False)
    width = max(map(len, FIGURES))
    return "\n".join(f"{e.name:<{width}}  {WORDS[e.takes]:<8}  {e.says} [{e.papers}]" for e in FIGURES.values())
