"""Checkpoints: everything a run needs to go on as if nothing had happened. Safetensors and JSON, one atomic pointer.

checkpoint/latest.json           {"folder": "000123"}, replaced when the folder is complete
checkpoint/000123/state.json     position, history, generators, optimisers' plain numbers
checkpoint/000123/state.safetensors   weights, averages, optimisers, method, generators
checkpoint/000123/best-plain.safetensors   the best epoch's weights and method (a link while it stays the best)
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from onelabel.system import check_schema, one_line
from onelabel.training.files import explaining, link, read_tensors, write_json, write_tensors
from onelabel.training.machine import TrainingError, rng_state, set_rng_state
from onelabel.training.sharding import fill_state, full, like
from onelabel.training.stopping import Best

if TYPE_CHECKING:
    from onelabel.training.run import RunFolder
    from onelabel.training.session import Session

SCHEMA = 1


@dataclass
class Position:
    """Where a run is: `update` updates of `epoch` are done, in phase number `phase`; `hyper` is what `tuning` found."""

    phase: int = 0
    epoch: int = 0
    update: int = 0
    stopped: bool = False
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    hyper: dict[str, float] = field(default_factory=dict)
    bests: dict[str, Best] = field(default_factory=lambda: {"plain": Best(), "ema": Best()})

    @property
    def begins(self) -> bool:
        return (self.phase, self.epoch, self.update) == (0, 0, 0)

    def next_phase(self, *, keep: bool = False) -> None:
        """`keep`: what was the best so far stays so until something is better."""
        self.phase, self.epoch, self.update, self.stopped = self.phase + 1, 0, 0, False
        if not keep:
            self.bests = {"plain": Best(), "ema": Best()}

    def numbers(self) -> dict[str, Any]:
        names = ("phase", "epoch", "update", "stopped", "finished", "history", "speeds", "hyper")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "bests": {track: best.numbers() for track, best in self.bests.items()}}

    @classmethod
    def read(cls, numbers: dict[str, Any]) -> Position:
        bests = {
            track: Best(
                float("-inf") if found["value"] is None else found["value"],
                found["epoch"],
                phase=found.get("phase", ""),
            )
            for track, found in numbers.pop("bests").items()
        }
        found = cls(**numbers, bests=bests)
        for name, blank in vars(cls()).items():
            if type(getattr(found, name)) is not type(blank):
                raise ValueError(f"{name} {getattr(found, name)!r:.40}")
        if set(bests) != {"plain", "ema"} or not all(type(best.epoch) is int for best in bests.values()):
            raise ValueError(f"bests {bests!r:.80}")
        return found


class Checkpoints:
    """The checkpoints of a run folder; does nothing for a run without one."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.root = None if folder.path is None else folder.path / "checkpoint"
        self.loaded: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self.written: dict[str, tuple[tuple[str, int, float], Path]] = {}  # per track: which best, and its file

    # -- reading ---------------------------------------------------------------------------------------------------

    def position(self) -> Position:
        """Where the last checkpoint left off; the beginning where there is none."""
        place = self._latest()
        if place is None:
            return Position()
        with self._reading(place):
            numbers = json.loads((place / "state.json").read_text(encoding="utf-8"))
            check_schema(numbers["schema_version"], SCHEMA, place)
            tensors = read_tensors(place / "state.safetensors")
            position = Position.read(numbers["position"])
            for track, best in position.bests.items():
                if best.epoch >= 0:
                    best.weights, best.method = _split(read_tensors(place / f"best-{track}.safetensors"))
                    self.written[track] = best.which, place / f"best-{track}.safetensors"
        self.loaded = tensors, numbers
        return position

    def settings(self) -> dict[str, Any]:
        """What the last checkpoint was trained with, as `RunFolder.settings`; nothing where it does not say."""
        place = self._latest()
        if place is None:
            return {}
        with self._reading(place):
            return dict(json.loads((place / "state.json").read_text(encoding="utf-8")).get("settings", {}))

    def _latest(self) -> Path | None:
        if self.root is None or not (self.root / "latest.json").is_file():
            return None
        with self._reading(self.root / "latest.json"):
            name = json.loads((self.root / "latest.json").read_text(encoding="utf-8"))["folder"]
            if not (isinstance(name, str) and name.isascii() and name.isdecimal()):
                raise ValueError(f"folder {name!r:.40}")
        return self.root / name

    @contextlib.contextmanager
    def _reading(self, place: Path) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # JSON, safetensors and what is made of them each raise their own
            told = one_line(error)
            raise TrainingError(f"{place}: cannot be read ({told}); remove checkpoint/ to start again") from error

    def restore(self, session: Session, position: Position) -> None:
        """Put what `position` read into a session, once."""
        if self.loaded is None:
            return
        (tensors, numbers), self.loaded = self.loaded, None
        assert self.root is not None
        rows, now = numbers.get("rows", session.train.rows), session.train.rows
        if rows != now:
            told = f"was begun with {rows} training rows and there are {now} now; put the data back, or begin a new run"
            raise TrainingError(f"{self.root.parent}: {told}")
        with self._reading(self.root):
            _restore(session, tensors, numbers)

    # -- writing ---------------------------------------------------------------------------------------------------

    def save(self, session: Session, position: Position) -> None:
        """Write a checkpoint; the one before stays until this one is complete."""
        if self.root is None or not (self.folder.writes or session.split):
            return
        tensors, plain = _state(session)  # together, where weights are split
        if self.folder.writes:
            with explaining(self.root.parent):
                self._save(session, position, tensors, plain)

    def _save(
        self, session: Session, position: Position, tensors: dict[str, Tensor], plain: list[dict[str, Any]]
    ) -> None:
        assert self.root is not None
        self.root.mkdir(parents=True, exist_ok=True)
        latest = self._latest()
        number = 0 if latest is None else int(latest.name) + 1
        place = self.root / f"{number:06d}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        generators, rng = rng_state(session.device)
        tensors |= {f"rng/{k}": v for k, v in generators.items()}
        write_tensors(place / "state.safetensors", tensors)
        numbers = {"schema_version": SCHEMA, "position": position.numbers(), "rng": rng, "optimizers": plain}
        numbers |= {"rows": session.train.rows, "settings": self.folder.settings()}
        write_json(place / "state.json", numbers)
        for track, best in position.bests.items():
            if best.epoch >= 0:
                self._save_best(place / f"best-{track}.safetensors", track, best)
        write_json(self.root / "latest.json", {"folder": place.name})
        for other in self.root.iterdir():
            if other.is_dir() and other != place:
                shutil.rmtree(other, ignore_errors=True)
        self.folder.publish(session, position)

    def _save_best(self, path: Path, track: str, best: Best) -> None:
        known = self.written.get(track)
        if known is not None and known[0] == best.which and known[1].is_file():
            link(known[1], path)
        else:
            weights = {f"weights/{k}": v for k, v in best.weights.items()}
            write_tensors(path, weights | {f"method/{k}": v for k, v in best.method.items()})
        self.written[track] = best.which, path


