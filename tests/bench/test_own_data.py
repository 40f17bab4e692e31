"""Anyone's own data in the bench: what tells them apart, their k, and the table of all that was run on them."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from onelabel.bench import all_table, command, datasets, probing, tables
from onelabel.bench.plan import make_plan
from onelabel.bench.results import Found, Row, read, write_rows
from onelabel.bench.runner import run
from onelabel.cli import main
from onelabel.data import load_dataset


def call(capsys: pytest.CaptureFixture[str], *argv: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, argv)))
    out = capsys.readouterr()
    return int(stop.value.code or 0), out.out, out.err


def save(file: Path, splits: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    train, test = splits.train, splits.test
    np.savez(file, X=train.X, true=train.true, X_test=test.X, true_test=test.true)
    return file


def test_other_data_splits_and_draws_are_other_runs(
    tmp_path: Path, make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = save(tmp_path / "a/data.npz", make()), save(tmp_path / "b/data.npz", make(seed=3))
    same = save(tmp_path / "c/data.npz", make())
    words = ["--methods", "an", "--seeds", 1, "--search", "none", "--set", "epochs=1", "--out", tmp_path / "out"]
    for more, made in (
        ([one], 1), ([other], 1), ([one, "-o", "split_seed=5"], 1), ([one, "-o", "validation=0.4"], 1),
        ([one, "--draws", "uniform:77"], 1), ([one], 0), ([same], 0), ([same, "-o", "validation=0.4"], 0),
    ):  # fmt: skip
        code, text, _ = call(capsys, "bench", *more, *words, "--device", "cpu")
        assert (code, f"\n{made} runs made" in text) == (0, True), more
    rows = read(tmp_path / "out")
    assert len({row.dataset for row in rows}) == 4
    assert {datasets.without_mark(row.dataset) for row in rows} == {"data"}
    assert sorted({row.test_map for row in rows}) == sorted(row.test_map for row in rows)
    code, _, error = call(capsys, "bench", "table", "all", "--results", tmp_path / "out", "--dataset", "data")
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith("error: 4 data are called data: --dataset says which, data-")


def test_copies_of_pictures_are_the_same_data_and_other_pictures_are_not(tmp_path: Path) -> None:
    from PIL import Image

    def photos(name: str, size: int, when: int) -> str:
        for part, number in ((part, n) for part in ("train", "val", "test") for n in range(4)):
            file = tmp_path / name / "photos" / part / ("dark", "light")[number % 2] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (size, size), (number, 0, 0)).save(file)
            os.utime(file, (when, when))
        return datasets.marked("photos", load_dataset(tmp_path / name / "photos"))

    assert photos("a", 8, 1_000_000) == photos("b", 8, 2_000_000) != photos("c", 64, 1_000_000)


def test_a_benchmark_as_published_keeps_its_name_and_is_not_read(tmp_path: Path) -> None:
    assert command.open_data("voc2012", root=str(tmp_path)) == ("voc2012", None)
    assert command.open_data("digits-scenes", loader={"n_train": 60, "n_test": 30}, size=24)[0] != "digits-scenes"
    (planned,) = make_plan("voc2012", ["role"], seeds=[0], search=False, k=3.0)
    (own,) = make_plan("voc2012-1a2b3c4d", ["role"], seeds=[0], search=False, k=3.0)
    assert planned.hyper == own.hyper == {"expected_positives": 1.5}  # its recipe's, whatever the data have
    assert planned.settings == own.settings


def test_labels_are_drawn_by_draws_alone(tmp_path: Path, make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = save(tmp_path / "toy.npz", make())
    code, _, error = call(capsys, "bench", file, "--methods", "an", "--dry", "-o", "seed=77")
    assert (code, error.count("\n"), "--draws uniform:77" in error) == (2, 1, True)
    for name in ("labels.npz", "features-resnet50-448.npz"):
        (tmp_path / name).touch()
    code, _, error = call(capsys, "bench", tmp_path, "--methods", "an", "--dry", "-o", "validation=0.4")
    assert (code, "VOC features has the published split" in error) == (2, True)


def test_k_is_the_datas_unless_said(tmp_path: Path, make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = save(tmp_path / "toy.npz", make()), tmp_path / "out"
    words = ["bench", file, "--methods", "an,role", "--seeds", 1, "--search", "none", "--out", out]
    words += ["--set", "epochs=1", "--device", "cpu"]
    code, text, _ = call(capsys, *words)
    assert code == 0
    assert "resnet50" not in text
    assert "mirrored" not in text
    k = load_dataset(file).train.true.sum(1).mean()
    hypers = {row.method: row.hyper for row in read(out)}
    assert hypers == {"an": {}, "role": {"expected_positives": pytest.approx(k, abs=1e-4)}}
    assert "1 runs made" in call(capsys, *words, "-y", "expected_positives=2.5")[1]  # an does not take it
    assert {row.hyper.get("expected_positives") for row in read(out)} == {
        None,
        2.5,
        hypers["role"]["expected_positives"],
    }
    for wrong, told in (("alfa=1", "no method here takes 'alfa'; they take"), ("lam=-1", "lam must")):
        code, _, error = call(capsys, *words, "-y", wrong, "--dry")
        assert (code, error.count("\n"), told in error) == (2, 1, True), error
    unknown = make_plan("toy", ["an", "role"], seeds=[0], search=False)
    assert "k is not known here: role with the default; -y expected_positives=K sets it" in command.summary(
        unknown, out
    )


def test_paper_tables_take_runs_with_the_datas_k() -> None:
    (planned,) = make_plan("toy-1a2b3c4d", ["role"], seeds=[0], search=False, k=2.25)
    sheet = tables.build("role.1", Found([planned.row(test_map=70.0)], {}), dataset="toy-1a2b3c4d")
    assert [row[2] for row in sheet.rows if row[:2] == ("role", "linear")] == ["70.00"]


def toy_rows() -> list[Row]:
    """an, em and gr with three seeds, em also with another alpha and with one that failed."""
    values = {"an": (60.0, 61.0, 63.0), "em": (64.0, 66.0, 66.5), "gr": (70.0, 70.0, 75.0)}
    plan = make_plan("toy-1a2b3c4d", list(values), search=False)
    rows = [p.row(test_map=values[p.name][p.seed], validation_map=50.0, rows={"train": 9}) for p in plan]
    by_hand = make_plan("toy-1a2b3c4d", ["em"], search=False, hyper={"alpha": [0.9]})
    rows += [p.row(test_map=values["em"][p.seed] + 1.5 + p.seed, validation_map=51.0) for p in by_hand]
    (broken,) = make_plan("toy-1a2b3c4d", ["epr"], seeds=[0], search=False)
    return [*rows, broken.row(status="failed", error="ValueError: no")]


def as_csv(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[tuple[str, str], dict[str, str]]:
    code, text, error = call(capsys, "bench", "table", "all", "--format", "csv", *words)
    assert code == 0, error
    return {(row["method"], row["with"]): row for row in csv.DictReader(io.StringIO(text))}


def test_the_table_of_all_that_was_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = toy_rows()
    write_rows(tmp_path / "rows.parquet", rows)
    found = as_csv(capsys, "--results", tmp_path)  # the only dataset there is
    assert list(found) == [("gr", "–"), ("em", "alpha=0.9"), ("em", "–"), ("an", "–"), ("epr", "–")]
    assert found["gr", "–"]["test mAP"] == "71.67 ± 2.89"
    assert found["epr", "–"]["test mAP"] == "failed: ValueError: no"
    assert (found["gr", "–"]["Δ an"], found["an", "–"]["Δ an"]) == ("+10.33", "–")
    of = {
        name: [r.test_map for r in rows if r.method == name and "alpha" not in r.hyper] for name in ("an", "em", "gr")
    }
    p = {name: ttest_rel(of[name], of["an"]).pvalue for name in ("em", "gr")}
    p["by hand"] = ttest_rel([v + 1.5 + i for i, v in enumerate(of["em"])], of["an"]).pvalue
    assert found["gr", "–"]["p (Holm)"] == f"{min(p.values()) * 3:.3f}" == f"{p['gr'] * 3:.3f}"
    against = as_csv(capsys, "--results", tmp_path, "--dataset", "toy", "--baseline", "em")
    assert against["em", "alpha=0.9"]["Δ em"] == "+2.50"  # the baseline is the one with the recipe's settings
    assert against["em", "–"]["Δ em"] == "–"
    for form, told in (("text", "1 run failed"), ("markdown", "| gr | linear |"), ("latex", r"gr & linear & ")):
        _, text, _ = call(capsys, "bench", "table", "all", "--results", tmp_path, "--format", form)
        assert told in text
        assert "resnet50" not in text


@pytest.mark.parametrize("dataset", ["toy", "voc2012"])
def test_a_table_says_which_labels_were_drawn(dataset: str) -> None:
    plan = make_plan(dataset, ["an", "em"], seeds=[0], search=False, draws=["biased:1", "uniform:2"])
    rows = [p.row(test_map=50.0) for p in plan]
    for some, drawn in ((rows, "biased:1:1200, uniform:2"), ([r for r in rows if r.draw == "uniform:2"], "uniform:2")):
        notes = all_table.build(tables.Results(some, {}), dataset).notes
        (said,) = (note for note in notes if note.startswith("protocol "))
        assert f": labels {drawn};" in said
    assert f": labels {drawn};" in command.summary([p for p in plan if p.draw == "uniform:2"], "nowhere")


def test_what_a_table_cannot_be_of_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "rows.parquet", toy_rows())
    table = ["bench", "table", "--results", tmp_path]
    for words, told in (
        (["all", "--baseline", "role"], "--baseline: 'role' was not run on toy-1a2b3c4d; there are gr, em, an, epr"),
        (["role.1", "--baseline", "em"], "--baseline: role.1 is a paper's table, against AN"),
        (["all", "--dataset", "voc2012"], "no runs of voc2012 here; there are runs of toy-1a2b3c4d"),
        (["role.1", "--dataset", "voc2012"], "no runs of voc2012 here; there are runs of toy-1a2b3c4d"),
    ):
        code, _, error = call(capsys, *table, *words)
        assert (code, error) == (2, f"error: {told}" + error[len(f"error: {told}") :])
        assert error.count("\n") == 1
    two = [*toy_rows(), make_plan("pets", ["an"], seeds=[0], search=False)[0].row(test_map=1.0)]
    with pytest.raises(ValueError, match="results of pets, toy-1a2b3c4d: --dataset says whose"):
        tables.whose(Found(two, {}))


def test_sweeps_are_no_lines_but_for_the_recipes_own() -> None:
    plan = command.plan_for("toy", sweeps=["em.alpha"], seeds=[0])
    plan += make_plan("toy", ["em"], seeds=[0], search=False, plan="sweep:em.alpha")
    assert len(plan) > 2
    rows = [p.row(test_map=50.0) for p in plan]
    assert len(all_table.build(tables.Results(rows, {}), "toy").rows) == 1


def test_probes_are_written_block_by_block(tmp_path: Path, splits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight, then as many as take about 20 seconds at the pace of the last: an interrupt loses only the last block."""
    assert [probing.at_once(pace, "cpu") for pace in (0.0, 2.0, 100.0)] == [8, 10, 1]
    assert probing.at_once(2.0, "cuda") == probing.GROUP
    plan = make_plan("toy", ["an", "em", "gr"], seeds=range(4), search=False, settings={"epochs": 1})
    sizes, fit = [], probing.fit

    def interrupted(members: Any, *rest: Any, **options: Any) -> Any:
        sizes.append(len(members))
        if len(sizes) > 1:
            raise KeyboardInterrupt
        return fit(members, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(probing, "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(plan, splits, out=tmp_path, device="cpu")
    assert sizes == [8, 4]
    assert len(read(tmp_path)) == 8
    tally = run(plan, splits, out=tmp_path, device="cpu")
    assert (tally.made, tally.skipped) == (4, 8)
