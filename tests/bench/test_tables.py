"""Tables: the right runs in the right rows, statistics as others compute them, nothing filled in that was not run."""

from __future__ import annotations

import csv
import dataclasses
import io
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from onelabel import bench
from onelabel.bench import page, picking, render, sections, stats, tables
from onelabel.bench.published import anchor, published
from onelabel.bench.results import Found, Row

MAPS = {"an": (85.0, 85.2, 84.9), "em": (86.2, 87.9, 87.1), "gr": (88.0, 88.1, 87.8), "bce": (89.0, 89.1, 89.2)}


def some_rows(mode: str = "finetune") -> list[Row]:
    rows = []
    for name, values in MAPS.items():
        for run in bench.make_plan("voc2012", [name], modes=[mode], seeds=[0, 1, 2], search=False):
            value = values[run.seed]
            rows.append(run.row(test_map=value, validation_map=value + 1, commit="c" * 40, hardware="H"))
    return rows


def cell_of(sheet: render.Sheet, method: str, column: str, setting: str = "finetune") -> str:
    (line,) = [row for row in sheet.rows if row[0] == method and row[1] == setting]
    return line[sheet.columns.index(column)]


def test_a_table_has_means_differences_tests_and_the_published_value() -> None:
    from scipy.stats import ttest_rel

    sheet = tables.build("gr.2", Found(some_rows(), {}))
    assert cell_of(sheet, "em", "ours") == f"{statistics.mean(MAPS['em']):.2f} ± {statistics.stdev(MAPS['em']):.2f}"
    assert cell_of(sheet, "em", "Δ AN") == "+2.03"
    assert cell_of(sheet, "em", "Δ full labels") == "−2.03"
    assert cell_of(sheet, "em", "published") == "88.67 ± 0.08"
    raw = sorted(ttest_rel(MAPS[name], MAPS["an"]).pvalue for name in ("em", "gr"))
    assert raw[1] > 0.001  # em's; Holm leaves the largest of two as it is, and doubles the smaller
    assert cell_of(sheet, "em", "p (Holm)") == f"{raw[1]:.3f}"
    assert cell_of(sheet, "gr", "p (Holm)") == stats.p_text(2 * raw[0])
    assert cell_of(sheet, "splc", "ours") == "not run"
    assert any("protocol onelabel" in note for note in sheet.notes)
    assert any("ccccccc" in note for note in sheet.notes)


@pytest.mark.parametrize("name", sorted(tables.TABLES))
@pytest.mark.parametrize("dataset", ["voc2012", "cub", "toy"])
def test_every_table_builds_from_nothing_and_in_every_form(name: str, dataset: str) -> None:
    sheet = tables.build(name, Found([], {"half.parquet": "no footer"}), dataset=dataset)
    for form in render.FORMS:
        text = render.as_text(sheet, form)
        assert sheet.columns[0] in text
    for row in sheet.rows:
        assert len(row) == len(sheet.columns)
    read = list(csv.reader(io.StringIO(render.as_text(sheet, "csv"))))
    assert [tuple(line) for line in read[1:]] == list(sheet.rows)


def test_a_table_says_what_failed_and_what_cannot_be_read() -> None:
    (run,) = bench.make_plan("voc2012", ["splc"], modes=["finetune"], seeds=[0])
    rows = [*some_rows(), run.row(status="failed", error="OutOfMemoryError: too big")]
    sheet = tables.build("gr.2", Found(rows, {"half.parquet": "no footer"}))
    assert cell_of(sheet, "splc", "ours") == "failed: OutOfMemoryError: too big"
    assert any("half.parquet" in note for note in sheet.notes)


