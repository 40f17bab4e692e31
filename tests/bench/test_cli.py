"""`onelabel bench`: the whole way from a file to a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.bench.results import read
from onelabel.cli import main


def call(capsys: pytest.CaptureFixture[str], *argv: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, argv)))
    out = capsys.readouterr()
    return int(stop.value.code or 0), out.out, out.err


def test_from_a_file_to_a_table(tmp_path: Path, make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    splits, file, out = make(rows=100), tmp_path / "toy.npz", tmp_path / "results"
    train, test = splits.train, splits.test
    np.savez(file, X=train.X, true=train.true, X_test=test.X, true_test=test.true)
    words = ["bench", file, "--methods", "an,gr:robust", "--seeds", 2, "--no-search", "--out", out, "--set", "epochs=2"]
    code, text, _ = call(capsys, *words, "--dry")
    assert (code, "4 runs: 0 done, 0 failed, 4 to do" in text) == (0, True)
    assert "an, gr:robust · linear · seeds 0, 1\n" in text
    assert not (out / "claims").exists()
    code, text, _ = call(capsys, *words, "--device", "cpu")
    assert code == 0
    assert "4 runs made, 0 failed" in text
    assert "gr:robust linear seed 1: validation" in text
    assert "0 runs made, 0 failed, 4 skipped" in call(capsys, *words, "--device", "cpu")[1]
    code, text, _ = call(capsys, "bench", "table", "role.1", "--results", out, "--dataset", "toy", "--format", "csv")
    assert code == 0
    assert "an,linear," in text
    assert "role,linear,not run" in text
    packed = tmp_path / "all.parquet"
    assert "4 rows" in call(capsys, "bench", "pack", out, packed)[1]
    assert "bench.md" in call(capsys, "bench", "docs", "--results", packed, "--out", tmp_path / "bench.md")[1]


def test_pictures_are_recorded_with_their_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    words = ["bench", "digits-scenes", "--methods", "an", "--modes", "linear,finetune,linearinit", "--seeds", 1]
    words += ["--no-search", "--backbone", "small-cnn", "--weights", "random", "--size", 24, "--set", "epochs=1"]
    words += ["--set", "linear_epochs=1", "-o", "n_train=60", "-o", "n_test=30", "--out", out, "--device", "cpu"]
    code, text, _ = call(capsys, *words)
    assert code == 0, text
    found = {row.mode: row for row in read(out)}
    assert {mode: row.status for mode, row in found.items()} == dict.fromkeys(
        ("linear", "finetune", "linearinit"), "done"
    )
    for row in found.values():
        assert (row.settings["backbone"], row.settings["size"]) == ("small-cnn", 24)
        assert row.weights == "random"
        assert row.train_map is not None
    assert found["finetune"].test_ap_of == "averaged, flips"
    assert found["finetune"].test_map_averaged_flip == pytest.approx(100 * np.mean(found["finetune"].test_ap))


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert "gr.mu" in call(capsys, "bench", "sweeps")[1]
    assert "em.7" in call(capsys, "bench", "table")[1]
    assert "early stopping at the first epoch that does not improve" in call(capsys, "bench", "protocols")[1]


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = call(capsys, "bench", "table", "role.9", "--results", tmp_path)
    assert code == 2
    assert error.startswith("error: there is no table 'role.9'")
    code, _, error = call(capsys, "bench", "table", "role.1", "--results", tmp_path / "nothing")
    assert (code, error.count("\n")) == (2, 1)
    assert "no results there" in error
    for wrong, told in (
        ("epoch=3", "there is no setting 'epoch'; did you mean 'epochs'"),
        ("lr=x", "lr: 'x', expected"),
    ):
        code, _, error = call(capsys, "bench", "voc2012", "--methods", "em", "--set", wrong, "--dry")
        assert (code, error.count("\n"), told in error) == (2, 1, True), error  # once, not a failed row for every run
    code, _, error = call(capsys, "bench", "voc2012", "--methods", "emm", "--dry")
    assert code == 2
    assert "did you mean 'em'" in error
