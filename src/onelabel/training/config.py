"""`TrainConfig`: everything a run was told, checked once, written as TOML."""

from __future__ import annotations

import dataclasses
import difflib
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal

from onelabel.contract import method_info
from onelabel.system import check_schema, one_line, reading

SCHEMA = 1  #: of config.toml, and with it of the run folder
Mode = Literal["linear", "finetune", "linearinit"]
Switch = Literal["auto", "off"]
#: Of `select`: what goes by the held-out rows, and is comparable between phases.
BY_VALIDATION = ("mAP", "likelihood")
#: lr, epochs, batch size where none are given, as the papers have them.
DEFAULTS: dict[str, tuple[float, int, int]] = {"linear": (1e-3, 25, 16), "finetune": (1e-5, 10, 8)}


@dataclass(frozen=True)
class TrainConfig:
    """The settings of one run. Learning rates: backbone `lr`, head `lr·head_lr_scale`, a method's own as it says."""

    method: str = "roll-call"
    hyper: dict[str, Any] = field(default_factory=dict)
    mode: Mode | None = None  # None: "finetune", from a linear probe where a student follows ("linearinit")
    # network
    backbone: str = "resnet50"
    weights: str | None = None  # a file, "pretrained", "random"; None: pretrained where there are any
    stride: Literal["auto", "v1", "v1.5"] = "auto"
    size: int = 448
    # optimisation; None takes the papers' value for the mode
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    head_lr_scale: float | None = None  # fine-tuning only; None: 10 over pretrained weights, 1 over random ones
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = 0
    clip: float = 0.0  # gradient norm; 0 for none
    accumulate: int = 1  # batches per update
    freeze_epochs: int = 0
    augment: Literal["flip", "none", "strong"] = "flip"
    drop_last: bool = False
    ema: float = 0.0  # decay of the averaged weights per update; 0 for none
    # linearinit's first phase
    linear_epochs: int = 25
    linear_lr: float = 1e-3
    linear_batch_size: int = 16
    # after training, a student of the method's calibrated probabilities; "auto": where the method asks for one
    student: Literal["auto", "on", "off"] = "auto"
    student_looks: Literal["closer", "whole"] = "closer"  # whether its teacher looks at parts of the pictures too
    student_context: Switch = "auto"  # whether the other classes count where held-out rows with true labels say so
    # whether its teacher is told whom annotators prefer, where such rows say so; "auto": a head on frozen features is
    student_annotators: Literal["auto", "on", "off"] = "auto"
    student_smoothing: float | None = None  # towards ½; None: 0.2 with a cosine schedule, 0.1 for a head, else 0
    # selection
    # of validation; "likelihood" needs no true labels, and is what "mAP" means where there are none
    select: Literal["mAP", "likelihood", "loss", "last"] = "mAP"
    stop: Literal["none", "em", "gr"] | int = "none"  # a number: epochs without improvement
    flip_test: bool = False
    eval_batch_size: int = 64
    empty_classes: Literal["zero", "skip"] = "skip"  # a class without positives among the rows: out of mAP, or 0 in it
    save_scores: bool = True
    # the machine
    seed: int = 0
    device: str = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    sync_batchnorm: bool = True
    precision: Literal["auto", "bf16-mixed", "32-true"] = "auto"
    compile: Switch = "auto"
    compile_mode: str = "default"
    cuda_graph: Switch = "auto"
    # the run folder
    checkpoint_seconds: float = 300.0
    checkpoint_steps: int = 0
    log_seconds: float = 2.0
    feature_cache: str = (
        "auto"  # "off", or a folder for the linear phase's features; "auto": see `evaluate.features_of`
    )
    record: Literal["off", "auto", "on"] = "auto"  # what figures need; "auto" where it is small
    logger: Literal["auto", "none", "tensorboard", "wandb", "mlflow"] = "auto"

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(TrainConfig).items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), hint))
        low: dict[str, float] = {
            "size": 8, "epochs": 1, "batch_size": 1, "accumulate": 1, "linear_epochs": 1, "linear_batch_size": 1,
            "eval_batch_size": 1, "devices": 1, "nodes": 1, "seed": 0, "warmup_steps": 0, "freeze_epochs": 0,
            "checkpoint_steps": 0, "clip": 0, "weight_decay": 0, "ema": 0, "head_lr_scale": 0, "log_seconds": 0,
            "checkpoint_seconds": 0,
        }  # fmt: skip
        for name, least in low.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name}: {value}, expected at least {least:g}")
        for name in ("lr", "linear_lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}: {value}, expected a positive number")
        if self.ema >= 1:
            raise ValueError(f"ema: {self.ema}, expected a decay below 1, such as 0.998")
        if self.student_smoothing is not None and not 0 <= self.student_smoothing < 1:
            raise ValueError(f"student_smoothing: {self.student_smoothing}, expected 0 to below 1, such as 0.1")
        if isinstance(self.stop, int) and self.stop < 1:
            raise ValueError(f"stop: {self.stop}, expected 'none', 'em', 'gr' or at least 1 epoch of patience")

    def resolved(self) -> TrainConfig:
        """With the mode, its learning rate, epochs and batch size filled in, the head's rate and a student's smoothing.

        A new head over a pretrained backbone moves ten times faster, as the papers have it; over random weights that
        made training diverge where one rate for all layers did not (docs/training.md). Smoothed targets are learned
        more slowly, which pays where the rate is brought down to nothing, and keep a linear head's logits small
        (docs/roll-call-tried.md).
        """
        from onelabel.models import starting_weights

        random = starting_weights(self.backbone, self.weights) is None
        mode = self.mode
        if mode is None:  # a probe of random features would tell a head nothing
            mode = "linearinit" if method_info(self.method).cls.student and not random else "finetune"
        smoothing = self.student_smoothing
        if smoothing is None:
            smoothing = 0.2 if self.schedule == "cosine" else 0.1 if mode == "linear" else 0.0
        lr, epochs, batch = DEFAULTS["linear" if mode == "linear" else "finetune"]
        return dataclasses.replace(
            self,
            mode=mode,
            head_lr_scale=self.head_lr_scale if self.head_lr_scale is not None else 1.0 if random else 10.0,
            lr=self.lr if self.lr is not None else lr,
            epochs=self.epochs if self.epochs is not None else epochs,
            batch_size=self.batch_size if self.batch_size is not None else batch,
            student_smoothing=smoothing,
        )

    @classmethod
    def make(cls, settings: Mapping[str, Any]) -> TrainConfig:
        """From names and values; an unknown name is answered with the nearest one."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"settings are {', '.join(known)}"
                raise TypeError(f"there is no setting {name!r}; {hint}")
        return cls(**settings)

    @classmethod
    def load(cls, path: str | Path) -> TrainConfig:
        """Read a TOML file; keys that are not settings, such as a recipe's notes, are an error."""
        settings = read_toml(path)
        check_schema(settings.pop("schema_version", 1), SCHEMA, path)
        settings.setdefault("student_annotators", "off")  # of before their teachers were told
        if "student_context" not in settings:  # of before teachers asked other classes, and heads had students
            settings |= {"student_context": "off", **({"student": "off"} if settings.get("mode") == "linear" else {})}
        with reading(path, "the settings of a run"):
            return cls.make(settings)

    def to_toml(self) -> str:
        """As TOML; settings that are None are left out."""
        lines, tables = [], []
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, dict):
                tables += [f"\n[{name}]"] + [f"{key} = {_value(v)}" for key, v in value.items()] if value else []
            elif value is not None:
                lines.append(f"{name} = {_value(value)}")
        return "\n".join([f"schema_version = {SCHEMA}", *lines, *tables]) + "\n"


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a dictionary; errors are one line."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[import-not-found, no-redef]
    try:
        found: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not TOML ({one_line(error)})") from None
    return found


def _checked(name: str, value: Any, hint: Any) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
    for option in options:
        origin = typing.get_origin(option) or option
        if origin is Literal and isinstance(value, str) and value in typing.get_args(option):
            return value
        if option is type(None) and value is None:
            return None
        if option is float and isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if option is str and isinstance(value, Path):
            return str(value)
        if (
            origin in (int, str, dict, bool)
            and isinstance(value, origin)
            and isinstance(value, bool) == (origin is bool)
        ):
            return dict(value) if origin is dict else value
    wanted = " or ".join(_words(option) for option in options)
    raise ValueError(f"{name}: {value!r}, expected {wanted}")


def _words(option: Any) -> str:
    if typing.get_origin(option) is Literal:
        return ", ".join(repr(choice) for choice in typing.get_args(option))
    if option is type(None):
        return "nothing"
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names.get(option, "a table")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + "}"
    return json.dumps(str(value), ensure_ascii=False)