def test_the_cell_is_chosen_on_validation_and_never_on_test() -> None:
    rows = []
    for run in bench.make_plan("voc2012", ["an"], modes=["linear"], seeds=[0, 1]):
        good = run.settings["lr"] == 1e-4 and run.settings["batch_size"] == 8
        rows.append(run.row(validation_map=90.0 if good else 80.0, test_map=70.0 if good else 99.0))
    cell = tables.pick(rows, "voc2012", "an", "linear")
    assert cell is not None
    assert cell.mean("test_map") == 70.0
    # a setting that only one seed was run with does not win by luck
    lucky = bench.make_plan("voc2012", ["an"], modes=["linear"], seeds=[2], search=False)[0]
    again = tables.pick([*rows, lucky.row(validation_map=99.0, test_map=1.0)], "voc2012", "an", "linear")
    assert again is not None
    assert again.mean("test_map") == 70.0


def test_a_setting_out_of_reach_with_one_seed_needs_no_more() -> None:
    """Two settings with three seeds, the others with one: those far behind leave the comparison to all three seeds."""
    rows = []
    for run in bench.make_plan("voc2012", ["an"], modes=["linear"], seeds=[0, 1, 2]):
        lr, size = run.settings["lr"], run.settings["batch_size"]
        if (lr, size) == (1e-4, 8):
            rows.append(run.row(validation_map=(84.0, 85.0, 85.0)[run.seed], test_map=80.0))
        elif (lr, size) == (1e-3, 16):  # better with the seed that all have
            rows.append(run.row(validation_map=(84.5, 84.0, 84.0)[run.seed], test_map=70.0))
        elif run.seed == 0:
            rows.append(run.row(validation_map=83.4, test_map=60.0))
    cell = tables.pick(rows, "voc2012", "an", "linear")
    assert cell is not None
    assert (cell.mean("test_map"), len(cell.rows)) == (80.0, 3)
    assert "1 mAP of the best" not in page.missing(tables.Results(rows, {}), "voc2012")
    near = [dataclasses.replace(r, validation_map=84.4) if r.settings["lr"] == 1e-2 else r for r in rows]
    text = page.missing(tables.Results(near, {}), "voc2012")
    assert "- linear, within 1 mAP of the best on validation with fewer seeds: an (0.01, 8), an (0.01, 16)." in text
    plan = bench.make_plan("voc2012", ["an", "em"], modes=["linear"], seeds=[0, 1, 2])
    left = picking.still_open(plan, near)  # of em nothing was tried yet
    assert {(p.name, p.settings["lr"], p.settings["batch_size"]) for p in left} == {("an", 1e-2, 8), ("an", 1e-2, 16)}
    assert [p.seed for p in left] == [1, 2, 1, 2]
    assert picking.still_open(plan, rows) == []


def test_a_search_of_the_methods_settings_says_of_how_many_it_is_the_best() -> None:
    rows = some_rows("linear")
    for run in bench.make_plan("voc2012", ["em"], modes=["linear"], seeds=[0], search_hyper=True):
        if run.plan == "search":
            value = 95.0 if (run.hyper["alpha"], run.settings["lr"]) == (0.1, 1e-4) else 80.0
            rows.append(run.row(test_map=value - run.settings["batch_size"], validation_map=value))
    (line,) = [t for t in sections.searched(tables.Results(rows, {}), "voc2012").splitlines() if t.startswith("| em |")]
    words = [word.strip() for word in line.strip("|").split("|")]
    assert words[:4] == ["em", "linear", "41 of 48", "1"]
    assert words[4:7] == ["0.001, 16", "87.20", "86.20"]  # the recipe's, of the same seed
    assert words[7:10] == ["alpha=0.1; 0.0001, 8", "95.00", "87.00"]
    assert words[10:] == ["+7.80", "+0.80"]
    assert sections.searched(tables.Results(some_rows("linear"), {}), "voc2012") == ""
    for run in bench.make_plan("voc2012", ["an-ls"], modes=["linear"], seeds=[0], search=False, search_hyper=True):
        value = 80.0 + 10 * (run.hyper == {"positive_smoothing": 0.1, "unknown_smoothing": 0.3})
        rows.append(run.row(test_map=value, validation_map=value))
    plain, best = (tables.build("role.1", Found(rows, {}), searched=on) for on in (False, True))
    assert "settings" not in plain.columns
    assert cell_of(plain, "an-ls", "ours", "linear") == "80.00"
    assert cell_of(best, "an-ls", "ours", "linear") == "90.00"
    assert cell_of(best, "an-ls", "settings", "linear") == "unknown_smoothing=0.3; 0.0001, 8 (best of 9)"
    assert cell_of(best, "an", "settings", "linear") == "0.001, 16"
    assert cell_of(best, "role", "settings", "linear") == "–"


