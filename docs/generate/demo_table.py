"""The demo's numbers in README.md and docs/demo.md, from the demo.json of several seeds.

    for s in 0 1 2; do .venv/bin/onelabel demo --seed $s --out runs/demo-$s; done
    .venv/bin/python docs/generate/demo_table.py runs/demo-0 runs/demo-1 runs/demo-2

The numbers are kept in docs/results/demo.json; a test compares both pages with what this makes of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from onelabel.system import atomic_write

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "docs" / "results" / "demo.json"
BEGIN, END = "<!-- demo: docs/generate/demo_table.py -->", "<!-- /demo -->"
METHODS = ("an", "em", "gr", "full labels")
Runs = list[dict[str, Any]]


def automatic(run: dict[str, Any]) -> float:
    """Test mAP of the network that `auto` trained."""
    return float(run["networks"][f"auto ({run['chosen']})"])


def short(runs: Runs) -> str:
    """Means over seeds, for the README."""
    lines = ["| | AN | EM | GR | `auto` | full labels |", "| --- " * 6 + "|"]
    auto = {"probes": [run["probes"][run["chosen"]] for run in runs], "networks": [automatic(run) for run in runs]}
    for kind, title in (("probes", "probes on frozen features"), ("networks", "small CNNs")):
        cells = [f"{mean(run[kind][name] for run in runs):.1f}" for name in METHODS]
        cells.insert(-1, f"{mean(auto[kind]):.1f}")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    found = {key: mean(run["recovered"][key] for run in runs) for key in runs[0]["recovered"]}
    lines.append(
        f"\nand recovers {found['recall']:.0%} of the missing labels: {found['precision']:.0%} of those it adds "
        f"are right, {found['expected_precision']:.0%} is what it expected (means over {len(runs)} seeds)."
    )
    return "\n".join(lines)


def long(runs: Runs) -> str:
    """Every seed."""
    lines = ["Test mAP in %:", "", "| seed | | AN | EM | GR | full labels | chosen | from its probe, with a student |"]
    lines.append("| --- " * 8 + "|")
    for run in runs:
        for kind in ("probes", "networks"):
            cells = " | ".join(f"{run[kind][name]:.1f}" for name in METHODS)
            chosen = run["chosen"] if kind == "probes" else ""
            auto = "" if chosen else f"{automatic(run):.1f}"
            lines.append(f"| {run['seed']} | {kind} | {cells} | {chosen} | {auto} |")
    lines += ["", "Recovered labels, against the truth that nothing was shown:", ""]
    lines.append("| seed | added | expected right | are right | of the missing found | k (95%) | true k | ECE |")
    lines.append("| --- " * 8 + "|")
    for run in runs:
        r = run["recovered"]
        lines.append(
            f"| {run['seed']} | {r['added']:,.0f} | {r['expected_precision']:.1%} | {r['precision']:.1%} "
            f"| {r['recall']:.1%} | {r['k']:.2f} ({r['k_low']:.2f}–{r['k_high']:.2f}) | {r['true_k']:.2f} "
            f"| {r['ece']:.3f} |"
        )
    return "\n".join(lines)


def fill(page: str, block: str) -> str:
    """A page with the block between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{block}\n{END}{rest.split(END)[1]}"


def pages(runs: Runs) -> dict[Path, str]:
    """Both pages as they should be."""
    made = {ROOT / "README.md": short(runs), ROOT / "docs" / "demo.md": long(runs)}
    return {path: fill(path.read_text(encoding="utf-8"), block) for path, block in made.items()}


if __name__ == "__main__":
    found = [json.loads((Path(folder) / "demo.json").read_text(encoding="utf-8")) for folder in sys.argv[1:]]
    for run in found:
        run.pop("report", None)  # a path of one machine
        run.pop("seconds", None)  # of a machine that did other things too
    if found:
        atomic_write(STORE, json.dumps(found, indent=1) + "\n")
    for path, text in pages(json.loads(STORE.read_text(encoding="utf-8"))).items():
        atomic_write(path, text)
