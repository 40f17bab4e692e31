"""Tables as text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """A finished table: cells are text, notes are lines below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def as_text(sheet: Sheet, form: str = "text") -> str:
    """A sheet in one of the four forms."""
    if form not in FORMS:
        raise ValueError(f"format: {form!r}, expected one of {', '.join(FORMS)}")
    return FORMS[form](sheet)


def _terminal(sheet: Sheet) -> str:
    lines = [sheet.columns, *sheet.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(sheet.columns))]
    body = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    rule = "  ".join("─" * w for w in widths)
    return "\n".join([sheet.title, "", body[0], rule, *body[1:], *(["", *sheet.notes] if sheet.notes else [])])


def _markdown(sheet: Sheet) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    body = [line(sheet.columns), line(["---"] * len(sheet.columns)), *map(line, sheet.rows)]
    notes = [f"- {note}" for note in sheet.notes]
    return "\n".join([f"**{sheet.title}**", "", *body, *(["", *notes] if notes else [])])


_TEX = {"±": r"$\pm$", "Δ": r"$\Delta$", "–": "--", "−": "$-$", "×": r"$\times$", "α": r"$\alpha$", "β": r"$\beta$"}
_TEX |= {"μ": r"$\mu$", "σ": r"$\sigma$", "τ": r"$\tau$", "λ₊": r"$\lambda_+$", "θ": r"$\theta$", "≥": r"$\geq$"}
_TEX |= {"<": "$<$", ">": "$>$"}


def _latex(sheet: Sheet) -> str:
    def tex(cell: str) -> str:
        safe = cell.replace("\\", r"\textbackslash ")
        safe = re.sub(r"([&%$#_{}])", r"\\\1", safe)
        safe = safe.replace("~", r"\textasciitilde ").replace("^", r"\textasciicircum ")
        for sign, code in _TEX.items():
            safe = safe.replace(sign, code)
        return safe

    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(tex, cells)) + r" \\"

    first = [r"\begin{table}", r"\centering", rf"\caption{{{tex(sheet.title)}}}"]
    head = [rf"\begin{{tabular}}{{l{'r' * (len(sheet.columns) - 1)}}}", r"\hline", line(sheet.columns), r"\hline"]
    last = [r"\hline", r"\end{tabular}", r"\end{table}"]
    return "\n".join([*first, *head, *map(line, sheet.rows), *last, *(f"% {note}" for note in sheet.notes)])


def _csv(sheet: Sheet) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(sheet.columns)
    writer.writerows(sheet.rows)
    return file.getvalue().rstrip("\n")


FORMS: dict[str, Callable[[Sheet], str]] = {"text": _terminal, "markdown": _markdown, "latex": _latex, "csv": _csv}