def test_sweeps_other_draws_and_protocols_stay_out_of_tables() -> None:
    other = [
        *bench.sweep("em.alpha", "voc2012", mode="finetune", seeds=[0, 1, 2]),
        *bench.make_plan("voc2012", ["em"], modes=["finetune"], draws=["biased:1"], seeds=[0, 1, 2]),
        *bench.make_plan("voc2012", ["em"], modes=["finetune"], protocol_name="em", seeds=[0, 1, 2]),
        *bench.make_plan("voc2012", ["em"], modes=["finetune"], fractions=[0.5], seeds=[0, 1, 2]),
        *bench.make_plan("voc2012", ["em"], modes=["finetune"], settings={"epochs": 3}, seeds=[0, 1, 2]),
    ]
    rows = [p.row(test_map=10.0, validation_map=99.0) for p in other if p.hyper["alpha"] != 0.2 or p.plan == "table"]
    cell = tables.pick([*rows, *some_rows()], "voc2012", "em", "finetune")
    assert cell is not None
    assert sorted(cell.values("test_map").values()) == sorted(MAPS["em"])


def test_holm_against_its_definition() -> None:
    rng = random.Random(0)
    for _ in range(200):
        p = [rng.random() ** 3 for _ in range(rng.randint(1, 8))]
        order = sorted(range(len(p)), key=lambda i: p[i])
        want = [0.0] * len(p)
        for rank, i in enumerate(order):
            want[i] = max(min(1.0, (len(p) - j) * p[order[j]]) for j in range(rank + 1))
        assert stats.holm([*p, None]) == pytest.approx([*want, None])
    assert stats.holm([]) == []


def test_paired_p_needs_common_seeds() -> None:
    assert stats.paired_p({0: 1.0}, {0: 2.0}) is None
    assert stats.paired_p({0: 1.0, 1: 2.0}, {2: 1.0, 3: 2.0}) is None
    assert stats.paired_p({0: 1.0, 1: 2.0}, {0: 2.0, 1: 3.0}) is None  # no spread: no test
    assert stats.paired_p({0: 1.0, 1: 2.0, 2: 3.5}, {0: 2.0, 1: 3.3, 2: 4.0, 9: 0.0}) == pytest.approx(0.0579, abs=1e-3)


def test_orderings() -> None:
    theirs = {"a": 90.0, "b": 89.0, "c": 88.9, "d": 80.0}
    agreed = stats.orderings({"a": 5.0, "b": 6.0, "d": 1.0}, theirs)
    assert (agreed.pairs, agreed.agree) == (3, 2)
    assert agreed.against == (("a", "b", 1.0, -1.0),)
    assert stats.orderings({"b": 1.0, "c": 2.0}, theirs).pairs == 0  # a tenth of a point is no order


