"""Which run a report is about."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsing import Reader
from test_page import synthetic

from onelabel.report import write_report
from onelabel.report.choice import choose, main_run, names
from onelabel.report.numbers import class_rows, headline, next_steps
from onelabel.report.runs import RunView, read_runs


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of AN and EM whose validation has one observed label a row and no true ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONELABEL_QUIET", "1")
        return synthetic(tmp_path_factory.mktemp("blind"), ["a", "b", "c", "d"], truth=False)


def told(run: RunView, mean_ap: float, likelihood: float | None = None) -> RunView:
    """The same run with other numbers of validation at its best epoch, and worse ones elsewhere."""
    history = [{k: v for k, v in row.items() if not k.startswith("validation")} for row in run.history]
    for i, row in enumerate(history):
        away = abs(i - run.result["best_epoch"])
        row["validation_mAP"] = mean_ap - away
        if likelihood is not None:
            row["validation_likelihood"] = likelihood - away
    return replace(run, result={**run.result, "validation_mAP": mean_ap}, history=history)


def words(target: Path) -> str:
    return re.sub(r"\s+", " ", " ".join(Reader(target.read_text(encoding="utf-8")).text))


def test_where_nobody_knows_validation_it_is_the_likeliest(blind: list[Path], tmp_path: Path) -> None:
    """As training chose the epochs, though config.toml says mAP."""
    an, em = read_runs(blind)
    assert [run.config.select for run in (an, em)] == ["mAP", "mAP"]
    for low, high in ((an, em), (em, an)):
        runs = [told(low, 60.0, -1.5), told(high, 50.0, -1.2)]
        choice = choose(runs)
        assert (choice.run.label, choice.by) == (high.label, "likelihood")
        rows = headline(runs)
        assert [row["best"] for row in rows] == [False, True]
        assert [row["likelihood"] for row in rows] == [-1.5, -1.2]
    values = [max(row["validation_likelihood"] for row in run.history) for run in (an, em)]
    text = words(write_report(blind, tmp_path / "x.html"))
    assert "the best of the runs on partial labels by validation likelihood" in text
    assert "by validation mAP" not in text
    for value in values:
        assert f"−{-value:.3f}" in text


def test_a_lead_is_close_by_the_same_measure(blind: list[Path]) -> None:
    def seeds(lead: float) -> str:
        runs = [told(an, 60.0, -1.2 - lead), told(em, 50.0, -1.2)]
        return " | ".join(step["text"] for step in next_steps(runs, class_rows(runs, None), None, "photos"))

    an, em = read_runs(blind)
    assert "another seed" not in seeds(0.03)
    assert f"{em.label} leads {an.label} by less than 0.02 of log-likelihood" in seeds(0.01)


def test_with_true_labels_it_is_the_best_map(runs: list[Any], tmp_path: Path) -> None:
    an, em = told(runs[0], 70.0), told(runs[1], 60.0)
    choice = choose([em, an])
    assert (choice.run, choice.by, choice.bold) == (an, "mAP", True)
    assert (
        choice.told
        == "Bold: the best of the runs on partial labels by validation mAP; the rest of this page is about it."
    )
    assert "validation likelihood" not in words(write_report([run.path for run in runs[:2]], tmp_path / "x.html"))


def test_what_was_chosen_otherwise_is_compared_by_true_labels_alone(runs: list[Any], blind: list[Path]) -> None:
    """mAP of observed labels and a likelihood have no order; mAP of true labels does for both."""
    likely, by_map = told(runs[0], 60.0, -1.0), told(runs[1], 70.0)
    choice = choose([likely, by_map])
    assert (choice.run, choice.by) == (by_map, "mAP")
    assert "(validation mAP: EM; validation likelihood: AN)" in choice.told
    an, em = read_runs(blind)
    choice = choose([told(an, 60.0, -1.0), told(em, 70.0)])
    assert (choice.run.label, choice.by, choice.bold) == ("AN", None, False)
    assert choice.told.startswith("No run is set in bold: their best epochs were chosen by different criteria")
    assert not any(row["best"] for row in headline([told(an, 60.0, -1.0), told(em, 70.0)]))


def test_without_validation_the_test_part_chooses_nothing(runs: list[Any]) -> None:
    bare = []
    for run, test in zip(runs[:2], (50.0, 90.0), strict=True):
        result = {k: v for k, v in run.result.items() if not k.startswith("validation")} | {"test_mAP": test}
        history = [{k: v for k, v in row.items() if not k.startswith("validation")} for row in run.history]
        bare.append(replace(run, result=result, history=history))
    choice = choose(bare)
    assert (choice.run, choice.bold) == (bare[0], False)
    assert "nothing measured on validation compares them" in choice.told


def test_one_run_on_partial_labels_needs_no_criterion(runs: list[Any]) -> None:
    full = next(run for run in runs if run.full)
    assert choose(runs[:1]).told == ""
    choice = choose([full, runs[0]])
    assert (choice.run, choice.bold, choice.told) == (runs[0], True, "Bold: AN; the rest of this page is about it.")


def test_a_run_under_way_is_not_the_best(runs: list[Any]) -> None:
    begun = replace(runs[0], result={})
    assert main_run([begun, runs[1]]) is runs[1]


def test_names() -> None:
    assert names(["a", "b"]) == "a, b"
    assert names(list("abcde")) == "a, b, c and 2 more"
