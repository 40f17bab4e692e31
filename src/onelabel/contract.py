"""The contract between losses, methods, probes and training.

A *method* is a loss with whatever it remembers. It is an ``nn.Module``: what it learns are its parameters, what it
remembers are its buffers, so ``state_dict`` restores everything.

    criterion = onelabel.method("em", alpha=0.2)
    loss = criterion(logits, observed)                      # scalar

    criterion = onelabel.method("role", expected_positives=1.5)
    criterion.bind(labels)                                  # allocate per-example memory
    criterion.begin_epoch(epoch, epochs)
    loss = criterion(logits, observed, index=index)
    criterion.end_epoch(score)                              # score() -> probabilities of the training set, N×L

**Stacks.** Every method works on a stack of M models at once: give a hyperparameter as a sequence of M numbers (or
``stack=M``), logits as M×B×L, index as M×B, and the result is M losses, each equal to what the model would get
alone. Memory is then M×N×L. This is what lets hundreds of probes train as one.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from onelabel.labels import Labels

Number = float | Tensor
Score = Callable[[], Tensor]
Variant = Literal["paper", "reference"]


@dataclass(frozen=True)
class Hyper:
    """A hyperparameter: its meaning, the closed range it must lie in, and the values worth searching."""

    doc: str
    low: float = -math.inf
    high: float = math.inf
    search: tuple[Any, ...] = ()

    def check(self, name: str, value: float) -> None:
        if not self.low <= value <= self.high:
            raise ValueError(f"{name} must lie in [{self.low:g}, {self.high:g}], got {value:g}")


@dataclass(frozen=True)
class Needs:
    """What a method asks of whoever calls it; the trainer supplies just that."""

    index: bool = False  #: the examples' positions in the training set, B
    epoch: bool = False  #: begin_epoch must be called
    scores: bool = False  #: end_epoch must be given the training set's probabilities
    views: int = 1  #: pictures per example: the plain one and views−1 random augmentations
    features: bool = False  #: what the last layer sees, B×D
    weights: bool = False  #: the trainable weights, for penalties

    def __str__(self) -> str:
        flags = [name for name in ("index", "epoch", "scores", "features", "weights") if getattr(self, name)]
        return ", ".join(flags + ([f"views={self.views}"] if self.views > 1 else [])) or "–"


@dataclass(frozen=True)
class Batch:
    """What a method sees of a step: logits (float32 or float64) and observed labels, and what it said it needs."""

    logits: Tensor
    observed: Tensor
    index: Tensor | None = None
    features: Tensor | None = None
    views: tuple[Tensor, ...] = ()
    weights: tuple[Tensor, ...] = ()


def _numbers(value: Any) -> list[float] | None:
    """The sequence of numbers that asks for a stack, or None where `value` is a single setting."""
    if isinstance(value, (Tensor, np.ndarray)):
        return [float(v) for v in value.reshape(-1).tolist()] if value.ndim else None
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return None
    return [float(v) for v in value]


class Method(nn.Module):
    """Base of every method: hyperparameters, stacking, input checks, reduction; subclasses give :meth:`compute`.

    Hyperparameters are the keyword-only arguments of ``__init__`` and become attributes: a float, or, in a stack, a
    buffer of shape M×1×1 that broadcasts over logits of shape M×B×L.
    """

    #: The name it was made by.
    name: str = ""
    #: Learning rate of the method's own parameters relative to the classifier's.
    lr_scale: float = 1.0
    #: Whether training goes on with a student of its calibrated probabilities, unless told otherwise.
    student: bool = False
    #: "paper", or "reference" for what the authors' program does where it differs.
    variant: Variant = "paper"
    #: What the authors' programs add inside the logarithm (ROLE's and EM's).
    reference_eps: ClassVar[float] = 1e-5
    #: "entries": mean over B·L. "rows": sum over classes, mean over rows.
    reduction: Literal["entries", "rows"] = "entries"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # hyperparameters: a number, or a buffer in a stack

    def __init__(self, *, stack: int | None = None, **hyper: Any) -> None:
        super().__init__()
        if hyper.get("variant", "paper") not in ("paper", "reference"):
            raise ValueError(f"variant must be 'paper' or 'reference', got {hyper['variant']!r}")
        lengths = {name: len(seq) for name, value in hyper.items() if (seq := _numbers(value)) is not None}
        if stack is not None:
            lengths["stack"] = int(stack)
        if len(set(lengths.values())) > 1:
            raise ValueError(f"all stacked hyperparameters need one length, got {lengths}")
        self.stack: int | None = next(iter(lengths.values()), None)
        if self.stack is not None and self.stack < 1:
            raise ValueError(f"a stack needs at least one model, got {lengths}")
        self._columns: dict[str, list[float]] = {}
        self._precision: torch.dtype | None = None
        self._held: dict[torch.dtype, dict[str, Tensor]] = {}
        ranges = type(self).hyperparameters()
        for name, value in hyper.items():
            if (seq := _numbers(value)) is not None:
                for v in seq:
                    ranges.get(name, Hyper("")).check(name, v)
                self._column(name, seq)
                continue
            if isinstance(value, (Tensor, np.ndarray, np.generic)):
                value = value.item()
            if name in ranges and value is not None:
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise TypeError(f"{name} must be a number, or a sequence of them for a stack, got {value!r}")
                ranges[name].check(name, value)
            setattr(self, name, value)
        self._hyper = dict(hyper)

    def __setattr__(self, name: str, value: Any) -> None:
        # What follows from a setting (views, quotas, kernels) was made with it: a later one would be half heard.
        if name in self.__dict__.get("_hyper", ()):
            raise AttributeError(
                f"{name} of {self.name or type(self).__name__} is fixed once the method is made: "
                f"make another with {name}=, or keep what moves under another name"
            )
        super().__setattr__(name, value)

    def _column(self, name: str, numbers: list[float]) -> None:
        """Hold numbers, one per model, as a buffer that broadcasts over logits; the numbers themselves stay exact.

        New numbers go into the tensors there are, in every precision, for a captured graph reads one of them.
        """
        self._columns[name] = numbers
        self._precision = self._precision or torch.float32
        self._held.setdefault(self._precision, {})
        shape = (1, 1) if self.stack is None else (-1, 1, 1)
        device = getattr(getattr(self, name, None), "device", None)
        for dtype, held in self._held.items():
            column = torch.tensor(numbers, dtype=dtype).reshape(shape)
            if name in held:
                held[name].copy_(column, non_blocking=True)
            else:
                held[name] = column.to(device)
        self.register_buffer(name, self._held[self._precision][name], persistent=False)

    def _match(self, dtype: torch.dtype) -> None:
        """Use those in the logits' precision: a float32 0.1 would spoil float64, a float64 one slow float32 down."""
        if self._precision in (None, dtype):
            return
        self._precision = dtype
        for name, numbers in self._columns.items():
            if name in self._held.get(dtype, {}):
                self._buffers[name] = self._held[dtype][name]
            else:
                self._column(name, numbers)

    def _apply(self, fn: Any, recurse: bool = True) -> Method:
        """Moves; but settings and memory keep their precision, and parameters are not halved: steps would be lost."""
        memory = {id(buffer) for buffer in self.buffers()}

        def keep(tensor: Tensor) -> Tensor:
            moved: Tensor = fn(tensor)
            rounds = id(tensor) in memory or moved.dtype in (torch.float16, torch.bfloat16)
            return tensor.to(moved.device) if rounds and moved.dtype != tensor.dtype else moved

        super()._apply(keep, recurse)
        for dtype, held in self._held.items():
            for name, column in held.items():
                own = self._buffers[name] if dtype == self._precision else None
                held[name] = column.to(fn(column).device) if own is None else own
        for name, numbers in self._columns.items():
            self._column(name, numbers)
        return self

    # -- what a subclass may say -------------------------------------------------------------------------------

    @property
    def needs(self) -> Needs:
        return Needs()

    def bind(self, labels: Labels) -> Method:
        """Learn the training set's size, allocate memory. Call once, before training."""
        return self

    def bind_features(self, features: Tensor) -> Method:
        """See the whole training set's features, N×D, once, before training: for methods that look at neighbours."""
        return self

    @classmethod
    def trials(cls, num_classes: int, *, frozen: bool = True) -> dict[str, tuple[float, ...]]:
        """Settings whose best value depends on the data, with what to try of each on held-out rows.

        Args:
            frozen: features stay as they are; False where linear probes choose for a network that will be fine-tuned.
        """
        return {}

    @classmethod
    def read_off(cls, names: Tensor, true: Tensor) -> dict[str, float]:
        """Settings that follow from labels alone, without a try: how often each class is named in training, L, and rows
        of which every label is known, n×L.
        """
        return {}

    def head(self, feature_dim: int, num_classes: int) -> nn.Module | None:
        """The classifier a method insists on (features → logits), for the model to own; None: any will do."""
        return None

    def presence(self, outputs: Tensor) -> Tensor:
        """The logits that outputs of linear probes, …×B×L, stand for: what a linear `head` makes of its own."""
        return outputs

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Move schedules to 0-based `epoch` of `epochs`."""

    def end_epoch(self, score: Score | None = None) -> None:
        """Update memory; `score()` yields the training set's probabilities (N×L, or M×N×L in a stack)."""

    def compute(self, batch: Batch) -> Tensor:
        """The loss of one batch: a scalar, or M of them in a stack."""
        raise NotImplementedError

    def optimizers(self, lr: float | Tensor) -> list[torch.optim.Optimizer]:
        """Optimisers of the method's own parameters, for a classifier trained at `lr`; empty where it has none."""
        own = [p for p in self.parameters() if p.requires_grad]
        return [torch.optim.Adam(own, lr=lr * self.lr_scale)] if own else []

    # -- what everybody gets -----------------------------------------------------------------------------------

    def forward(
        self,
        logits: Tensor,
        observed: Tensor,
        *,
        index: Tensor | None = None,
        features: Tensor | None = None,
        views: Sequence[Tensor] = (),
        weights: Iterable[Tensor] = (),
    ) -> Tensor:
        """The mean loss of a batch: logits B×L (any float dtype), observed B×L in {+1, 0, −1}."""
        weights = tuple(weights)
        self._check(logits, observed, index, features, views, weights)
        # Half precision in, float32 arithmetic and result out: sums over B·L entries overflow or drown in it.
        logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        if not logits.numel():  # an empty batch costs nothing
            return logits.sum((-2, -1))
        self._match(logits.dtype)
        views = tuple(v.to(logits.dtype) for v in views)
        device = logits.device.type
        mixed = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if mixed else nullcontext():
            return self.check_loss(self.compute(Batch(logits, observed, index, features, views, weights)))

    def check_loss(self, loss: Tensor) -> Tensor:
        """What `compute` gave, if it is a single number, or one for each model of a stack."""
        if loss.shape != (() if self.stack is None else (self.stack,)):
            want = "a single number for logits B×L" if self.stack is None else f"{self.stack} losses for logits M×B×L"
            raise ValueError(
                f"compute of {self.name or type(self).__name__} must give {want}, got shape {tuple(loss.shape)}: "
                "end with self.reduce(entries), or reduce the last two dimensions only"
            )
        return loss

    @property
    def eps(self) -> float:
        """The additive epsilon inside logarithms: 0 unless ``variant="reference"``."""
        return self.reference_eps if self.variant == "reference" else 0.0

    def reduce(self, entries: Tensor) -> Tensor:
        """B×L → scalar, M×B×L → M, by :attr:`reduction`."""
        if self.reduction == "rows":
            return entries.sum(-1).mean(-1)
        return entries.mean((-2, -1))

    def column(self, value: Any) -> Number:
        """A hyperparameter shaped for M-sized results instead of M×B×L ones."""
        return value.reshape(-1) if isinstance(value, Tensor) else float(value)

    def each(self, name: str) -> list[float]:
        """A hyperparameter as Python numbers, one per model, before float32 rounded it."""
        return _numbers(self._hyper[name]) or [float(self._hyper[name])] * (self.stack or 1)

    @classmethod
    def hyperparameters(cls) -> Mapping[str, Hyper]:
        return getattr(cls, "hyper", {})

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self._hyper.items())

    def _refuse_wrapped(self) -> None:
        """At every forward DDP copies the first process's buffers over the others': what these remember would go."""
        wrapper = getattr(DistributedDataParallel, "_active_ddp_module", None)  # set while one runs
        if wrapper is not None and any(module is self for module in wrapper.modules()):
            raise ValueError(
                f"{type(self).__name__} remembers each row of the training set, and DDP would overwrite that: keep it "
                "outside the module that DDP wraps, and gather logits and index (docs/how-to/many-gpus.md)"
            )

    def _check(
        self,
        logits: Tensor,
        observed: Tensor,
        index: Tensor | None,
        features: Tensor | None,
        views: Sequence[Tensor],
        weights: Sequence[Tensor],
    ) -> None:
        shape, lead = logits.shape, () if self.stack is None else (self.stack,)
        if len(shape) != 2 + len(lead) or shape[: len(lead)] != lead:
            want = "B×L" if not lead else f"{self.stack}×B×L"
            raise ValueError(f"logits must have shape {want}, got {tuple(logits.shape)}")
        if not logits.is_floating_point():
            raise ValueError(f"logits must be floating point, got {logits.dtype}")
        if observed.shape not in (shape, shape[-2:]):
            raise ValueError(
                f"observed must have the shape of logits {tuple(logits.shape)}, got {tuple(observed.shape)}"
            )
        if observed.device != logits.device:
            raise ValueError(f"observed is on {observed.device}, logits on {logits.device}: move one of them")
        needs = self.needs
        if needs.index and not torch.compiler.is_compiling():
            self._refuse_wrapped()
        if needs.index and index is None:
            raise ValueError(f"{type(self).__name__} needs index=: the batch's positions in the training set")
        if index is not None and index.shape[-1] != logits.shape[-2]:
            raise ValueError(f"index must have one entry per row ({logits.shape[-2]}), got {tuple(index.shape)}")
        if needs.features and features is None:
            raise ValueError(f"{type(self).__name__} needs features=: what the last layer sees, B×D")
        if needs.weights and not weights:
            raise ValueError(f"{type(self).__name__} needs weights=: the trainable weights it penalises")
        if len(views) != needs.views - 1:
            raise ValueError(
                f"{type(self).__name__} needs {needs.views - 1} further views of each picture, got {len(views)}"
            )
        for view in views:
            if view.shape != logits.shape:
                raise ValueError(f"views must have the shape of logits {tuple(logits.shape)}, got {tuple(view.shape)}")
        # Values are looked at only where looking is free: on a GPU it would stop the host every step. The trainer
        # calls `diagnose` itself when a loss turns out not finite.
        if may_look(logits):
            diagnose(logits, observed)


