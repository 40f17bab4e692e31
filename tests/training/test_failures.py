"""What goes wrong is said in one line, and the last checkpoint survives it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import assert_same_run
from torch import Tensor
from training_workers import SMALL, scenes, train_once

from onelabel.data import ArraySource
from onelabel.losses import EM
from onelabel.system import say
from onelabel.training import Run, TrainingError, train
from onelabel.training.step import Step

LINEAR: dict[str, Any] = {"mode": "linear", "epochs": 3}


def fails_at(monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException) -> None:
    update, calls = Step.__call__, [0]

    def failing(self: Step, sizes: tuple[int, ...]) -> None:
        calls[0] += 1
        if calls[0] == call:
            raise error
        update(self, sizes)

    monkeypatch.setattr(Step, "__call__", failing)


def one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    return text


def test_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_once(str(tmp_path / "whole"), "em", LINEAR)
    with monkeypatch.context() as patch:
        fails_at(patch, 15, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\n20 GiB"))
        with pytest.raises(TrainingError, match=r"out of memory on cpu at batch_size 16.*lower one") as caught:
            train_once(str(tmp_path / "cut"), "em", LINEAR)
    assert "last checkpoint" in one_line(caught.value)
    train_once(str(tmp_path / "cut"), "em", LINEAR)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_nan_in_the_pictures_is_named(tmp_path: Path) -> None:
    """On a CPU the method itself looks at the logits."""
    data = scenes()
    with pytest.raises(TrainingError, match=r"linear epoch 1, update 1 .*train-0.*not finite") as caught:
        train(data, method="em", out=tmp_path / "run", head=_nan_head(), **{**SMALL, **LINEAR})
    one_line(caught.value)


class Poisoned(EM):
    """A method whose loss turns NaN at its 12th batch though the logits are fine."""

    def compute(self, batch: Any) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        return super().compute(batch) * (float("nan") if self.calls == 12 else 1.0)


def test_nan_loss_names_the_first_such_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is looked at only now and then; still the batch that broke it is named, and nothing is saved after."""
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    settings = {**SMALL, **LINEAR, "log_seconds": 1e9}
    with pytest.raises(TrainingError, match=r"linear epoch 2, rows 16–31 of its order") as caught:
        train(scenes(), method=Poisoned(), out=tmp_path / "run", **settings)
    text = one_line(caught.value)
    assert "not finite though the logits are" in text
    assert "1 epochs done) is intact" in text
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1


