"""Tables that are not one number per method: hyperparameters, label statistics, pseudo-labels, F1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onelabel.bench.protocols import protocol
from onelabel.bench.published import COLUMNS, F1_PRINTED, K_PRINTED, LABELS_PRINTED, published
from onelabel.bench.recipe import recipe
from onelabel.bench.render import Sheet

if TYPE_CHECKING:
    from onelabel.bench.picking import Results
    from onelabel.bench.stats import Cell
    from onelabel.bench.tables import Table

#: What the tables call a setting, and where the recipe has it.
Settings = tuple[tuple[str, str], ...]
EM_5: Settings = (
    ("batch size", "batch_size"),
    ("learning rate", "lr"),
    ("α", "alpha"),
    ("β", "beta"),
    ("θ", "proportion"),
)
EM_5 += (("T_w", "warmup"),)
GR_6: Settings = (
    ("batch size", "batch_size"),
    ("learning rate", "lr"),
    ("epochs", "epochs"),
    ("q2", "q2"),
    ("q3", "q3"),
)
GR_6 += (("w at the end", "w"), ("b at the end", "b"), ("μ at the end", "mu"), ("σ at the end", "sigma"))


def hyperparameters(method: str, settings: Settings) -> Callable[[Table, Results, str], Sheet]:
    """A table of the recipes' settings, one column a dataset: they are the published ones."""

    def build(table: Table, found: Results, dataset: str) -> Sheet:
        made = {name: recipe(name, method, "finetune", protocol("onelabel")) for name in COLUMNS}
        lines = []
        for label, key in settings:
            values = [{**each.settings, **each.hyper}[key] for each in made.values()]
            lines.append((label, *(f"{value:g}" for value in values)))
        note = "read from the recipes, which runs use; a test compares them with the paper"
        return Sheet(table.title, ("setting", *made), tuple(lines), (note,))

    return build


def label_facts(true: Any) -> dict[str, Any]:
    """What Tables A2 and A3 say of a label matrix: statistics, and the range of estimates of k from 5, 10, 25 rows."""
    from onelabel.labels.k import k_interval

    counts = true.sum(1)
    ranges = {str(n): k_interval(true, n=n) for n in (5, 10, 25) if n <= len(true)}
    return {
        "rows": len(true), "classes": true.shape[1], "most": int(counts.max()), "fewest": int(counts.min()),
        "mean": float(counts.mean()), "k": {n: [k.low, k.high] for n, k in ranges.items()},
    }  # fmt: skip


def write_label_facts(true: Any, dataset: str, folder: str | Path) -> Path:
    """`labels-DATASET.json` in a results folder."""
    import json

    from onelabel.system import atomic_write

    path = Path(folder) / f"labels-{dataset}.json"
    atomic_write(path, json.dumps(label_facts(true), indent=1) + "\n")
    return path


def k_intervals(table: Table, found: Results, dataset: str) -> Sheet:
    lines = []
    for name, printed in K_PRINTED.items():
        ours = found.labels.get(name, {}).get("k", {})
        for i, n in enumerate(("5", "10", "25")):
            mine = f"({ours[n][0]:.2f}, {ours[n][1]:.2f})" if n in ours else "not run"
            lines.append((name, n, mine, f"({printed[i][0]}, {printed[i][1]})"))
    note = "5th to 95th percentile of 100,000 means over rows of the training part (`onelabel bench labels DATA`)"
    return Sheet(table.title, ("dataset", "rows", "ours", "published"), tuple(lines), (note,))


def label_statistics(table: Table, found: Results, dataset: str) -> Sheet:
    lines = []
    for name, printed in LABELS_PRINTED.items():
        facts = found.labels.get(name)
        keys = ("classes", "most", "fewest", "mean")
        ours = tuple(f"{facts[key]:.3g}" for key in keys) if facts else ("not run",) * 4
        lines.append((name, *(f"{mine} ({theirs:g})" for mine, theirs in zip(ours, printed, strict=True))))
    columns = ("dataset", "classes", "most positives", "fewest", "mean")
    return Sheet(table.title, columns, tuple(lines), ("ours (published); of the training part",))


def backbones_and_precision(table: Table, found: Results, dataset: str) -> Sheet:
    from onelabel.bench.tables import compare

    sheet = compare(table, found, dataset)
    blank = ["–"] * (len(sheet.columns) - 4)
    lines = list(sheet.rows)
    for number in published("em", "2", dataset):
        if number.setting == "apl-label-precision":
            ours = "not offered" if number.method == "an" else _precision(found, dataset, "em-apl", positive=False)
            lines.append((f"APL on {number.method}", "precision of pseudo-labels", ours, *blank, str(number)))
    note = "precision: share of APL's negative pseudo-labels that are truly negative, at the best epoch, in %"
    return Sheet(sheet.title, sheet.columns, tuple(lines), (*sheet.notes, note))


def positive_precision(table: Table, found: Results, dataset: str) -> Sheet:
    (number,) = published("em", "6", dataset)
    ours = _precision(found, dataset, "em-apl:positive-only", positive=True)
    note = "share of positive pseudo-labels (10% of each class's unknown entries) that are truly positive, in %"
    return Sheet(f"{table.title} ({dataset})", ("method", "ours", "published"), (("em", ours, str(number)),), (note,))


def _precision(found: Results, dataset: str, name: str, *, positive: bool) -> str:
    """The mean over a method's runs, by mode; runs whose best epoch came before any pseudo-label have none."""
    from onelabel.bench.picking import NOT_RUN, candidates

    texts = []
    for mode in ("finetune", "linear"):
        rows = candidates(found.rows, dataset, name, mode, **found.which)
        made = [r.extra["pseudo_labels"] for r in rows if r.done and "pseudo_labels" in r.extra]
        shares = [each["positive"] if positive else 100 - each["positive"] for each in made if each["count"]]
        if shares:
            runs = f"{len(shares)} run{'s' * (len(shares) > 1)}"
            texts.append(f"{sum(shares) / len(shares):.2f} ({mode}, {runs})")
        elif made:
            texts.append(f"none made by the best epoch ({mode})")
    return "; ".join(texts) or NOT_RUN


def f1(table: Table, found: Results, dataset: str) -> Sheet:
    from onelabel.bench.picking import pick, why_absent
    from onelabel.bench.tables import place_notes

    def text(cell: Cell | None, name: str, mode: str, metric: str) -> str:
        if cell is None:
            return why_absent(found.rows, dataset, name, mode)
        return "not measured" if cell.mean(metric) is None else cell.text(metric)

    lines, shown = [], []
    for name in ("bce", "an", "em"):
        for mode in ("linear", "finetune"):
            cell = pick(found.rows, dataset, name, mode, **found.which)
            shown.append(cell)
            printed = F1_PRINTED.get((dataset, name), ("–", "–")) if mode == "finetune" else ("–", "–")
            ours = (text(cell, name, mode, metric) for metric in ("micro_f1", "macro_f1"))
            at = f"{cell.rows[0].f1_threshold:g}" if cell and cell.rows[0].f1_threshold else "–"
            lines.append((name, mode, at, *ours, *printed))
    columns = ("method", "setting", "threshold", "micro-F1", "macro-F1", "micro-F1 published", "macro-F1 published")
    note = "F1 in %, at .5 for BCE and AN and .75 for EM as in the paper; its table is not legible here but for these"
    return Sheet(f"{table.title} ({dataset})", columns, tuple(lines), (note, *place_notes(shown, found)))
