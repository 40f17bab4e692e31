"""What somebody with a small folder of pictures stumbled over: every command says what it did and what it did not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onelabel.cli import main
from onelabel.labels import Labels
from onelabel.recovery import RecoveredFile
from onelabel.training.carried import more_rows

Call = Callable[..., tuple[int, str, str]]
SMALL = ["--backbone", "small-cnn", "--size", "16", "--device", "cpu"]
ROWS = 40


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 40 pictures of two classes, and a run of them (32 to train on, 8 for validation)."""
    base, rng = tmp_path_factory.mktemp("newcomer"), np.random.default_rng(0)
    for number in range(ROWS):
        pixels = rng.integers(0, 128, (16, 16, 3)) + 127 * (number % 2)
        target = base / "photos" / ("dark", "light")[number % 2] / f"{number:02d}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(target)
    words = ["--method", "em", "--mode", "finetune", "--epochs", "1", "--out", str(base / "run")]
    with pytest.raises(SystemExit) as stop:
        main(["train", str(base / "photos"), *SMALL, *words])
    assert not stop.value.code
    return base


@pytest.fixture
def call(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(home)
    monkeypatch.setenv("ONELABEL_CACHE", str(home / "cache"))

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([*words])
        out = capsys.readouterr()
        return int(stop.value.code or 0), out.out, out.err

    return run


def recover(call: Call, out: Path, *words: str) -> str:
    code, told, errors = call("recover", "run", "--tuned", "--folds", "2", "--device", "cpu", "--out", str(out), *words)
    assert code == 0, errors
    return told


def test_recover_says_what_it_leaves_out_and_includes_it_when_asked(call: Call, tmp_path: Path) -> None:
    told = recover(call, tmp_path / "a.parquet")
    assert "left out: 8 validation pictures" in told
    assert "-o validation=0 recovers them too" in told
    assert RecoveredFile.open(tmp_path / "a.parquet").rows == ROWS - 8
    told = recover(call, tmp_path / "b.parquet", "-o", "validation=0")
    assert "left out" not in told
    assert RecoveredFile.open(tmp_path / "b.parquet").rows == ROWS
    # they are still found
    assert "8 validation pictures with a score and one label or all, a calibration needs 100" in told


def test_recover_finds_the_features_that_compare_made(call: Call, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from onelabel.models import build_backbone

    save_file(build_backbone("small-cnn").state_dict(), tmp_path / "w.safetensors")
    same = [*SMALL, "--weights", str(tmp_path / "w.safetensors")]
    code, _, errors = call("compare", "photos", *same, "--methods", "an", "--lr", "1e-2", "--epochs", "1")
    assert code == 0, errors
    assert "already there" not in errors
    out = str(tmp_path / "r.parquet")
    code, _, errors = call("recover", "photos", *same, "--folds", "2", "--out", out)
    assert code == 0, errors
    assert f"going on with {ROWS} of {ROWS} features already there" in errors


def test_recover_says_why_predict_stays_uncalibrated_and_what_to_do(call: Call, tmp_path: Path) -> None:
    told = recover(call, tmp_path / "r.parquet")
    assert "8 validation pictures with a score and one label or all, a calibration needs 100" in told
    assert "train with more pictures" in told


@pytest.mark.parametrize("there", ["r.parquet", "r.json", "r.csv", "l.npz"])
def test_recover_overwrites_nothing_unless_forced(call: Call, tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    words = ["recover", "run", "--tuned", "--folds", "2", "--device", "cpu"]
    words += ["--out", str(tmp_path / "r.parquet"), "--labels", str(tmp_path / "l.npz")]
    code, _, errors = call(*words)
    assert code == 2
    assert errors.count("\n") == 1
    assert f"{there} exists; nothing is overwritten" in errors
    assert "--force" in errors
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"
    code, _, errors = call(*words, "--force")
    assert code == 0, errors
    assert RecoveredFile.open(tmp_path / "r.parquet").rows == ROWS - 8


def test_training_says_before_it_begins_that_predict_will_be_uncalibrated(call: Call, tmp_path: Path) -> None:
    words = [*SMALL, "--method", "em", "--mode", "finetune", "--epochs", "1", "--out", str(tmp_path / "run")]
    code, _, errors = call("train", "photos", *words)
    assert code == 0, errors
    lines = errors.splitlines()
    told = "onelabel: 8 held-out rows, a calibration of predict's probabilities needs 100: more pictures"
    assert lines.index(told) < next(i for i, line in enumerate(lines) if "epoch 1" in line)
    assert more_rows(400) == "-o validation=0.25"


def test_an_unfinished_run_is_called_so(call: Call, home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "run", tmp_path / "run")
    for name in ("result.json", "scores-validation.npy"):
        (tmp_path / "run" / name).unlink()
    words = ("recover", str(tmp_path / "run"), "--tuned", "--folds", "2", "--out", str(tmp_path / "r.parquet"))
    code, told, errors = call(*words, "--data", "photos")
    assert code == 0, errors
    assert told.splitlines()[-1].startswith(f"{tmp_path}/run: not finished, so its best epoch so far counts")
    assert "more pictures" not in told
    code, told, errors = call("predict", str(tmp_path / "run"), "photos", "--out", str(tmp_path / "p.csv"))
    assert code == 0, errors
    assert "run: not finished" in errors
    assert "a calibration needs" not in told


def test_a_plan_says_how_its_pictures_are_checked(call: Call, tmp_path: Path) -> None:
    recover(call, tmp_path / "r.parquet")
    out = tmp_path / "my plan.parquet"
    code, told, errors = call("audit", "plan", str(tmp_path / "r.parquet"), "--rows", "5", "--out", str(out))
    assert code == 0, errors
    assert told.splitlines()[-1] == f"to check them: onelabel review {tmp_path}/r.parquet --audit '{out}'"


def test_predict_overwrites_nothing_unless_forced(call: Call, tmp_path: Path) -> None:
    target = tmp_path / "labels.jsonl"
    target.write_text("mine")
    code, _, errors = call("predict", "run", "photos", "--out", str(target), "--device", "cpu")
    assert code == 2
    assert "labels.jsonl exists; nothing is overwritten: give another --out, or --force" in errors
    assert target.read_text() == "mine"
    assert call("predict", "run", "photos", "--out", str(target), "--device", "cpu", "--force")[0] == 0
    assert len(target.read_text().splitlines()) == ROWS


def test_auto_says_its_choice_before_it_trains(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise RuntimeError("training began")

    monkeypatch.setattr("onelabel.probes.finetune.train", stop)
    rng = np.random.default_rng(0)
    observed = Labels.from_classes(rng.integers(3, size=80)).to_dense()
    np.savez(
        tmp_path / "f.npz", X=rng.standard_normal((80, 4)).astype(np.float32) + 3 * observed[:, :1], observed=observed
    )
    code, _, errors = call(
        "train", str(tmp_path / "f.npz"), "--method", "auto", "--device", "cpu", "--out", str(tmp_path / "r")
    )
    assert code == 2
    assert "auto: " in errors
    assert errors.index("has the highest") < errors.index("training began")


def test_epochs_help_names_the_linear_phase(call: Call) -> None:
    assert "linear_epochs" in " ".join(call("train", "--help")[1].split())


def test_precision_is_a_share_or_f1(call: Call, tmp_path: Path) -> None:
    code, _, errors = call("recover", "run", "--precision", "high", "--out", str(tmp_path / "r.parquet"))
    assert code == 2
    assert "--precision: 'high', expected a share above 0 and at most 1, or f1" in errors
    recover(call, tmp_path / "a.parquet")
    recover(call, tmp_path / "b.parquet", "--precision", "f1")
    rules = [json.loads((tmp_path / name).read_text())["rule"] for name in ("a.json", "b.json")]
    assert rules == ["expected precision of at least 0.9", "best expected F1"]


@pytest.fixture
def damaged(home: Path, tmp_path: Path) -> Path:
    """The 40 pictures, five of them cut short and one empty."""
    import shutil

    photos = tmp_path / "photos"
    shutil.copytree(home / "photos", photos)
    for name in ("dark/00", "dark/02", "dark/10", "light/01", "light/03"):
        whole = (photos / f"{name}.png").read_bytes()
        (photos / f"{name}.png").write_bytes(whole[: len(whole) // 2])
    (photos / "light" / "05.png").write_bytes(b"")
    return photos


@pytest.mark.parametrize("words", [["--method", "em"], ["--method", "auto"]])
def test_train_leaves_unreadable_pictures_out_and_says_so(
    call: Call, damaged: Path, tmp_path: Path, words: list[str]
) -> None:
    out = tmp_path / "run"
    code, _, errors = call(
        "train", str(damaged), *SMALL, *words, "--mode", "linear", "--weights", "random", "--epochs", "1",
        "--set", "save_scores=true", "--out", str(out),
    )  # fmt: skip
    assert code == 0, errors
    told = [line for line in errors.splitlines() if "left out" in line]
    assert len(told) == 1
    assert "6 left out (1 empty-file, 5 truncated)" in told[0]
    assert f"`onelabel data check {damaged}` lists them" in told[0]
    assert call("data", "check", str(damaged))[0] == 1
    scores = {part: np.load(out / f"scores-{part}.npy") for part in ("train", "validation")}
    assert sum(map(len, scores.values())) == ROWS - 6
    # who loads the run's data again has the same rows
    target = tmp_path / "again.npy"
    code, shown, errors = call("eval", str(out), "--part", "validation", "--device", "cpu", "--scores", str(target))
    assert code == 0, errors
    assert f"mAP of {len(scores['validation'])} validation rows" in shown
    np.testing.assert_allclose(np.load(target), scores["validation"], atol=1e-5)


def test_eval_takes_the_part_there_is_and_all_of_a_table(call: Call, home: Path, tmp_path: Path) -> None:
    code, shown, errors = call("eval", "run", "--device", "cpu")  # a folder per class has no test part
    assert code == 0, errors
    assert "mAP of 8 validation rows (against observed positives" in shown
    names = sorted(p.relative_to(home / "photos") for p in (home / "photos").rglob("*.png"))
    lines = "".join(f"{name},{name.parent.name}\n" for name in names)
    (tmp_path / "truth.csv").write_text(f"path,label\n{lines}")
    words = ["--root", "photos", "-o", "complete=true", "--device", "cpu", "--scores", str(tmp_path / "s.npy")]
    code, shown, errors = call("eval", "run", str(tmp_path / "truth.csv"), *words)
    assert code == 0, errors
    assert "mAP of 40 rows\n" in shown
    assert len(np.load(tmp_path / "s.npy")) == 40


def test_recovered_labels_of_damaged_data_can_be_trained_on(call: Call, damaged: Path, tmp_path: Path) -> None:
    """Recovery leaves unreadable pictures out; the labels it writes have to fit what is trained on."""
    labels, recovered = tmp_path / "l.npz", tmp_path / "r.parquet"
    code, _, errors = call(
        "recover", str(damaged), *SMALL, "--weights", "random", "--folds", "2", "--out", str(recovered),
        "--labels", str(labels),
    )  # fmt: skip
    assert code == 0, errors
    assert len(Labels.load(labels)) == ROWS - 6
    code, _, errors = call(
        "train", str(damaged), *SMALL, "--weights", "random", "--epochs", "1", "--method", "em", "-o", "validation=0",
        "--labels", str(labels), "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 0, errors


def test_a_single_class_is_an_error_to_train_and_a_warning_to_check(call: Call, home: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(home / "photos" / "dark", tmp_path / "one" / "cat")
    code, _, errors = call("train", str(tmp_path / "one"), *SMALL, "--out", str(tmp_path / "run"))
    assert code == 2
    assert errors.count("\n") == 1
    assert "only the class 'cat' was found" in errors
    assert "a folder per class is needed" in errors
    assert not (tmp_path / "run").exists()
    code, shown, _ = call("data", "check", str(tmp_path / "one"))
    assert code == 0
    assert "warning: one: only the class 'cat' was found" in shown
    assert "only the class 'cat'" in json.loads(call("data", "check", str(tmp_path / "one"), "--json")[1])["warning"]
    assert "warning" not in call("data", "check", "photos")[1]


def test_an_unknown_method_names_the_command_that_lists_them(call: Call, tmp_path: Path) -> None:
    code, _, errors = call("train", "photos", *SMALL, "--method", "zzqqy", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "there is no method 'zzqqy'; `onelabel methods` lists them all" in errors


def test_help_says_when_training_is_linearinit(call: Call) -> None:
    assert "linearinit for roll-call unless weights are random, else finetune" in " ".join(
        call("train", "--help")[1].split()
    )


def test_bench_refuses_own_data_before_it_prints_a_plan(call: Call, tmp_path: Path) -> None:
    code, shown, errors = call("bench", "photos/", "--methods", "an", "--out", str(tmp_path / "results"))
    assert code == 2
    assert shown == ""
    assert "a benchmark needs a validation part with its true labels" in errors


def test_a_run_is_not_written_among_the_pictures(call: Call, home: Path, tmp_path: Path) -> None:
    before = sorted(home.glob("photos/**/*"))
    code, _, errors = call("train", "photos", *SMALL, "--method", "em", "--epochs", "1", "--out", "photos")
    assert code
    assert (
        errors.splitlines()[-1]
        == "error: photos: holds other things (dark, …); choose a new folder for the run (--out)"
    )
    assert sorted(home.glob("photos/**/*")) == before
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.txt").write_text("of a terminal")  # its own kind of thing
    assert not call("train", "photos", *SMALL, "--method", "em", "--epochs", "1", "--out", str(tmp_path / "run"))[0]


def test_compare_knows_its_methods_before_it_makes_features(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelabel.probes.compare.read_parts", lambda *_, **__: pytest.fail("features were made"))
    code, _, errors = call("compare", "photos", "--methods", "em,foo")
    assert code
    assert "there is no method 'foo'" in errors


def test_a_class_without_a_row_counts_for_nothing(call: Call, home: Path, tmp_path: Path) -> None:
    (tmp_path / "truth.csv").write_text("image,labels\nlight/01.png,light\nlight/03.png,light\n")
    words = ["--root", str(home / "photos"), "-o", "complete=true", "-o", 'class_names=["dark", "light"]']
    code, told, errors = call("eval", "run", str(tmp_path / "truth.csv"), *words)
    assert code == 0, errors
    assert "     –  dark (none in these rows)" in told
    assert "100.00  mAP of 2 rows" in told  # of the one class that is there


def test_little_is_promised_of_few_pictures(call: Call, tmp_path: Path) -> None:
    told = recover(call, tmp_path / "all.parquet", "--precision", "f1")
    assert ("without an audit this may be too high" in told) == ("expected to be right" in told)


def test_hours_without_a_gpu_are_announced(
    home: Path, monkeypatch: pytest.MonkeyPatch, call: Call, tmp_path: Path
) -> None:
    monkeypatch.setattr("onelabel.training.loop.SLOW", 0)
    monkeypatch.setattr("onelabel.training.loop.SMALL", {})
    words = ["--method", "em", "--epochs", "2"]
    code, _, errors = call("train", "photos", *SMALL, *words, "--mode", "finetune", "--out", str(tmp_path / "a"))
    assert code == 0, errors
    assert "no GPU: 2 epochs of 32 pictures of 16 px may take hours; --size 8 takes a quarter" in errors
    assert "no GPU" not in call("train", "photos", *SMALL, *words, "--mode", "linear", "--out", str(tmp_path / "b"))[2]


def test_recover_looks_for_its_input_first(call: Call, home: Path, tmp_path: Path) -> None:
    (tmp_path / "recovered.parquet").write_text("mine")
    out = ["--out", str(tmp_path / "recovered.parquet")]
    code, _, errors = call("recover", "nope", *out)
    assert (code, errors) == (2, "error: nope: no run or data there; runs in .: run\n")
    code, _, errors = call("recover", "run", "--data", "photo", *out)
    assert (code, errors) == (2, "error: photo: no run or data there; runs in .: run\n")
    code, _, errors = call("recover", str(tmp_path / "nope"), *out)
    assert (code, errors.count("\n")) == (2, 1)
    assert "nope: neither a dataset (" in errors
    assert "recovered.parquet exists" in call("recover", "run", *out)[2]
