"""Notebooks kept as scripts (percent format), shown as pages."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
CELL = re.compile(r"^# %%[ \t]*(\[markdown\])?.*$", re.M)


def cells(script: str) -> list[tuple[str, str]]:
    """(kind, text) of every cell: "markdown" or "python"."""
    marks = list(CELL.finditer(script))
    ends = [mark.start() for mark in marks[1:]] + [len(script)]
    found = []
    for mark, end in zip(marks, ends, strict=True):
        text = script[mark.end() : end].strip("\n")
        if mark.group(1):
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())
        found.append(("markdown" if mark.group(1) else "python", text.strip()))
    return [(kind, text) for kind, text in found if text]


def pages() -> dict[str, str]:
    """Path → Markdown of every script."""
    made = {}
    for file in sorted(FOLDER.glob("*.py")):
        found = cells(file.read_text(encoding="utf-8"))
        shown = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in found]
        how = f"This page is the script `docs/notebooks/{file.name}`: run it as it is, or open it as a notebook."
        made[f"notebooks/{file.stem}.md"] = "\n\n".join([*shown, how]) + "\n"
    return made