def test_spread_is_pooled_and_tells_which_reversals_are_noise() -> None:
    rows = some_rows()
    every = [cell for name in MAPS if (cell := tables.pick(rows, "voc2012", name, "finetune"))]
    pooled = statistics.fmean(statistics.variance(values) for values in MAPS.values()) ** 0.5
    assert stats.spread(every) == pytest.approx(pooled)
    assert stats.spread([stats.Cell(tuple(rows[:1]))]) == 0
    text = page.orders(tables.Results(rows, {}), "voc2012")
    assert "standard errors" not in text  # they stand as in the papers
    swapped = [dataclasses.replace(r, test_map=r.test_map + 1.5) if r.label == "an" else r for r in rows]  # of 2.03
    assert "standard errors" not in page.orders(tables.Results(swapped, {}), "voc2012")
    swapped = [dataclasses.replace(r, test_map=r.test_map + 2.1) if r.label == "an" else r for r in rows]
    lines = page.orders(tables.Results(swapped, {}), "voc2012").splitlines()
    line = next(line for line in lines if line.startswith("- EM Table 1 (finetune), ours finetune"))
    assert (
        f" 1 reversed, 1 of them within two standard errors of a tie here (spread over seeds {pooled:.2f}): em" in line
    )


def test_published_numbers_are_read_as_printed() -> None:
    found = {n.name: n for n in published("em", "1", "voc2012")}
    assert str(found["asl:em"]) == "87.76 ± 0.51"
    assert str(found["em-apl"]) == "89.19 ± 0.31"
    assert {n.setting for n in published("gr", "2", "voc2012") if n.method == "role"} == {"linearinit"}
    hill = [n for n in published("gr", "2", "cub") if n.method == "hill"]
    assert str(hill[0]) == "–"
    mark = anchor("voc2012", "finetune", "gr")
    assert mark is not None
    assert mark.plain == 87.35
    assert anchor("cub", "finetune", "gr") is None


@pytest.mark.shared
def test_published_csv_is_the_shared_one(shared_data: Path) -> None:
    ours = Path(bench.__file__).with_name("published.csv").read_text()
    assert ours.splitlines() == (shared_data.parent / "published.csv").read_text().splitlines()


def test_latex_escapes_what_latex_reads() -> None:
    sheet = render.Sheet("50% & more_", ("a_b",), (("x^2 #{1} ± 0.1",), ("< 0.001",)))
    text = render.as_text(sheet, "latex")
    assert "$<$ 0.001" in text  # a bare one is printed as ¡
    assert r"50\% \& more\_" in text
    assert r"x\textasciicircum 2 \#\{1\} $\pm$ 0.1" in text


def test_label_facts_are_those_of_role_tables() -> None:
    import numpy as np

    from onelabel.bench.other_tables import label_facts

    true = np.zeros((40, 3), np.uint8)
    true[:, 0] = 1
    true[:10, 1] = 1
    facts = label_facts(true)
    assert (facts["classes"], facts["most"], facts["fewest"], facts["mean"]) == (3, 2, 1, 1.25)
    assert facts["k"]["5"] == [1.0, 1.6]


def test_the_page_is_made_of_the_rows_and_says_what_is_missing() -> None:
    rows: list[Any] = [*some_rows(), *some_rows("linear")]
    rows += [p.row(test_map=80 + 10 * p.hyper["alpha"]) for p in bench.sweep("em.alpha", "voc2012", seeds=[0])]
    text = page.page(tables.Results(rows, {"half.parquet": "no footer"}))
    assert "| gr | 1e-05, 8 | 87.97 ± 0.15 | 3 |" in text
    assert "| em | 80.10 | 80.20 | 81.00 |" in text
    assert "lasd.tau** (LASD 1b" in text
    assert "half.parquet" in text
    assert "finetune, not run: bce-ls" in text
    assert "only a part of the grid run: bce (1 of 8)" in text
    assert page.page(tables.Results(rows, {"half.parquet": "no footer"})) == text


