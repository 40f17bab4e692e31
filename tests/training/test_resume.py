"""A run that is killed, interrupted or out of disk goes on to the numbers of one that was not."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from run_folders import assert_same_run
from training_workers import HYPER, SMALL, scenes, train_once

from onelabel.system import atomic_path
from onelabel.training import Run, TrainingError, train
from onelabel.training.run import RunFolder

FREQUENT = {"checkpoint_steps": 2, "ema": 0.9}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "mode"), [("role", "linearinit"), ("em-apl", "finetune")])
def test_killed_at_random_moments(tmp_path: Path, processes: Any, method: str, mode: str) -> None:
    settings = {"mode": mode, **FREQUENT}
    chance = random.Random(5)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    child = processes.Process(target=train_once, args=(str(whole), method, settings))
    child.start()
    child.join()
    assert child.exitcode == 0
    for kills in range(8):
        child = processes.Process(target=train_once, args=(str(cut), method, settings))
        child.start()
        # some way into the run, and then at any moment: in a step, an evaluation, or while files are written
        wanted = checkpoints_written(cut) + chance.randint(1, 3)
        while child.is_alive() and checkpoints_written(cut) < wanted and kills < 7:
            time.sleep(0.005)
        child.join(chance.uniform(0, 0.1) if kills < 7 else None)
        if child.exitcode is not None:
            break
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    assert child.exitcode == 0
    assert kills >= 1  # how many depends on the machine; that it ends the same does not
    assert_same_run(whole, cut)


def checkpoints_written(run: Path) -> int:
    latest = run / "checkpoint" / "latest.json"
    return int(json.loads(latest.read_text())["folder"]) if latest.is_file() else -1


class Crash(BaseException):
    """Like a kill: nothing catches it."""


def crash(run: Path, method: str, settings: dict[str, Any]) -> None:
    with pytest.raises(Crash):
        train_once(str(run), method, settings)


def assert_goes_on(folder: Path, method: str, settings: dict[str, Any]) -> None:
    """What was `cut` ends as the `whole` did."""
    train_once(str(folder / "cut"), method, settings)
    assert_same_run(folder / "whole", folder / "cut")


@pytest.mark.parametrize("after", [3, 6, 9, 12, 17])
def test_killed_between_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    settings: dict[str, Any] = {"mode": "linear", "epochs": 3, **FREQUENT}
    train_once(str(tmp_path / "whole"), "role", settings)
    calls, replace = [0], os.replace

    def dies(source: Any, target: Any) -> None:
        calls[0] += 1
        if calls[0] == after:
            raise Crash
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dies)
        crash(tmp_path / "cut", "role", settings)
    assert_goes_on(tmp_path, "role", settings)


def test_killed_between_the_last_checkpoint_and_its_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"mode": "linear", "epochs": 2}
    train_once(str(tmp_path / "whole"), "em", settings)
    publish = RunFolder.publish

    def dies(self: RunFolder, session: Any, position: Any) -> None:
        if position.epoch == 2:
            raise Crash
        publish(self, session, position)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "publish", dies)
        crash(tmp_path / "cut", "em", settings)
    assert_goes_on(tmp_path, "em", settings)


@pytest.mark.parametrize("phase", ["finetune", "student"])
def test_the_best_of_a_phase_is_not_taken_for_that_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """By the last epoch each phase's best has the same epoch and value: only the phase tells them apart."""
    settings: dict[str, Any] = {"mode": "linearinit", "linear_epochs": 1, "epochs": 1, "select": "last"}
    settings["student"] = "on" if phase == "student" else "off"
    train_once(str(tmp_path / "whole"), "an", settings)
    log = RunFolder.log

    def dies(self: RunFolder, row: dict[str, Any], **how: Any) -> None:
        log(self, row, **how)
        if row["phase"] == phase:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "log", dies)
        crash(tmp_path / "cut", "an", settings)
    assert_goes_on(tmp_path, "an", settings)