def transformed() -> bool:
    """Whether torch.func is at work: what it calls sees neither values nor kernels."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def may_look(tensor: Tensor) -> bool:
    """Whether looking at values is possible and free: not on a GPU, where the host would wait."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed()


def check_k(k: Any, num_classes: int, *, below: bool = False) -> None:
    """Raise unless the expected number of positives (one, or one per stacked model) lies in (0, L], or `below` L."""
    for value in _numbers(k) or [float(k)]:
        if not 0 < value <= num_classes or (below and value == num_classes):
            raise ValueError(
                f"expected_positives must lie in (0, {num_classes}{')' if below else ']'}, the number of classes, "
                f"got {value:g}"
            )


def diagnose(logits: Tensor, observed: Tensor) -> None:
    """Raise, naming the first row, if logits hold a NaN or infinity or observed labels are not in {−1, 0, +1}."""
    if not logits.numel():
        return
    total = logits.detach().sum(dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32)
    if not math.isfinite(total.item()):
        bad = (~torch.isfinite(logits.detach())).nonzero()
        if len(bad):
            *_, row, column = where = bad[0].tolist()
            value = logits.detach()[tuple(where)].item()
            raise ValueError(
                f"logits are not finite: {value} at row {row}, class {column} ({len(bad)} such entries); "
                "lower the learning rate or look at the inputs of that row"
            )
    low, high = (v.item() for v in observed.detach().aminmax())
    exact = not observed.is_floating_point() or bool((observed == observed.round()).all())
    if not (low >= -1 and high <= 1 and exact):  # so written for NaN
        wrong = (observed != 0) & (observed != 1) & (observed != -1)
        *_, row, column = where = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"observed must hold only +1 (positive), 0 (unknown), −1 (negative); "
            f"got {observed[tuple(where)].item()} at row {row}, class {column}"
        )