def test_runs_after_linear_initialisation_stand_beside_the_fine_tuned_ones() -> None:
    plan = bench.make_plan("voc2012", ["roll-call", "gr"], modes=["linearinit"], seeds=[0])
    phases = [{"phase": "linear", "epoch": 0}, {"phase": "student", "epoch": 0}]
    rows = [*some_rows(), *(p.row(test_map=88.5 - i / 10, history=phases * (i == 0)) for i, p in enumerate(plan))]
    sheet = page.overview(tables.Results(rows, {}), "voc2012", "finetune")
    names = [line[0] for line in sheet.rows]
    told = "roll-call (after linear initialisation, then a student)"
    assert names[:4] == ["bce (full)", told, "gr (after linear initialisation)", "gr"]
    assert "roll-call" not in names  # as not run
    assert sheet.rows[1][sheet.columns.index("Δ AN")] == "+3.47"
    lines = page.missing(tables.Results(rows, {}), "voc2012").splitlines()
    line = next(line for line in lines if line.startswith("- finetune, not run"))
    absent, _, few = line.partition("; with a single seed: ")
    assert "roll-call" not in absent
    assert few == "roll-call (1)."


def test_remarks_stand_below_what_they_are_about(tmp_path: Path) -> None:
    bench.gather(tmp_path, tmp_path / "none.parquet")
    plain = page.page(tables.find(tmp_path))
    (tmp_path / "remarks.md").write_text("MIME here is plain pseudo-labelling.\n", encoding="utf-8")
    text = page.page(tables.find(tmp_path))
    head, found, rest = text.partition("MIME here is plain pseudo-labelling.\n\n")
    assert found
    assert head + rest == plain
    assert rest.startswith("## Other label draws")


def test_a_sweep_over_draws_has_a_column_each() -> None:
    plan = bench.sweep("missing", "voc2012", seeds=[0, 1])
    rows = [p.row(test_map=100 - 10 * float(p.draw.split(":")[1]) + p.seed) for p in plan if p.name == "em"]
    (text,) = [t for t in page.sweeps(tables.Results(rows, {}), "voc2012") if t.startswith("**missing, linear")]
    assert "up to 2 seeds" in text
    assert "| em | 99.50 ± 0.71 | 97.50 ± 0.71 | 95.50 ± 0.71 | 93.50 ± 0.71 | 91.50 ± 0.71 |" in text


def test_other_uniform_draws_are_one_column_with_their_spread() -> None:
    rows = some_rows("linear")
    for value, draw in ((80.0, "uniform:1"), (82.0, "uniform:2"), (70.0, "biased:1")):
        plan = bench.make_plan("voc2012", ["em"], draws=[draw], seeds=[0, 1], search=False)
        rows += [p.row(test_map=value + p.seed, validation_map=value) for p in plan]
    text = page.draws(tables.Results(rows, {}), "voc2012")
    assert "| method | uniform1200 | other uniform draws | biased:1:1200 |" in text
    assert "| em | 87.07 ± 0.85 | 81.50 ± 1.41 (2 draws) | 70.50 ± 0.71 |" in text
    assert "| an |" not in text  # on the published draw alone
    assert page.draws(tables.Results(some_rows("linear"), {}), "voc2012") == "Not run."


def test_draws_of_fine_tuned_runs_show_averaged_weights_and_name_another_mode() -> None:
    rows = []
    for mode, value in (("finetune", 80.0), ("linearinit", 90.0)):
        for draw, less in ((None, 0.0), ("biased:1", 5.0)):
            which = {"draws": [draw]} if draw else {}
            plan = bench.make_plan("voc2012", ["em"], modes=[mode], seeds=[0], search=False, **which)
            rows += [p.row(test_map=value - less, test_map_averaged_flip=value - less + 1) for p in plan]
    text = page.draws(tables.Results(rows, {}), "voc2012", ("finetune", "linearinit"))
    assert "| method | uniform1200 | biased:1:1200 |" in text
    assert "| em (linearinit) | 90.00 / 91.00 | 85.00 / 86.00 |" in text
    assert "| em | 80.00 / 81.00 | 75.00 / 76.00 |" in text