def _state(session: Session) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Everything a session holds: tensors, and the optimisers' plain numbers."""
    tensors = {f"model/{k}": full(v) for k, v in session.classifier.state_dict().items()}
    tensors |= {f"method/{k}": v for k, v in session.criterion.state_dict().items()}
    tensors |= {f"step/{k}": v for k, v in session.step.buffers().items()}
    if session.recorder is not None:
        tensors |= {f"recording/{k}": v for k, v in session.recorder.state_dict().items()}
    if session.average is not None:
        tensors |= {f"ema/{k}": v for k, v in session.average.state_dict().items()}
    plain = []
    for i, optimizer in enumerate(session.optimizers):
        found, rest = _optimizer_state(optimizer)
        tensors |= {f"optimizer{i}/{k}": full(v) for k, v in found.items()}
        plain.append(rest)
    return tensors, plain


def _restore(session: Session, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """What `_state` gave, back into a session."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        group, _, rest = name.partition("/")
        parts.setdefault(group, {})[rest] = value
    fill_state(session.classifier, parts["model"])
    session.criterion.load_state_dict(parts.get("method", {}))
    if session.average is not None:
        session.average.load_state_dict(parts["ema"])
    if session.recorder is not None:
        session.recorder.load_state_dict(parts.get("recording", {}))
    for name, buffer in session.step.buffers().items():
        buffer.copy_(parts["step"][name])
    for number, optimizer in enumerate(session.optimizers):
        _restore_optimizer(optimizer, parts.get(f"optimizer{number}", {}), numbers["optimizers"][number])
    set_rng_state(parts["rng"], numbers["rng"], session.device)


def _split(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    weights = {k.removeprefix("weights/"): v for k, v in tensors.items() if k.startswith("weights/")}
    return weights, {k.removeprefix("method/"): v for k, v in tensors.items() if k.startswith("method/")}


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, rest = {}, {}
    for i, p in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state.get(p, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{i}/{key}"] = value
            elif value is not None:
                rest[f"{i}/{key}"] = value
    return tensors, rest


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
    own = _parameters(optimizer)
    for name, value in {**tensors, **rest}.items():
        number, _, key = name.partition("/")
        p = own[int(number)]
        if isinstance(value, Tensor):
            value = value.to(p.device)
            if value.shape == p.shape:  # as the weights lie: channels last or not, split or not
                value = like(p, value)
        optimizer.state[p][key] = value
