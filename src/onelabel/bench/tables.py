"""The papers' tables, made from results: ours in the paper's rows, the published value beside."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onelabel.bench import all_table
from onelabel.bench.datasets import without_mark
from onelabel.bench.picking import NOT_RUN, Results, pick, settings_of, why_absent
from onelabel.bench.protocols import applied, protocol
from onelabel.bench.published import COLUMNS, Number, published
from onelabel.bench.recipe import MODEL
from onelabel.bench.render import Sheet
from onelabel.bench.results import Found, no_results
from onelabel.bench.results import find as find_rows
from onelabel.bench.stats import Cell, gap, holm, p_text, paired_p

#: Printed rows that are another paper's, or another row's.
GR_2 = (
    "its ROLE on VOC and COCO repeats EM's with linear initialisation; its SMILE on NUS-WIDE and CUB repeats its SPLC"
)
LASD_2 = "its WAN repeats EM's tuned down-weighting (`dw`); its AN, AN-LS, ROLE, EM and EM-APL repeat EM's numbers, too"
#: What a published row's setting is among our modes.
MODES = {"linear-train-recovery": "linear", "ablation": "finetune"}


@dataclass(frozen=True)
class Table:
    """A table of a paper: how it is built from results for a dataset."""

    name: str
    title: str
    build: Callable[[Table, Results, str], Sheet]
    metric: str = "test_map"
    also: tuple[tuple[str, str], ...] = ()  #: further (table, method) of the same paper to begin with
    of_runs: bool = True  #: False where the recipes say it all
    care: tuple[str, ...] = ()  #: what a reader of the printed numbers should know

    @property
    def key(self) -> tuple[str, str]:
        source, _, number = self.name.partition(".")
        return source, number


def find(folder: str | Path) -> Results:
    """A results folder with its label facts; without either the answer says so, and `build` raises it."""
    base = Path(folder)
    if not base.is_file() and not any(base.rglob("*.parquet")) and not any(base.glob("labels-*.json")):
        return Results([], {}, absent=no_results(base))
    found = find_rows(folder)
    labels = {}
    for file in sorted(base.glob("labels-*.json")) if base.is_dir() else ():
        try:
            labels[file.stem.removeprefix("labels-")] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            found.unreadable[file.name] = str(error)
    words = base / "remarks.md"
    remarks = words.read_text(encoding="utf-8").strip() if words.is_file() else ""
    return Results(found.rows, found.unreadable, labels, remarks)


def build(
    name: str,
    found: Found,
    *,
    dataset: str = "voc2012",
    rules: str | None = None,
    searched: bool = False,
    baseline: str = "",
) -> Sheet:
    """A table by name; always complete, with what was not run, failed or could not be read said in it.

    It is of runs under one protocol (`rules`): ours, or the one most were made under where none were under ours; and of
    the recipes' settings, or the best of those `searched`. The papers' have AN as `baseline`; "all" has any.
    """
    check_name(name)
    if baseline and name != all_table.NAME:
        raise ValueError(f"--baseline: {name} is a paper's table, against AN; the table {all_table.NAME} takes one")
    whole = found if isinstance(found, Results) else Results(found.rows, found.unreadable)
    if whole.absent and of_runs(name):
        raise FileNotFoundError(whole.absent)
    made = Counter(row.protocol for row in whole.rows if row.dataset == dataset)
    shown = rules or (made.most_common(1)[0][0] if made and whole.rules not in made else whole.rules)
    whole = dataclasses.replace(whole, rules=protocol(shown).name, searched=searched)
    if name == all_table.NAME:
        return all_table.build(whole, dataset, baseline)
    return TABLES[name].build(TABLES[name], whole, dataset)


def titles() -> dict[str, str]:
    """Every table there is: the papers', and that of all runs."""
    return {**{table.name: table.title for table in TABLES.values()}, all_table.NAME: all_table.TITLE}


def check_name(name: str) -> None:
    """A table that is not there is answered with the nearest."""
    if name not in (known := titles()):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"there is no table {name!r}; {hint}there are {', '.join(known)}")


