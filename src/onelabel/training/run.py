"""The run folder: what a training writes, and `Run`, what it returns.

config.toml environment.json metrics.jsonl result.json log.txt
weights-best.safetensors weights-last.safetensors method-best.safetensors calibration.json
scores-train.npy scores-validation.npy scores-test.npy
recording.safetensors labels.safetensors start-head.safetensors (between a linear phase and its student)
checkpoint/ tensorboard/ run.lock
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from onelabel.models import Classifier
from onelabel.system import check_schema, clear_stale, overheard, read_json, reading, say
from onelabel.training.checkpoint import Checkpoints
from onelabel.training.config import SCHEMA, TrainConfig
from onelabel.training.environment import describe, make_logger
from onelabel.training.files import (
    best_weights,
    explaining,
    read_tensors,
    write_array,
    write_json,
    write_tensors,
    write_text,
)
from onelabel.training.machine import TrainingError
from onelabel.training.recording import Recorder, Recording
from onelabel.training.restore import classifier_from, weights_metadata

if TYPE_CHECKING:
    from onelabel.training.checkpoint import Position
    from onelabel.training.session import Session

CHECKPOINT = "checkpoint/latest.json"
#: Settings that may differ when a run is resumed: they change no number.
FREE = {"devices", "nodes", "strategy", "compile", "compile_mode", "cuda_graph", "checkpoint_seconds", "device"}
FREE |= {"checkpoint_steps", "log_seconds", "logger", "feature_cache", "eval_batch_size"}


def _settings(config: TrainConfig) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return {name: value for name, value in found.items() if name not in FREE}


#: What a run folder may hold before there is a run in it, or after.
OWN = ("config.toml", "environment.json", "data.json", "run.lock", "log*", "checkpoint", "tensorboard", "*.safetensors")


@dataclass
class Run:
    """A finished (or, from `load`, any) training.

    Attributes:
        path: the folder, or None where nothing was written.
        result: best epoch, mAPs, speeds. history: one dictionary per epoch, as in metrics.jsonl.
        classifier: with the best weights. method_state: the method's memory at the best epoch.
        scores: probabilities by part, N×L. recording: what figures need, where it was recorded.
    """

    path: Path | None
    config: TrainConfig
    result: dict[str, Any]
    history: list[dict[str, Any]]
    classifier: Classifier
    class_names: tuple[str, ...] = ()
    method_state: dict[str, Tensor] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    recording: Recording | None = None

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a run folder; the classifier has the best weights so far."""
        folder = Path(path)
        if not (folder / "config.toml").is_file():
            told = "give the folder that `onelabel train` named in its last line"
            raise FileNotFoundError(f"{folder}: no run there (config.toml is missing); {told}")
        weights = best_weights(folder)
        config = TrainConfig.load(folder / "config.toml")
        classifier, names = classifier_from(weights)
        with reading(folder / "metrics.jsonl", "JSON lines"):
            lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            history = [dict(json.loads(line)) for line in lines]
        state = folder / "method-best.safetensors"
        memory = read_tensors(state) if state.is_file() else {}
        scores = {}
        for path in folder.glob("scores-*.npy"):
            with reading(path, "scores"):
                found = np.load(path, allow_pickle=False)
                if not isinstance(found, np.ndarray) or found.dtype.kind != "f":
                    raise ValueError("an array of probabilities was expected")
                scores[path.stem.removeprefix("scores-")] = found
        return cls(folder, config, _result(folder), history, classifier, names, memory, scores, Recording.load(folder))


def _result(folder: Path) -> dict[str, Any]:
    path = folder / "result.json"
    if not path.is_file():
        return {}
    found = read_json(path)
    with reading(path, "the result of a run"):
        check_schema(found.get("schema_version"), SCHEMA, path)
    return dict(found)


