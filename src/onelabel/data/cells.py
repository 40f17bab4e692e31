"""Cells of a table that hold several labels, or seem to."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .report import Report


def labels_of(cell: Any, separator: str) -> list[str]:
    """A cell's labels: a list's, or those of a text, divided by `separator` where that is not empty."""
    if cell is None or cell == "":
        return []
    if isinstance(cell, list | tuple):
        return [str(label).strip() for label in cell if label is not None and str(label).strip()]
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    labels = str(cell).split(separator) if separator else [str(cell)]
    return [label.strip() for label in labels if label.strip()]


def divided(cells: Sequence[Any], separator: str) -> str:
    """How many cells of text hold several labels, in words; empty where none does."""
    several = [cell for cell in cells if isinstance(cell, str) and len(labels_of(cell, separator)) > 1]
    if not several:
        return ""
    remedy = "-o separator= (separator='') keeps them whole"
    return f"{len(several):,} of {len(cells):,} cells divided at {separator!r}, such as {several[0]!r}; {remedy}"


def mention_undivided(cells: Sequence[Any], separator: str, report: Report) -> None:
    """Report where a mark other than `separator` seems to divide labels: it does in most of the cells that hold it.

    It does where every part is a class by itself elsewhere, or is in several combinations: "cup, paper" stays whole
    unless there are cups and papers.
    """
    labels = [labels_of(cell, separator) for cell in cells if isinstance(cell, str)]
    texts = Counter(label for cell in labels for label in cell)
    for mark in ",;|" if separator else "":
        parts = {label: set(labels_of(label, mark)) for label in texts if mark in label}
        held = {label: mine for label, mine in parts.items() if len(mine) > 1}
        uses = Counter(part for mine in held.values() for part in mine)
        found = {label: None for label, mine in held.items() if all(part in texts or uses[part] > 1 for part in mine)}
        several, marked = (sum(any(label in of for label in cell) for cell in labels) for of in (found, held))
        if found and 2 * several >= marked:
            option = shlex.quote(f"separator={mark}")
            what = f"{several:,} of {len(cells):,} cells look like several labels, such as {next(iter(found))!r}"
            report.add("undivided", what, f"-o {option} (separator={mark!r}) divides them")