def of_runs(name: str) -> bool:
    """Whether a table needs runs."""
    return name == all_table.NAME or TABLES[name].of_runs


def whose(found: Found, asked: str = "") -> str:
    """The dataset of a table: as asked for, with or without its mark; the only one there is; else VOC 2012.

    One that has neither runs nor facts about its labels is an error, as is a name that several have.
    """
    there = Counter(row.dataset for row in found.rows)
    if not asked:
        if there and len(there) > 1 and MODEL not in there:
            raise ValueError(f"results of {', '.join(sorted(there))}: --dataset says whose")
        return next(iter(there)) if len(there) == 1 else MODEL
    known = {*there, *(found.labels if isinstance(found, Results) else ())}
    mine = [asked] if asked in known else sorted(name for name in there if without_mark(name) == asked)
    if len(mine) > 1:
        last = {name: max(row.started for row in found.rows if row.dataset == name) for name in mine}
        told = ", ".join(f"{name} ({there[name]} runs, last {last[name]})" for name in mine)
        raise ValueError(f"{len(mine)} data are called {asked}: --dataset says which, {told}")
    if not mine and there:
        raise ValueError(f"no runs of {asked} here; there are runs of {', '.join(sorted(there))}")
    return mine[0] if mine else asked


def place_notes(cells: Sequence[Cell | None], found: Found) -> tuple[str, ...]:
    """Protocol, hardware and commits of what a table shows, and what could not be read."""
    rows = [row for cell in cells if cell is not None for row in cell.rows]
    notes = applied(rows)
    for what in ("hardware", "weights"):
        values = sorted({getattr(row, what) for row in rows if getattr(row, what)})
        notes += [f"{what}: {'; '.join(values)}"] if values else []
    commits = sorted({row.commit[:7] + ("+" if row.commit.endswith("+") else "") for row in rows if row.commit})
    notes += [f"commit {', '.join(commits)} (+: with uncommitted changes)"] if commits else []
    whole = sum(bool(row.extra.get("made_without_stopping")) for row in rows)
    runs = f"{whole} run{'s' * (whole > 1)}"
    notes += [f"{runs} made without early stopping, which would have kept the same epochs"] if whole else []
    notes += [f"unreadable result {file}: {why}" for file, why in found.unreadable.items()]
    return tuple(notes)


def _numbers(table: Table, dataset: str) -> list[Number]:
    source, number = table.key
    first = [n for t, method in table.also for n in published(source, t, dataset) if n.method == method]
    modes = {n.setting for n in published(source, number, dataset)}
    return [*(n for n in first if n.setting in modes), *published(source, number, dataset)]


def compare(table: Table, found: Results, dataset: str) -> Sheet:
    """Ours beside the published values: mean ± std over seeds, differences to AN and full labels with Holm's p."""
    numbers = [n for n in _numbers(table, dataset) if not n.setting.endswith("precision")]
    backbone = {n: n.setting.partition("-")[2] if n.setting.startswith("finetune-") else None for n in numbers}
    modes = {n: "finetune" if backbone[n] else MODES.get(n.setting, n.setting) for n in numbers}
    which = found.which
    cells = [pick(found.rows, dataset, n.name, modes[n], backbone=backbone[n], **which) for n in numbers]
    base = {m: pick(found.rows, dataset, "an", m, **which) for m in modes.values()}
    full = {m: pick(found.rows, dataset, "bce", m, **which) for m in modes.values()}
    metric = table.metric
    tests = holm([
        _p(cell, base[modes[n]], metric) if n.name != "an" else None for n, cell in zip(numbers, cells, strict=True)
    ])  # fmt: skip
    averaged = any(cell is not None and cell.mean("test_map_averaged_flip") is not None for cell in cells)
    linear = metric == "test_map" and any(mode != "linear" for mode in modes.values())
    columns = ["method", "setting", "ours", "seeds", "Δ AN", "p (Holm)", "Δ full labels"]
    columns += ["settings"] if found.searched else []
    columns += ["averaged, flips"] if averaged else []
    columns += ["ours, linear"] if linear else []
    lines = []
    for n, cell, p in zip(numbers, cells, tests, strict=True):
        mode = modes[n]
        words = [n.name, n.setting]
        if cell is None:
            words += [NOT_RUN if backbone[n] else why_absent(found.rows, dataset, n.name, mode), *["–"] * 4]
        else:
            words += [cell.text(metric), str(len(cell.rows)), gap(cell, base[mode], metric)]
            words += [p_text(p), gap(cell, full[mode], metric)]
        words += [settings_of(cell, found, backbone=backbone[n])] if found.searched else []
        words += [cell.text("test_map_averaged_flip") if cell else "–"] if averaged else []
        if linear:
            own = mode != "linear" and backbone[n] in (None, protocol(found.rules).backbone)
            as_probe = pick(found.rows, dataset, n.name, "linear", **which) if own else None
            words += [as_probe.text(metric) if as_probe else "–"]
        lines.append((*words, str(n)))
    what = {"test_map": "test mAP", "train_map": "mAP on the training rows' true labels"}[metric]
    notes = (
        f"{what} in %, mean ± std over seeds; p: paired t-test over seeds against AN, Holm-corrected over the rows",
        *table.care,
        *_printed_elsewhere(table, numbers, dataset),
        *_no_runs(found, dataset),
        *place_notes(cells, found),
    )
    return Sheet(f"{table.title} ({dataset})", (*columns, "published"), tuple(lines), notes)