# -- the registry --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodInfo:
    """One entry of the catalogue."""

    name: str
    title: str
    paper: str
    year: int
    cls: type[Method]
    formula: str
    preset: Mapping[str, Any] = field(default_factory=dict)  #: its own defaults
    fixed: Mapping[str, Any] = field(default_factory=dict)  #: settings that make it this method, so not to be set

    @property
    def hyper(self) -> Mapping[str, Hyper]:
        return {k: v for k, v in self.cls.hyperparameters().items() if k not in self.fixed}

    @property
    def needs(self) -> Needs:
        return method(self.name).needs

    @property
    def defaults(self) -> dict[str, Any]:
        return {**_defaults(self.cls), **self.preset, **self.fixed}


_REGISTRY: dict[str, MethodInfo] = {}


def register(
    name: str,
    *,
    title: str,
    paper: str,
    year: int,
    formula: str,
    fixed: Mapping[str, Any] | None = None,
    **preset: Any,
) -> Callable[[type[Method]], type[Method]]:
    """Class decorator: put a method into the catalogue. Repeat it for names that differ only in settings.

    A `preset` is this name's default; what is `fixed` is not open to the caller.
    """

    def add(cls: type[Method]) -> type[Method]:
        if name in _REGISTRY:
            raise ValueError(f"method {name!r} is registered twice")
        _REGISTRY[name] = MethodInfo(name, title, paper, year, cls, formula, preset, fixed or {})
        cls.name = cls.__dict__.get("name", name)
        return cls

    return add


