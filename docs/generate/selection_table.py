"""What each criterion's choice loses, in docs/probes.md, from what `benchmarks/selection.py` left in docs/results."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import mean

from onelabel.system import atomic_write

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "docs" / "results" / "selection.csv"
PAGE = ROOT / "docs" / "probes.md"
BEGIN, END = "<!-- selection: docs/generate/selection_table.py -->", "<!-- /selection -->"
BEST = "best pick (test itself)"
#: What `choose` goes by where no row is fully labelled.
TAKEN = "likelihood with the floor"


def table(rows: list[dict[str, str]]) -> str:
    """A line a criterion, the least lost on average first; last what there was to find."""
    tasks = list(dict.fromkeys(row["data"] for row in rows))
    by = {(row["criterion"], row["data"]): row for row in rows}
    lost = {name: [float(by[name, task]["regret"]) for task in tasks] for name, _ in by if name != BEST}
    lines = [f"| criterion | {' | '.join(tasks)} | mean |", "| --- " * (len(tasks) + 2) + "|"]
    for name, values in sorted(lost.items(), key=lambda item: mean(item[1])):
        title = f"**{name}**" if name == TAKEN else name
        lines.append(f"| {title} | {' | '.join(f'{value:.2f}' for value in [*values, mean(values)])} |")
    found = (f"*{float(by[BEST, task]['test_mAP']):.2f}*" for task in tasks)
    lines.append(f"| *best pick, test mAP* | {' | '.join(found)} | |")
    return "\n".join(lines)


def fill(page: str) -> str:
    """The page with the table between its marks."""
    with STORE.open(encoding="utf-8", newline="") as file:
        made = table(list(csv.DictReader(file)))
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    atomic_write(PAGE, fill(PAGE.read_text(encoding="utf-8")))