def _printed_elsewhere(table: Table, numbers: Sequence[Number], dataset: str) -> list[str]:
    if dataset not in COLUMNS or any(n.value is not None for n in numbers):
        return []
    there = [name for name in COLUMNS if any(n.value is not None for n in _numbers(table, name))]
    return [f"the paper prints this table for {', '.join(there)} alone"]


def _no_runs(found: Results, dataset: str) -> list[str]:
    there = sorted({row.dataset for row in found.rows})
    others = f"; there are runs of {', '.join(there)}" if there else ""
    return [] if dataset in there else [f"no runs of {dataset} here{others}"]


def _p(cell: Cell | None, base: Cell | None, metric: str) -> float | None:
    return None if cell is None or base is None else paired_p(cell.values(metric), base.values(metric))


def _register() -> Mapping[str, Table]:
    from onelabel.bench import other_tables as other

    an = (("1", "an"), ("1", "an-ls"))
    listed = (
        Table("role.1", "ROLE Table 1: losses, linear and fine-tuned", compare),
        Table("role.2", "ROLE Table 2: recovery of the training labels, linear", compare, "train_map"),
        Table("role.A1", "ROLE Table A1: further losses", compare, also=an),
        Table("role.A2", "ROLE Table A2: intervals of k from a few rows", other.k_intervals),
        Table("role.A3", "ROLE Table A3: label statistics", other.label_statistics),
        Table("em.1", "EM Table 1: methods, fine-tuned", compare, care=("`asl:em`: ASL with EM's settings",)),
        Table(
            "em.2", "EM Table 2: backbones; precision of APL's negative pseudo-labels", other.backbones_and_precision
        ),
        Table("em.3", "EM Table 3: ablation of APL", compare),
        Table("em.5", "EM Table 5: hyperparameters", other.hyperparameters("em-apl", other.EM_5), of_runs=False),
        Table("em.6", "EM Table 6: precision of positive pseudo-labels", other.positive_precision),
        Table("em.7", "EM Table 7: micro- and macro-F1", other.f1),
        Table("gr.2", "GR Table 2: methods, fine-tuned", compare, care=(GR_2,)),
        Table("gr.3", "GR Table 3: ablation", compare),
        Table("gr.6", "GR Table 6: hyperparameters", other.hyperparameters("gr", other.GR_6), of_runs=False),
        Table("lasd.2", "LASD Table 2: methods, fine-tuned", compare, care=(LASD_2,)),
        Table("lasd.3", "LASD Table 3: ablation", compare, care=("its row of `las` repeats its plain ASL",)),
    )
    return {table.name: table for table in listed}


TABLES: Mapping[str, Table] = _register()
