"""`onelabel bench`: the whole way from a file to a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.bench.plan import make_plan
from onelabel.bench.results import read, write_rows
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
    words = [
        "bench",
        file,
        "--methods",
        "an,gr:robust",
        "--seeds",
        2,
        "--search",
        "none",
        "--out",
        out,
        "--set",
        "epochs=2",
    ]
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
    words += ["--search", "none", "--backbone", "small-cnn", "--weights", "random", "--size", 24, "--set", "epochs=1"]
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
    for option, wrong in (("--seeds", "x"), ("--seeds", "1,x"), ("--seeds", "-1"), ("--search", "lr")):
        code, _, error = call(capsys, "bench", "voc2012", "--methods", "em", f"{option}={wrong}", "--dry")
        assert (code, error.count("\n")) == (2, 1)
        assert error.startswith(f"error: {option}: '{wrong}', expected ")
    code, _, error = call(capsys, "bench", "voc2012", "--methods", "emm", "--dry")
    assert code == 2
    assert "did you mean 'em'" in error


def test_failed_runs_are_an_exit_code_until_they_are_made_again(
    tmp_path: Path, make: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    splits, file = make(rows=40), tmp_path / "toy.npz"
    train, test = splits.train, splits.test
    np.savez(file, X=train.X, true=train.true, X_test=test.X, true_test=test.true)
    words = ["bench", file, "--methods", "an", "--seeds", 1, "--search", "none", "--out", tmp_path / "results"]
    words += ["--set", "epochs=1", "--device", "cpu"]
    with monkeypatch.context() as patch:
        patch.setattr("onelabel.bench.probing.fit", lambda *_, **__: 1 / 0)
        code, text, error = call(capsys, *words)
    assert (code, "0 runs made, 1 failed" in text) == (1, True)
    assert "1 of these runs failed, now or before: --retry makes them again" in error
    assert call(capsys, *words)[0] == 1  # skipped, and failed still
    assert call(capsys, *words, "--retry")[0] == 0
    assert call(capsys, *words)[0] == 0


def test_looking_into_a_database_that_is_not_there_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    url = f"sqlite:///{tmp_path}/typo.db"
    code, _, error = call(capsys, "bench", "table", "role.1", "--results", url)
    assert (code, error.count("\n"), f"{url}: no results there" in error) == (2, 1, True)
    code, text, _ = call(capsys, "bench", "voc2012", "--methods", "an", "--seeds", 1, "--out", url, "--dry")
    assert (code, "8 runs: 0 done" in text) == (0, True)
    assert list(tmp_path.iterdir()) == []


def test_a_search_is_planned_and_its_table_names_the_protocol(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "voc2012", "--methods", "em,an", "--seeds", 1, "--out", tmp_path / "none", "--dry"]
    for search, runs in (("none", 2), ("rates", 16), ("hyper", 7), ("rates,hyper", 56)):
        assert f"{runs} runs: 0 done" in call(capsys, *words, "--search", search)[1], search
    plan = make_plan("voc2012", ["an"], protocol_name="em", seeds=[0], search=False)
    plan += make_plan("voc2012", ["an-ls"], seeds=[0], search=False, search_hyper=True)
    values = [80.0 + 10 * p.hyper.get("unknown_smoothing", 0) for p in plan]
    write_rows(
        tmp_path / "rows.parquet", [p.row(test_map=v, validation_map=v) for p, v in zip(plan, values, strict=True)]
    )
    table = ["bench", "table", "role.1", "--results", tmp_path, "--format", "csv"]
    _, text, _ = call(capsys, *table, "--protocol", "em")
    assert "an,linear,80.00,1" in text
    _, text, _ = call(capsys, *table)
    assert "an,linear,not run so (1 run with other settings)" in text
    assert "an-ls,linear,81.00,1" in text
    assert '"unknown_smoothing=0.3; 0.0001, 8 (best of 9)"' in call(capsys, *table, "--search", "hyper")[1]
    code, _, error = call(capsys, *table, "--protocol", "emm")
    assert (code, "did you mean 'em'" in error) == (2, True)


def test_pictures_that_cannot_be_read_are_in_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fine-tuned and linear runs count the rows that are left, and measure by their labels."""
    monkeypatch.setenv("ONELABEL_CACHE", str(tmp_path / "cache"))
    from PIL import Image

    rng, photos, out = np.random.default_rng(0), tmp_path / "photos", tmp_path / "results"
    for part, number in ((part, n) for part in ("train", "val", "test") for n in range(12)):
        file = photos / part / ("dark", "light")[number % 2] / f"{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((rng.integers(0, 128, (16, 16, 3)) + 127 * (number % 2)).astype(np.uint8)).save(file)
        if number == 3:
            file.write_bytes(file.read_bytes()[:400])
    words = ["bench", photos, "--methods", "an", "--modes", "finetune,linear", "--seeds", 1, "--search", "none"]
    words += ["--backbone", "small-cnn", "--weights", "random", "--size", 16, "--set", "epochs=1", "--device", "cpu"]
    code, text, errors = call(capsys, *words, "-o", "complete=true", "--out", out)
    assert code == 0, text + errors
    rows = read(out)
    assert sorted(row.mode for row in rows) == ["finetune", "linear"]
    assert [row.rows for row in rows] == [{"train": 11, "validation": 11, "test": 11}] * 2
