"""Statistics, reports, splits, and the commands around them."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from onelabel.cli.data import app
from onelabel.data import (
    ArraySource,
    DataError,
    Dataset,
    Draw,
    ImageError,
    Report,
    Splits,
    load_dataset,
    split_rows,
    statistics,
    verify_splits,
)
from onelabel.labels import Labels

runner = CliRunner()


@pytest.fixture(scope="module")
def scenes() -> Splits:
    return load_dataset("digits-scenes", size=16, n_train=200, n_validation=50, n_test=30)


def test_statistics_by_plain_loops(scenes: Splits) -> None:
    numbers = statistics(scenes, trials=20_000)
    true = np.concatenate([scenes.train.true, scenes.validation.true])
    observed = np.concatenate([scenes.train.observed.to_dense(), scenes.validation.observed.to_dense()])
    assert numbers.images == {"train": 200, "validation": 50, "test": 30}
    assert numbers.mean == pytest.approx(sum(map(sum, true.tolist())) / 250)
    assert numbers.mean_negative == pytest.approx(10 - numbers.mean)
    assert (numbers.lowest, numbers.highest) == (true.sum(1).min(), true.sum(1).max())
    for c, row in enumerate(numbers.per_class):
        positives = [i for i in range(250) if true[i, c]]
        unknown = [i for i in positives if observed[i, c] == 0]
        assert (row.true, row.unknown) == (len(positives), len(unknown))
        assert row.observed == len(positives) - len(unknown)
        assert row.unknown_share == pytest.approx(len(unknown) / len(positives))
    rng = np.random.default_rng(5)
    for size, (low, high) in numbers.intervals.items():
        means = [true[rng.choice(250, size, replace=False)].sum(1).mean() for _ in range(4000)]
        assert np.percentile(means, [5, 95]) == pytest.approx([low, high], abs=1.5 / size)
    assert "200" in numbers.text()
    assert "–" in numbers.text(classes=False)


def test_statistics_of_own_data(class_folder: Path) -> None:
    numbers = statistics(load_dataset(class_folder))
    assert numbers.known == "observed"
    assert (numbers.mean, numbers.intervals) == (1.0, {})
    assert [row.unknown_share for row in numbers.per_class] == [None] * 3
    assert "cat" in numbers.text()


def test_statistics_saved(scenes: Splits, tmp_path: Path) -> None:
    numbers = statistics(scenes, trials=100)
    numbers.save(tmp_path / "s.json")
    saved = json.loads((tmp_path / "s.json").read_text())
    assert saved["classes"] == 10
    assert saved["per_class"][3]["unknown_share"] == numbers.per_class[3].unknown_share
    numbers.save(tmp_path / "s.csv")
    with open(tmp_path / "s.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["class"] for row in table] == list("0123456789")
    assert float(table[2]["unknown_share"]) == pytest.approx(numbers.per_class[2].unknown_share)
    with pytest.raises(ValueError, match=r"expected \.json or \.csv"):
        numbers.save(tmp_path / "s.txt")


# --- the objects -------------------------------------------------------------------------------------------------


def test_report() -> None:
    report = Report()
    for i in range(7):
        report.add("broken", f"{i}.jpg", "bad")
    report.add("grey", "g.png")
    assert report.counts == {"broken": 7, "grey": 1}
    assert report.lost == 7
    assert "7 broken (left out)" in str(report)
    assert "and 2 more" in str(report)
    assert "0.jpg: bad" in str(report)
    with pytest.raises(ValueError, match="kind: 'odd'"):
        report.add("odd", "x")
    strict = Report(strict=True)
    strict.add("grey", "fine.png")  # harmless
    with pytest.raises(DataError, match=r"^x\.jpg: zero bytes; fix it"):
        strict.add("empty-file", "x.jpg")
    assert str(Report()) == "no problems"
    error = pickle.loads(pickle.dumps(ImageError("broken", "a.jpg", "why")))
    assert (error.kind, error.name, str(error)) == ("broken", "a.jpg", "a.jpg: broken picture (why)")


def test_datasets_check_their_shapes() -> None:
    source = ArraySource(np.zeros((3, 4, 4, 3), np.uint8))
    observed = Labels.from_classes([0, 1, 0], num_classes=2)
    made = Dataset("x", ("a", "b"), source, observed)
    assert made.take([2, 0]).source.paths == ["000002", "000000"]
    assert len(made.take(np.array([True, False, True]))) == 2
    with pytest.raises(ValueError, match="rows"):
        made.take([3])
    with pytest.raises(ValueError, match="observed"):
        Dataset("x", ("a", "b", "c"), source, observed)
    with pytest.raises(ValueError, match="true: float64"):
        Dataset("x", ("a", "b"), source, observed, np.zeros((3, 2)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="images"):
        ArraySource(np.zeros((3, 4, 4), np.uint8))
    with pytest.raises(ValueError, match="paths"):
        ArraySource(np.zeros((3, 4, 4, 3), np.uint8), ["a"])


def test_draw_options(scenes: Splits) -> None:
    true = scenes.train.true
    every = Draw(drop="none").observe(true, scenes.class_names)
    assert every.is_fully_observed
    two = Draw(positives=2, negatives=1).observe(true, scenes.class_names)
    np.testing.assert_array_equal(two.positives_per_row(), np.minimum(2, true.sum(1)))
    np.testing.assert_array_equal(two.counts().negatives.sum(), len(true))
    mine = Draw(drop=lambda y: Labels.from_true(1 - y)).observe(true, scenes.class_names)
    assert mine.is_fully_observed
    with pytest.raises(ValueError, match="scheme"):
        Draw(drop="nonsense").observe(true, scenes.class_names)
    assert [len(rows) for rows in Draw(split_seed=3, validation=0.5).split(11)] == [5, 6]
    assert len(split_rows(10, 0)[1]) == 0
    with pytest.raises(ValueError, match="validation"):
        split_rows(10, 1.0)


def test_verify_splits(class_folder: Path) -> None:
    (class_folder / "cat" / "cat0.jpg").write_bytes((class_folder / "cat" / "cat1.jpg").read_bytes()[:-150])
    splits = load_dataset(class_folder)
    whole = sum(map(len, splits.parts.values()))
    checked = verify_splits(splits)
    assert sum(map(len, checked.parts.values())) == whole - 1
    assert checked.report.names("truncated") == ["cat/cat0.jpg"]
    with pytest.raises(ValueError, match="verify"):
        verify_splits(splits, verify="some")  # type: ignore[arg-type]


# --- the commands ------------------------------------------------------------------------------------------------


def test_stats_command(tmp_path: Path) -> None:
    out = tmp_path / "s.json"
    options = ["-o", "size=16", "-o", "n_train=50", "-o", "n_test=0", "--out", str(out), "--no-classes"]
    result = runner.invoke(app, ["stats", "digits-scenes", *options])
    assert result.exit_code == 0, result.output
    assert "10 classes" in result.output
    assert json.loads(out.read_text())["images"]["train"] == 50


def test_check_command(class_folder: Path, tmp_path: Path) -> None:
    assert runner.invoke(app, ["check", str(class_folder)]).exit_code == 0
    (class_folder / "cat" / "cat0.jpg").write_bytes(b"")
    result = runner.invoke(app, ["check", str(class_folder), "--report", str(tmp_path / "r.json")])
    assert result.exit_code == 1
    assert "1 empty-file (left out)" in result.output
    assert "cat/cat0.jpg" in result.output
    assert json.loads((tmp_path / "r.json").read_text())["counts"] == {"empty-file": 1}
    assert isinstance(runner.invoke(app, ["check", str(class_folder), "--strict"]).exception, DataError)
    result = runner.invoke(app, ["check", "cub", "--root", str(tmp_path)])
    assert result.exit_code == 1
    assert "CUB_200_2011.tgz" in result.output


def test_download_command_without_an_address(tmp_path: Path) -> None:
    result = runner.invoke(app, ["download", "nuswide", "--root", str(tmp_path)])
    assert result.exit_code == 1
    assert "Concepts81.txt" in result.output
    assert str(tmp_path / "nuswide") in result.output


def test_manifest_command(class_folder: Path, tmp_path: Path) -> None:
    for reused in (0, 12):
        result = runner.invoke(app, ["manifest", str(class_folder), "--out", str(tmp_path / "m.parquet")])
        assert result.exit_code == 0
        assert f"12 pictures in {tmp_path / 'm.parquet'}, {reused} unchanged" in result.output