def test_old_results_are_imported_under_the_identity_of_new_ones() -> None:
    from onelabel.bench.importing import voc_finetune_rows

    old = Path(bench.__file__).parents[3] / "docs" / "results" / "voc-finetune-h200.json"
    rows = voc_finetune_rows(old, commit="4f21648", hardware="NVIDIA H200", versions={})
    (gr,) = bench.make_plan("voc2012", ["gr"], modes=["finetune"], seeds=[2], settings={"stop": "none"})
    (row,) = [r for r in rows if r.run_id == gr.run_id]
    assert round(row.test_map or 0, 2) == 87.81
    assert row.plan == "imported"
    cell = tables.pick(rows, "voc2012", "gr", "finetune")  # stopping early would have changed none of them
    assert cell is not None
    assert len(cell.rows) == 3


def test_students_are_shown_beside_their_teachers_by_setting_and_draw() -> None:
    def row(teacher: float, student: float | None, value: float, **which: Any) -> Row:
        settings = {"student_smoothing": 0.2, **which.pop("settings", {})}  # whatever the recipe has
        settings |= {"student": "off"} if student is None else {}
        (planned,) = bench.make_plan(
            "voc2012", ["roll-call"], modes=["linearinit"], search=False, settings=settings, **which
        )
        history = [{"phase": "linear", "validation_mAP": 99.0}, {"phase": "finetune", "validation_mAP": teacher}]
        history += [] if student is None else [{"phase": "student", "validation_mAP": 9, "validation_mAP_ema": student}]
        return planned.row(test_map=value, history=history, seconds=100.0, commit="abc1234")

    rows = [row(88, 89, 88.5, seeds=[0]), row(89, 90, 89.5, seeds=[1]), row(88, None, 87.0, seeds=[0])]
    rows += [row(85, 86, 85.5, seeds=[0], draws=["biased:1"])]
    rows += [row(88, 88.2, 88.1, seeds=[0], settings={"student_smoothing": 0.0})]
    lines = [line for line in page.students(tables.Results(rows, {}), "voc2012").splitlines() if "roll-call" in line]
    assert [line.split(" | ")[1:8] for line in lines] == [
        ["uniform1200", "on, closer, 0.2", "2", "88.50", "89.50", "89.00 ± 0.71", "–"],
        ["uniform1200", "on, closer, 0.0", "1", "88.00", "88.20", "88.10", "–"],
        ["uniform1200", "off, closer, 0.2", "1", "88.00", "–", "87.00", "–"],
        ["biased:1:1200", "on, closer, 0.2", "1", "85.00", "86.00", "85.50", "–"],
    ]
    assert page.students(tables.Results(some_rows(), {}), "voc2012") == ""


def test_runs_from_before_teachers_asked_other_classes_stand_where_none_asks() -> None:
    (planned,) = bench.make_plan("voc2012", ["roll-call"], modes=["linearinit"], seeds=[0])
    before = planned.row(test_map=88.0, validation_map=89.0)
    asked = dataclasses.replace(before, settings={**before.settings, "student_context": "auto"})
    assert tables.pick([before], "voc2012", "roll-call", "linearinit") is not None
    assert tables.pick([asked], "voc2012", "roll-call", "linearinit") is None


def test_a_heads_student_stands_beside_the_head() -> None:
    how = {"lr": 1e-4, "batch_size": 8, "student": "on", "student_context": "auto"}
    (planned,) = bench.make_plan("voc2012", ["em"], modes=["linear"], seeds=[0], search=False, settings=how)
    history = [{"phase": "linear", "validation_mAP": 86.0}, {"phase": "student", "validation_mAP": 87.0}]
    found = tables.Results([planned.row(test_map=85.0, history=history, seconds=9.0, commit="abc1234")], {})
    (line,) = (line for line in page.students(found, "voc2012").splitlines() if "em (linear)" in line)
    assert line.split(" | ")[1:7] == ["uniform1200", "on, other classes", "1", "86.00", "87.00", "85.00"]
    assert tables.pick(found.rows, "voc2012", "em", "linear") is None