def as_begun(config: TrainConfig, folder: str | Path | None) -> TrainConfig:
    """The settings with what the run in `folder` took "auto" for, where nobody asks for another.

    That depends on the machine (the precision) or on the version (a student's settings), and a run goes on to the same
    numbers. Its mAP goes on counting the classes that it counted, too.
    """
    path = None if folder is None else Path(folder) / "config.toml"
    if path is None or not path.is_file():
        return config
    before = TrainConfig.load(path)
    told = ("precision", "student", "student_annotators", "student_context")
    auto = {name for name in told if getattr(config, name) == "auto"}
    kept = {name: getattr(before, name) for name in (*auto, "empty_classes")}
    if config.mode == "linear" and kept.get("student") == "off":  # and nothing to smooth
        kept["student_smoothing"] = before.resolved().student_smoothing
    return dataclasses.replace(config, **kept)


def refuse_foreign(folder: Path) -> None:
    """Nothing is written among things that are no run's, such as the pictures themselves."""
    if not folder.is_dir():
        return
    found = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    if found and not any(fnmatch.fnmatch(name, known) for name in found for known in OWN):
        raise TrainingError(f"{folder}: holds other things ({min(found)}, …); choose a new folder for the run (--out)")


class RunFolder:
    """Writes a run; every method does nothing where there is no folder or another process writes."""

    def __init__(self, path: Path | None, config: TrainConfig, class_names: tuple[str, ...], writes: bool) -> None:
        self.path, self.config, self.class_names, self.writes = path, config, class_names, writes
        self.interrupted = self.saves = False
        self.lock: Any = None
        self.logger: Any = None
        self.scores: dict[str, Any] = {}
        self.recorder: Recorder | None = None
        self._handlers: dict[int, Any] = {}
        self._listening = contextlib.ExitStack()
        self._told = float("-inf")

    @classmethod
    def open(
        cls, out: str | Path | None, config: TrainConfig, class_names: tuple[str, ...], fabric: Any, *, resume: bool
    ) -> RunFolder:
        """Make or reopen a folder; refuses one that another process or an earlier run holds."""
        folder = cls(None if out is None else Path(out), config, class_names, bool(fabric.is_global_zero))
        if folder.path is not None and folder.writes:
            refuse_foreign(folder.path)
            with explaining(folder.path):
                folder.path.mkdir(parents=True, exist_ok=True)
                folder._take()
                clear_stale(folder.path, folder.path / "checkpoint", *folder.path.glob("checkpoint/*/"))
            if resume and (folder.path / "config.toml").is_file() and not (folder.path / CHECKPOINT).is_file():
                say(f"{folder.path}: holds no checkpoint to resume from: training starts from the beginning")
            begun = any((folder.path / name).exists() for name in (CHECKPOINT, "result.json"))
            if begun:
                folder._agree(resume)
            with explaining(folder.path):
                write_text(folder.path / "config.toml", config.to_toml())
                write_json(folder.path / "environment.json", describe(fabric))
            folder.logger = make_logger(config, folder.path)
        return folder

    def _take(self) -> None:
        assert self.path is not None
        self.lock = open(self.path / "run.lock", "w")  # noqa: SIM115 - held until the run ends
        try:
            import fcntl

            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not POSIX: nothing guards the folder
            pass
        except BlockingIOError:
            raise TrainingError(f"{self.path}: another process is training there; choose another folder") from None

    def _agree(self, resume: bool) -> None:
        assert self.path is not None
        if not resume:
            told = "already holds a run; go on with it by --resume (resume=True), or choose another folder"
            raise TrainingError(f"{self.path}: {told}")
        before, now = _settings(TrainConfig.load(self.path / "config.toml").resolved()), self.settings()
        if before["precision"] == "auto":  # of before it was written down
            before["precision"] = now["precision"]
        before |= Checkpoints(self).settings()  # config.toml is a file that people edit
        changed = [f"{k} {before[k]!r}→{now[k]!r}" for k in now if before[k] != now[k]]
        if changed:
            raise TrainingError(f"{self.path}: was begun with other settings ({', '.join(changed)}); use those")

    def settings(self) -> dict[str, Any]:
        """What a run is, that cannot be changed on the way, as JSON has it."""
        return _settings(self.config)

    # -- being told to stop ----------------------------------------------------------------------------------------

    def __enter__(self) -> RunFolder:
        if self.path is not None and self.writes:
            self._listening.enter_context(overheard(self._note))
        if self.path is not None and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self.logger is not None:
            self.logger.finalize("success" if error[0] is None else "failed")
        if self.lock is not None:
            self.lock.close()

    def _interrupt(self, number: int, frame: Any) -> None:
        if self.interrupted or not self.saves:
            raise KeyboardInterrupt
        self.interrupted = True
        if self.writes and not os.environ.get("ONELABEL_QUIET"):  # past sys.stderr, which may be within a line
            os.write(2, b"onelabel: stopping after this step, with a checkpoint; once more stops at once\n")

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Inside, who is told to stop goes on to the next checkpoint; outside there is nothing to save, so at once."""
        self.saves = True
        try:
            yield
        finally:
            self.saves = False
        self.stop_if_interrupted()

    def stop_if_interrupted(self) -> None:
        if self.interrupted:
            say(f"stopped; {self.path} can be resumed: onelabel train {self.path} --resume, or train(…, resume=True)")
            raise KeyboardInterrupt

    # -- writing ---------------------------------------------------------------------------------------------------

    def publish(self, session: Session, position: Position) -> None:
        """After a checkpoint: metrics.jsonl, and the best weights where they are a whole classifier's."""
        assert self.path is not None
        self._metrics(position.history)
        if self.recorder is not None:
            self.recorder.write(self.path)
        best = position.bests["ema" if self.config.ema else "plain"]
        new = best.epoch == position.epoch - 1 or not (self.path / "weights-best.safetensors").is_file()
        if not session.phase.head_only and best.weights and position.update == 0 and new:
            self._weights("best", best.weights, session.classifier)

    def _metrics(self, history: list[dict[str, Any]]) -> None:
        assert self.path is not None
        write_text(self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in history))

    def _weights(self, which: str, weights: dict[str, Tensor], classifier: Classifier) -> None:
        assert self.path is not None
        about = weights_metadata(classifier, self.config, self.class_names)
        write_tensors(self.path / f"weights-{which}.safetensors", weights, about)

    def _note(self, when: float, message: str) -> None:
        assert self.path is not None
        # a file's name that is no UTF-8 stands in it as on stderr
        with (
            explaining(self.path),
            open(self.path / "log.txt", "a", encoding="utf-8", errors="backslashreplace") as file,
        ):
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(when))}  {message}\n")

    def log(self, row: dict[str, Any], *, speed: float, last: bool = True) -> None:
        """One epoch: a line in log.txt and the logger; said aloud every `log_seconds`, and the `last` of a phase."""
        told = {**row, "epoch": row["epoch"] + 1}  # people count from 1, files from 0
        words = "  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in told.items())
        if self.path is None or not self.writes:
            return
        if self.logger is not None:
            numbers = {k: v for k, v in row.items() if isinstance(v, float)} | {"images_per_second": speed}
            self.logger.log_metrics(numbers, step=int(row["epoch"]))
        words += f"  {speed:.0f} img/s"
        now = time.monotonic()
        if last or now - self._told >= self.config.log_seconds:
            self._told = now
            say(words)
        else:
            self._note(time.time(), words)

    def save_scores(self, part: str, scores: Tensor) -> None:
        self.scores[part] = scores.float().cpu().numpy()
        if self.path is not None and self.writes and self.config.save_scores:
            with explaining(self.path):
                write_array(self.path / f"scores-{part}.npy", self.scores[part])

    def finish(
        self,
        classifier: Classifier,
        weights: dict[str, Tensor],
        method_state: dict[str, Tensor],
        last: dict[str, Tensor],
        result: dict[str, Any],
        history: list[dict[str, Any]],
    ) -> Run:
        """Write what is known only at the end, and return the run."""
        result = {"schema_version": SCHEMA, **result}
        if self.path is not None and self.writes:
            with explaining(self.path):
                self._metrics(history)  # a kill may have come between the last checkpoint and this file
                if self.recorder is not None:
                    self.recorder.write(self.path)
                self._weights("best", weights, classifier)
                self._weights("last", last, classifier)
                write_tensors(self.path / "method-best.safetensors", method_state)
                write_json(self.path / "result.json", result)
        recorded = None if self.recorder is None else self.recorder.result()
        return Run(
            self.path, self.config, result, history, classifier, self.class_names, method_state, self.scores, recorded
        )
