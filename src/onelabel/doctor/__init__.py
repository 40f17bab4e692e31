"""`examine`: what works on this machine, what is missing and what that would enable; never raises.

Each check is a function that yields findings; whatever goes wrong inside one becomes a finding of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onelabel.doctor import machine, own
from onelabel.doctor.finding import Finding

__all__ = ["Finding", "examine", "healthy", "text", "to_dict"]


def examine(
    *,
    weights: str | Path | None = None,
    backbone: str | None = None,
    data: str | None = None,
    root: str | None = None,
    out: str | Path = ".",
) -> list[Finding]:
    """Look at the machine, the installation and the weights, and at a dataset where one is given.

    Args:
        weights: a file that should fit `backbone`, training's own unless given; else whether pretrained ones are here.
        data: what `load_dataset` takes; root: where its archives lie.
        out: where runs would be written.
    """
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("python", machine.python),
        ("torch", machine.torch),
        ("cuda", machine.cuda),
        ("versions", machine.versions),
        ("extras", machine.extras),
        ("memory", machine.memory),
        ("disk", lambda: machine.writable("disk", Path(out), "choose another folder with --out")),
        ("cache", lambda: machine.writable("cache", machine.cache(), "set ONELABEL_CACHE to a folder you may write")),
    ]
    if weights is None:
        checks.append(("weights", lambda: own.pretrained(backbone)))
    else:
        checks.append(("weights", lambda: own.weights(weights, backbone)))
    if data is not None:
        checks.append(("data", lambda: own.data(data, root)))
    found: list[Finding] = []
    for what, look in checks:
        try:
            found += look()
        except Exception as error:
            lines = str(error).strip().splitlines()
            told = f"{type(error).__name__}: {lines[0] if lines else ''}"
            found.append(Finding(what, "bad", told, "not foreseen: please report it"))
    return found


def to_dict(findings: list[Finding]) -> dict[str, Any]:
    """Plain values, for JSON."""
    return {"ok": healthy(findings), "findings": [asdict(each) for each in findings]}


def healthy(findings: list[Finding]) -> bool:
    """Whether nothing is wrong; notes are no fault."""
    return all(each.level != "bad" for each in findings)


def text(findings: list[Finding]) -> str:
    """A line per finding, its remedy below."""
    marks = {"ok": "ok ", "note": "-- ", "bad": "BAD"}
    width = max(len(each.what) for each in findings)
    lines = []
    for each in findings:
        lines.append(f"{marks[each.level]} {each.what:<{width}}  {each.found}")
        if each.remedy and each.level != "ok":
            lines.append(f"    {'':<{width}}  → {each.remedy}")
    return "\n".join(lines)