def test_published_precision_of_pseudo_labels_stands_beside_ours() -> None:
    sheet = tables.build("em.2", Found([], {}))
    of = {row[0]: dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows if row[0].startswith("APL")}
    assert {name: line["published"] for name, line in of.items()} == {"APL on an": "96.44", "APL on em": "99.57"}
    (run,) = bench.make_plan("voc2012", ["em-apl"], modes=["finetune"], seeds=[0])
    for pseudo, told in (({"count": 50, "positive": 2.0}, "98.00 (finetune, 1 run)"), ({"count": 0}, "none made")):
        rows = [run.row(test_map=86.0, extra={"pseudo_labels": pseudo})]
        (line,) = [row for row in tables.build("em.2", Found(rows, {})).rows if row[0] == "APL on em"]
        assert line[2].startswith(told)


def test_probes_of_one_network_do_not_stand_beside_another() -> None:
    sheet = tables.build("em.2", Found([*some_rows(), *some_rows("linear")], {}))
    assert cell_of(sheet, "em", "ours, linear", "finetune-resnet50") == "87.07 ± 0.85"
    assert cell_of(sheet, "em", "ours, linear", "finetune-resnet101") == "–"


def test_runs_with_other_settings_are_counted_where_a_row_is_empty() -> None:
    plan = bench.make_plan("voc2012", ["em"], modes=["finetune"], seeds=[0, 1], settings={"epochs": 3})
    sheet = tables.build("gr.2", Found([p.row(test_map=80.0) for p in plan], {}))
    assert cell_of(sheet, "em", "ours") == "not run so (2 runs with other settings)"
    assert cell_of(sheet, "gr", "ours") == "not run"


def test_a_paper_that_prints_another_dataset_is_said() -> None:
    notes = tables.build("em.3", Found([], {})).notes
    assert "the paper prints this table for cub alone" in notes
    assert not any("alone" in note for note in tables.build("em.3", Found([], {}), dataset="cub").notes)


def test_another_protocols_runs_make_its_table() -> None:
    """Where nothing was run under ours, the table is of the protocol that was run."""
    plan = bench.make_plan("voc2012", ["em", "an"], modes=["finetune"], protocol_name="em", seeds=[0, 1], search=False)
    rows = [p.row(test_map=80.0 + 2 * p.seed + (p.method == "em"), validation_map=80.0) for p in plan]
    sheet = tables.build("em.1", Found(rows, {}))
    assert cell_of(sheet, "em", "ours") == "82.00 ± 1.41"
    assert cell_of(sheet, "em", "Δ AN") == "+1.00"
    assert any(note.startswith("protocol em ") for note in sheet.notes)
    mixed = tables.build("em.1", Found([*rows, *some_rows()], {}))
    assert cell_of(mixed, "an", "ours") == "85.03 ± 0.15"
    asked = tables.build("em.1", Found([*rows, *some_rows()], {}), rules="em")
    assert cell_of(asked, "an", "ours") == "81.00 ± 1.41"


def test_f1_that_was_not_measured_is_said() -> None:
    sheet = tables.build("em.7", Found(some_rows(), {}))
    assert cell_of(sheet, "em", "micro-F1") == "not measured"