def _defaults(cls: type[Method]) -> dict[str, Any]:
    signature = inspect.signature(cls.__init__)
    return {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}


def _plug_in() -> None:
    """Import the modules that ONELABEL_PLUGINS names; they register methods of their own."""
    for name in filter(None, map(str.strip, os.environ.get("ONELABEL_PLUGINS", "").split(","))):
        try:
            importlib.import_module(name)
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            hint = "; is its folder on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
            raise ImportError(f"ONELABEL_PLUGINS: cannot import {name!r}: {reason}{hint}") from error


def list_methods() -> list[str]:
    """The names of all methods, those of the modules in ONELABEL_PLUGINS too."""
    _plug_in()
    return list(_REGISTRY)


def method_info(name: str) -> MethodInfo:
    """What the catalogue says of a method; unknown names are answered with the nearest one."""
    _plug_in()
    if name not in _REGISTRY:
        near = difflib.get_close_matches(str(name).lower().replace("_", "-"), _REGISTRY, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"there is no method {name!r}; {hint}onelabel.list_methods() lists them all "
            "(one of your own: name its module in ONELABEL_PLUGINS)"
        )
    return _REGISTRY[name]


def method(name: str, **hyper: Any) -> Method:
    """Make a method by name: ``onelabel.method("em", alpha=0.2)``."""
    info = method_info(name)
    known = [p for p in inspect.signature(info.cls.__init__).parameters if p != "self" and p not in info.fixed]
    for key in hyper:
        if key in info.fixed:
            raise TypeError(f"method {name!r} has {key} fixed at {info.fixed[key]!r}; it takes {', '.join(known)}")
        if key == "stack" and key not in known:
            raise TypeError(
                f"method {name!r} cannot be stacked: give its __init__ an argument stack=None and pass it on with "
                "super().__init__(stack=stack, …)"
            )
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise TypeError(f"method {name!r} has no setting {key!r}; {hint}it takes {', '.join(known)}")
    made = info.cls(**{**info.preset, **hyper, **info.fixed})
    made.name = name
    return made