def test_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onelabel.training.files as files

    settings: dict[str, Any] = {"mode": "linear", "epochs": 3}
    train_once(str(tmp_path / "whole"), "em", settings)
    write, left = Path.write_bytes, [9]

    def full(path: Path, content: bytes) -> int:
        left[0] -= 1
        if left[0] < 0:
            write(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(files.Path, "write_bytes", full)
        with pytest.raises(TrainingError, match="disk is full; the last checkpoint is intact") as caught:
            train_once(str(tmp_path / "cut"), "em", settings)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cut").rglob("*.tmp*"))
    train_once(str(tmp_path / "cut"), "em", settings)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_resumed_run_clears_what_killed_processes_left(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"mode": "linear", "epochs": 1}
    train_once(str(tmp_path), "em", settings)
    left = [tmp_path / ".scores-test.npy.a1b2c3_4.tmp.npy", tmp_path / "checkpoint" / ".latest.json.a1b2c3_4.tmp.json"]
    left += [place / ".state.json.a1b2c3_4.tmp.json" for place in tmp_path.glob("checkpoint/*/")]
    assert len(left) == 3
    for path in left:
        path.write_bytes(b"half")
    with atomic_path(tmp_path / "recovered.parquet") as live:  # `onelabel recover` holds no lock of the run
        train_once(str(tmp_path), "em", settings)
        assert [path for path in tmp_path.rglob("*") if ".tmp" in path.name] == [live]
    assert (tmp_path / "recovered.parquet").is_file()


def test_interrupt_leaves_a_resumable_run(tmp_path: Path, capfd: Any, monkeypatch: Any) -> None:
    """SIGINT in the middle of an epoch: a checkpoint there, KeyboardInterrupt, and the same end after resuming."""
    settings = {**SMALL, "mode": "finetune", "hyper": HYPER["role"]}
    whole = train(scenes(), method="role", out=tmp_path / "whole", **settings)
    from onelabel.training.step import Step

    monkeypatch.delenv("ONELABEL_QUIET", raising=False)

    update, calls, before = Step.__call__, [0], signal.getsignal(signal.SIGINT)

    def interrupted(self: Step, sizes: tuple[int, ...]) -> None:
        calls[0] += 1
        if calls[0] == 14:
            os.kill(os.getpid(), signal.SIGINT)
        update(self, sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(scenes(), method="role", out=tmp_path / "cut", **settings)
    assert signal.getsignal(signal.SIGINT) is before
    assert "stopping after this step, with a checkpoint; once more stops at once" in capfd.readouterr().err
    train(scenes(), method="role", out=tmp_path / "cut", resume=True, **settings)
    assert calls[0] < 20, "the second process did not begin again"
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    assert Run.load(tmp_path / "cut").result["test_mAP"] == whole.result["test_mAP"]


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    first = train_once(str(tmp_path / "run"), "em", {"mode": "linear"})
    again = train_once(str(tmp_path / "run"), "em", {"mode": "linear"})
    assert {**first.result, "images_per_second": 0} == {**again.result, "images_per_second": 0}
    assert first.history == again.history


def test_resuming_with_other_settings_is_refused(tmp_path: Path) -> None:
    train_once(str(tmp_path / "run"), "em", {"mode": "linear"})
    with pytest.raises(TrainingError, match=r"begun with other settings \(lr 0.001→0.1\)"):
        train_once(str(tmp_path / "run"), "em", {"mode": "linear", "lr": 0.1})


def test_settings_edited_in_the_folder_are_refused_too(tmp_path: Path) -> None:
    """config.toml is a file that people edit; what the checkpoint was trained with is what counts."""
    train_once(str(tmp_path / "run"), "em", {"mode": "linear"})
    config = tmp_path / "run" / "config.toml"
    began = config.read_text()
    assert "lr = 0.001" in began
    config.write_text(began.replace("lr = 0.001", "lr = 0.1"))
    with pytest.raises(TrainingError, match=r"begun with other settings \(lr 0.001→0.1\)"):
        train_once(str(tmp_path / "run"), "em", {"mode": "linear", "lr": 0.1})
    state = next((tmp_path / "run" / "checkpoint").glob("*/state.json"))
    known = json.loads(state.read_text())
    del known["settings"]  # of before they were written: config.toml has the say
    state.write_text(json.dumps(known))
    config.write_text(began)
    train_once(str(tmp_path / "run"), "em", {"mode": "linear"})


def test_interrupt_before_the_first_step_stops_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    """While features are made there is nothing to save: no second signal is needed, and the folder can be used."""
    from onelabel.training import prepare

    made = prepare.features_of

    def interrupted(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("went on")

    settings = {**SMALL, "mode": "linear"}
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(prepare, "features_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(scenes(), method="em", out=tmp_path / "run", **settings)
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.setattr(prepare, "features_of", made)
    assert train(scenes(), method="em", out=tmp_path / "run", **settings).result["test_mAP"] > 0