def test_without_results_a_table_says_so_in_one_line(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        found = tables.find(place)
        with pytest.raises(FileNotFoundError, match=r"no results there.*onelabel bench DATA --out") as told:
            tables.build("role.1", found)
        assert "\n" not in str(told.value)
        assert tables.build("gr.6", found).rows  # of the recipes alone
        with pytest.raises(FileNotFoundError, match="no results there"):
            page.write_page(place, tmp_path / "page.md")


def test_a_sweep_after_linear_initialisation_is_shown_with_its_lines_in_order() -> None:
    plan = bench.sweep("role.k", "voc2012", mode="linearinit", seeds=[0])
    (text,) = [
        t for t in page.sweeps(tables.Results([p.row(test_map=88.0) for p in plan], {}), "voc2012") if "role.k" in t
    ]
    assert text.startswith("**role.k, linearinit (ROLE A1")
    assert "lr 1e-05, batch 8" in text
    plan = [p for p in bench.sweep("gr.mu", "voc2012", seeds=[0]) if p.hyper["mu"] in (0.2, 0.4)]
    rows = [p.row(test_map=85.0) for p in reversed(plan)]
    (text,) = [t for t in page.sweeps(tables.Results(rows, {}), "voc2012") if t.startswith("**gr.mu")]
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| gr")] == [
        "| gr sigma=0.1", "| gr sigma=0.5", "| gr sigma=1",
    ]  # fmt: skip


def test_a_sweep_has_its_figure_where_one_was_drawn(tmp_path: Path) -> None:
    rows = [p.row(test_map=80.0) for p in bench.sweep("em.alpha", "voc2012", seeds=[0])]
    for row in rows:
        bench.write(tmp_path / "results", row)
    target = page.write_page(tmp_path / "results", tmp_path / "page.md")
    assert "![" not in target.read_text()
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "bench-em.alpha.svg").write_text("<svg/>")
    (tmp_path / "figures" / "bench-gr.mu.svg").write_text("<svg/>")  # of a sweep that was not run
    page.write_page(tmp_path / "results", target)
    assert target.read_text().count("![") == 1
    assert "![em.alpha: weight of the entropy](figures/bench-em.alpha.svg)" in target.read_text()


def test_anchors_are_shown_as_measured() -> None:
    text = page.page(tables.Results([*some_rows(), *some_rows("linear")], {}))
    assert "87.35; averaged 87.95; GR's program 87.5" in text
    assert "83.1; ROLE's program 83.0" in text


def test_rows_that_repeat_anothers_numbers_are_said() -> None:
    assert any("WAN" in note and "`dw`" in note for note in tables.build("lasd.2", Found([], {})).notes)
    assert any("plain ASL" in note for note in tables.build("lasd.3", Found([], {})).notes)
    assert any("linear initialisation" in note for note in tables.build("gr.2", Found([], {})).notes)
    # GR's ROLE repeats EM's with linear initialisation where the numbers are EM's: not on NUS-WIDE and CUB
    for dataset in ("voc2012", "coco2014", "nuswide", "cub"):
        (role,) = [n for n in published("gr", "2", dataset) if n.method == "role"]
        theirs = {n.value for n in published("em", "1", dataset) if n.method == "role" and n.setting == "linearinit"}
        assert (role.setting == "linearinit") == (role.value in theirs), dataset


def test_a_dataset_without_runs_is_said() -> None:
    notes = tables.build("role.1", Found(some_rows(), {}), dataset="voc2021").notes
    assert "no runs of voc2021 here; there are runs of voc2012" in notes
    assert "no runs of voc2012 here" in tables.build("role.1", Found([], {})).notes


def test_the_page_begins_with_the_best_of_one_label() -> None:
    sheet = page.overview(tables.Results([*some_rows(), *some_rows("linear")], {}), "voc2012", "finetune")
    assert page.brief(sheet, "fine-tuned") == (
        "**Fine-tuned**, test mAP, three seeds unless said: best with one label per picture `gr` 87.97 ± 0.15, "
        "`em` 87.07 ± 0.85; `an` 85.03 ± 0.15; `bce` (full) 89.10 ± 0.10."
    )
    single = [row for row in some_rows() if row.method != "gr" and (row.method != "em" or row.seed == 0)]
    assert "picture `em` 86.20 (1 seed); `an`" in page.brief(
        page.overview(tables.Results(single, {}), "voc2012", "finetune"), "fine-tuned"
    )
    assert page.brief(page.overview(tables.Results([], {}), "voc2012", "linear"), "linear").endswith("not run.")