def test_diverging_network_is_diagnosed_without_looking_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where the method does not look: the logits of the first bad batch were kept."""
    monkeypatch.setattr("onelabel.contract.diagnose", lambda *_: None)
    with pytest.raises(TrainingError, match=r"logits are not finite: nan at row 0, class 0.*lower the learning rate"):
        train(scenes(), method="em", head=_nan_head(), **{**SMALL, **LINEAR})


def _nan_head() -> tuple[np.ndarray, np.ndarray]:
    return np.full((10, 64), np.nan, np.float32), np.zeros(10, np.float32)


@pytest.mark.skipif(os.name != "posix", reason="paths of POSIX")
def test_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "run", Path("/proc/no-such-folder/run")):
        with pytest.raises(TrainingError, match=r"write|writable") as caught:
            train(scenes(), method="em", out=folder, **{**SMALL, **LINEAR})
        assert str(folder) in one_line(caught.value)


def test_two_runs_in_one_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = []

    def intrudes(self: Step, sizes: tuple[int, ...]) -> None:
        if not caught:
            caught.append("")
            with pytest.raises(TrainingError, match="another process is training there"):
                train_once(str(tmp_path / "run"), "em", LINEAR)
        update(self, sizes)

    update = Step.__call__
    monkeypatch.setattr(Step, "__call__", intrudes)
    train_once(str(tmp_path / "run"), "em", LINEAR)
    assert caught
    with pytest.raises(TrainingError, match=r"already holds a run; go on with it by --resume \(resume=True\)"):
        train(scenes(), method="em", out=tmp_path / "run", **{**SMALL, **LINEAR})


def test_wrong_settings_are_one_line(tmp_path: Path) -> None:
    data = scenes()
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"method": "emm"}, ValueError, "did you mean 'em'"),
        ({"mode": "lin"}, ValueError, "mode: 'lin', expected 'linear', 'finetune', 'linearinit'"),
        ({"epoch": 3}, TypeError, "no setting 'epoch'; did you mean 'epochs'"),
        ({"epochs": 0}, ValueError, "epochs: 0, expected at least 1"),
        ({"lr": -1}, ValueError, "lr: -1.0, expected a positive number"),
        ({"stop": 0}, ValueError, "stop: 0"),
        ({"ema": 1.0}, ValueError, "ema: 1.0, expected a decay below 1"),
        ({"backbone": "resnet5"}, ValueError, "there is no backbone 'resnet5'; did you mean 'resnet50'"),
        ({"device": "cuda"}, ValueError, "PyTorch sees no CUDA device"),
        ({"batch_size": True}, ValueError, "batch_size: True, expected a whole number or nothing"),
    ]
    for settings, kind, text in cases:
        if settings.get("device") == "cuda" and torch.cuda.is_available():
            continue
        with pytest.raises(kind) as caught:
            train(data, out=tmp_path / "run", **{**SMALL, "method": "em", **settings})
        assert text in one_line(caught.value)


def test_run_folder_holds_everything(tmp_path: Path) -> None:
    run = train(scenes(), method="em", out=tmp_path / "run", **{**SMALL, "mode": "finetune", "logger": "auto"})
    held = {path.name for path in (tmp_path / "run").iterdir()}
    assert held >= {
        "config.toml", "environment.json", "metrics.jsonl", "result.json", "log.txt", "weights-best.safetensors",
        "weights-last.safetensors", "method-best.safetensors", "scores-train.npy", "scores-validation.npy",
        "scores-test.npy", "checkpoint", "tensorboard",
    }  # fmt: skip
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    again = Run.load(tmp_path / "run")
    assert again.config == run.config
    assert again.history == run.history
    assert again.class_names == tuple("0123456789")
    np.testing.assert_array_equal(again.scores["test"], run.scores["test"])
    from onelabel.training import evaluate

    data = scenes()
    result = evaluate(again, data)
    assert result["mAP"] == pytest.approx(run.result["test_mAP"], abs=1e-9)
    np.testing.assert_allclose(result["scores"], run.scores["test"], atol=1e-6)
    with pytest.raises(ValueError, match="class names are not those"):
        evaluate(again, replace(data.test, class_names=tuple("abcdefghij")))
    with pytest.raises(ValueError, match="expected one of train, validation, test"):
        evaluate(again, data, part="holdout")


def test_without_validation_or_true_labels(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    data = scenes()
    alone = replace(data, validation=None, test=None)
    run = train(alone, method="em", **{**SMALL, **LINEAR})
    assert "the last epoch is taken" in capsys.readouterr().err
    assert run.result["best_epoch"] == 2
    blind = replace(data, validation=replace(data.validation, true=None))
    run = train(blind, method="em", **{**SMALL, **LINEAR})
    told = capsys.readouterr().err
    assert "mAP is that of the observed positives, and the best epoch the one that makes them likeliest" in told
    assert {"validation_mAP", "validation_likelihood"} <= set(run.history[0])


def test_who_asked_for_another_epoch_is_told_of_map_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    data = scenes()
    blind = replace(data, validation=replace(data.validation, true=None))
    for select in ("last", "loss", "likelihood"):
        train(blind, method="em", **{**SMALL, **LINEAR, "epochs": 1, "select": select})
        told = capsys.readouterr().err
        assert "mAP is that of the observed positives" in told
        assert "likeliest" not in told
    for select, wanted in (("last", False), ("loss", False), ("likelihood", True)):
        train(replace(data, validation=None), method="em", **{**SMALL, **LINEAR, "epochs": 1, "select": select})
        assert ("the last epoch is taken" in capsys.readouterr().err) is wanted


def test_streamed_pictures_train_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures that do not fit the device are staged batch by batch, to the same numbers."""
    import onelabel.data.pictures as pictures

    monkeypatch.setenv("ONELABEL_QUIET", "1")
    data = scenes(size=30)  # to be squashed to 24
    assert isinstance(data.train.source, ArraySource)
    whole = train(data, method="role", hyper={"expected_positives": 2.0}, **SMALL)
    monkeypatch.setattr(pictures, "choose_placement", lambda *_, **__: ("stream", "a test"))
    again = train(data, method="role", hyper={"expected_positives": 2.0}, accumulate=1, **SMALL)
    assert again.history == whole.history


def test_resuming_without_a_checkpoint_says_that_it_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    given: dict[str, Any] = {**SMALL, **LINEAR, "method": "em", "out": tmp_path / "run", "resume": True}
    train(scenes(), **given)
    train(scenes(), **given)
    assert "no checkpoint" not in capsys.readouterr().err  # nothing was there, then a checkpoint
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    train(scenes(), **given)
    told = [line for line in capsys.readouterr().err.splitlines() if "checkpoint" in line]
    assert len(told) == 1
    assert f"{tmp_path / 'run'}: holds no checkpoint to resume from: training starts from the beginning" in told[0]


def test_a_run_that_is_not_one_or_is_damaged_names_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"config\.toml is missing\); give the folder that `onelabel train` named"
    ):
        Run.load(tmp_path)
    train_once(str(tmp_path / "run"), "em", LINEAR)
    file = tmp_path / "run" / "weights-best.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(
        ValueError, match=r"not the weights of a run \(.*\); train it again into another folder"
    ) as told:
        Run.load(tmp_path / "run")
    assert "download" not in str(told.value)
    assert "\n" not in str(told.value)


def test_log_has_all_that_was_said_and_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """stderr has the first epoch, one each `log_seconds`, and the last; log.txt is complete, with what came before."""
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    say("auto: what was chosen")
    run = train(scenes(), method="em", out=tmp_path / "run", log_seconds=600.0, **{**SMALL, **LINEAR, "epochs": 6})
    logged = [line.split("  ", 1)[1] for line in (tmp_path / "run" / "log.txt").read_text().splitlines()]
    told = [line.removeprefix("onelabel: ") for line in capsys.readouterr().err.splitlines()]
    assert "auto: what was chosen" in logged
    assert set(told) <= set(logged)
    epochs = [line.split("  loss")[0] for line in logged if line.startswith("phase")]
    assert epochs == [f"phase linear  epoch {i}" for i in range(1, len(run.history) + 1)]
    assert [line for line in told if line.startswith("phase")] == [
        line for line in logged if line.startswith(("phase linear  epoch 1 ", "phase linear  epoch 6 "))
    ]
