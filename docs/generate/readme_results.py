"""The README's results table, copied from docs/benchmarks.md so that there is one source of numbers.

    .venv/bin/onelabel bench docs && .venv/bin/python docs/generate/readme_results.py

A test compares the README with what this makes.
"""

from __future__ import annotations

from pathlib import Path

from onelabel.bench.draws import PUBLISHED
from onelabel.system import atomic_write

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- results: docs/generate/readme_results.py -->", "<!-- /results -->"
#: The section of the page, and the methods shown of it (with what they see added to their name there).
SECTIONS = (("All methods, fine-tuned", "fine-tuned"), ("All methods, linear", "linear"))
METHODS = ("bce", "roll-call", "lasd", "gr", "em", "em-apl", "role", "an-ls", "wan", "ll-r", "splc", "an")
COLUMNS = ("method", "test mAP", "seeds", "Δ AN", "Δ full labels")
WORDS = {"bce": "**full labels** (BCE)"}
#: Of the page's students, what is the same training for every method; by mode, and how it is called. Who can be told
#: whom annotators prefer is: of two rows of one name the later stays.
TAUGHT = "Students"
KINDS = {
    ("linearinit", "on"): ("fine-tuned", "after linear initialisation, then a student"),
    ("linear", "on, 0.1, other classes"): ("linear", "then a student"),
    ("linear", "on, 0.1, annotators, other classes"): ("linear", "then a student"),
}


def block(page: str) -> str:
    """The table: one line per method and mode that was run, and each other method that had roll call's student."""
    found = [
        (mode, row["method"], *(row[c] for c in COLUMNS[1:]))
        for title, mode in SECTIONS
        for row in table(page, title)
        if row["method"].split(" ")[0] in METHODS and row["seeds"].isdigit()
    ]
    shown = {(mode, method) for mode, method, *_ in found}
    means = {(mode, method.split(" ")[0]): mean(score) for mode, method, score, *_ in found}
    students = {}
    for kind, (mode, about) in KINDS.items():
        for row in table(page, TAUGHT):
            name, _, way = row["method"].rstrip(")").partition(" (")
            method = f"{name} ({about})"
            if (way, row["student: looks, smoothing, told of"]) != kind or row["draw"] != PUBLISHED:
                continue
            gaps = [f"{mean(row['test mAP']) - means[mode, base]:+.2f}".replace("-", "−") for base in ("an", "bce")]
            students[mode, method] = (mode, method, row["test mAP"], row["seeds"], *gaps)
    found += [line for which, line in students.items() if which not in shown]
    modes = [mode for _, mode in SECTIONS]
    lines = ["| mode | " + " | ".join(COLUMNS) + " |", "| --- " * (len(COLUMNS) + 1) + "|"]
    for mode, method, *cells in sorted(found, key=lambda line: (modes.index(line[0]), -mean(line[2]))):
        name, _, about = method.partition(" ")
        lines.append(f"| {mode} | {WORDS.get(name, ' '.join([name, about]).strip())} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mean(score: str) -> float:
    """Of "88.94 ± 0.07"."""
    return float(score.split(" ")[0])


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
