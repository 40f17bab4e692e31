"""The README's results table, copied from docs/benchmarks.md so that there is one source of numbers.

    .venv/bin/onelabel bench docs && .venv/bin/python docs/generate/readme_results.py

A test compares the README with what this makes.
"""

from __future__ import annotations

from pathlib import Path

from onelabel.system import atomic_write

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- results: docs/generate/readme_results.py -->", "<!-- /results -->"
#: The section of the page, and the methods shown of it (with what they see added to their name there).
SECTIONS = (("All methods, fine-tuned", "fine-tuned"), ("All methods, linear", "linear"))
METHODS = ("bce", "roll-call", "lasd", "gr", "em", "em-apl", "role", "an-ls", "wan", "ll-r", "splc", "an")
COLUMNS = ("method", "test mAP", "seeds", "Δ AN", "Δ full labels")
WORDS = {"bce": "**full labels** (BCE)"}


def block(page: str) -> str:
    """The table: one line per method and mode that was run."""
    lines = ["| mode | " + " | ".join(COLUMNS) + " |", "| --- " * (len(COLUMNS) + 1) + "|"]
    for title, mode in SECTIONS:
        rows = [row for row in table(page, title) if row["method"].split(" ")[0] in METHODS and row["seeds"].isdigit()]
        for row in rows:
            name, _, about = row["method"].partition(" ")
            shown = WORDS.get(name, " ".join([name, about]).strip())
            lines.append(f"| {mode} | {shown} | " + " | ".join(row[c] for c in COLUMNS[1:]) + " |")
    return "\n".join(lines)


def table(page: str, title: str) -> list[dict[str, str]]:
    """The first Markdown table under a heading, as rows by column."""
    _, found, rest = page.partition(f"## {title}\n")
    if not found:
        raise ValueError(f"docs/benchmarks.md has no section {title!r}")
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def fill(readme: str, page: str) -> str:
    """The README with the table between its marks."""
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{block(page)}\n{END}{after}"


if __name__ == "__main__":
    target = ROOT / "README.md"
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    atomic_write(target, fill(target.read_text(encoding="utf-8"), page))
