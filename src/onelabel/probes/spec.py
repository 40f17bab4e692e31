"""What a probe is: a method with its settings, a learning rate, a batch size and a seed; and grids of them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

import onelabel.methods  # noqa: F401  (registers every method)
from onelabel.contract import Method, list_methods, method, method_info

Methods = str | Iterable[str] | Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ProbeSpec:
    """One linear classifier to train.

    Attributes:
        method: a name of `onelabel.list_methods()`.
        hyper: the method's settings; what is absent keeps its default.
        lr: Adam's learning rate.
        batch_size: rows a step.
        seed: of the first weights and of the order of the rows, nothing else, so equal seeds are a paired comparison.
        epochs: passes over the training rows.
        weight_decay: Adam's, i.e. added to the gradient as weight_decay·W.
        labels: which of several sets of observed labels it learns from, by name ("" where there is one).
    """

    method: str
    hyper: Mapping[str, Any] = field(default_factory=dict)
    lr: float = 1e-3
    batch_size: int = 16
    seed: int = 0
    epochs: int = 25
    weight_decay: float = 0.0
    labels: str = ""

    def __post_init__(self) -> None:
        method_info(self.method)
        if not self.lr > 0:
            raise ValueError(f"lr must be above 0, got {self.lr!r}")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay!r}")
        for name in ("batch_size", "epochs"):
            if int(getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")

    @property
    def cell(self) -> tuple[Any, ...]:
        """All but the seed: probes of one cell are repetitions of one another."""
        hyper = tuple(sorted((name, repr(value)) for name, value in self.hyper.items()))
        return self.method, hyper, self.lr, self.batch_size, self.epochs, self.weight_decay, self.labels

    def __hash__(self) -> int:
        return hash((self.cell, self.seed))

    def __str__(self) -> str:
        hyper = "".join(f" {name}={_short(value)}" for name, value in self.hyper.items())
        decay = f" wd {self.weight_decay:g}" if self.weight_decay else ""
        return f"{self.method}{hyper} lr {self.lr:g} batch {self.batch_size}{decay}"


def presence(outputs: Tensor, specs: Sequence[ProbeSpec]) -> Tensor:
    """The logits of linear probes, M×N×L, in place of what their weights alone give: most methods take it as it is."""
    for i, spec in enumerate(specs):
        if method_info(spec.method).cls.presence is not Method.presence:
            outputs[i] = method(spec.method, **spec.hyper).presence(outputs[i])
    return outputs


def grid(
    methods: Methods,
    *,
    lr: float | Sequence[float] = (1e-2, 1e-3, 1e-4, 1e-5),
    batch_size: int | Sequence[int] = (8, 16),
    seeds: int | Sequence[int] = (0,),
    epochs: int = 25,
    weight_decay: float | Sequence[float] = 0.0,
    labels: str | Mapping[str, str] = "",
    search: bool = False,
    **hyper: Any,
) -> list[ProbeSpec]:
    """Every combination of methods, their settings, learning rates, batch sizes and seeds.

        grid(["an", "em"], lr=[1e-3, 1e-4], alpha=[0.1, 0.2], seeds=[0, 1, 2])
        grid({"em": {"alpha": [0.1, 0.2]}, "gr": {"w": 10, "b": -8}})

    Args:
        methods: names, or settings by name.
        hyper: settings given to every method that has them; a list is searched.
        labels: the set of observed labels, for all or by method.
        search: also search what each method's catalogue entry says is worth searching, where nothing is given.
    """
    table = _table(methods)
    takers: dict[str, int] = dict.fromkeys(hyper, 0)
    specs: list[ProbeSpec] = []
    for name, own in table.items():
        info = method_info(name)
        known = inspect.signature(info.cls.__init__).parameters
        given = {key: value for key, value in hyper.items() if key in known and key not in info.preset}
        for key in given:
            takers[key] += 1
        settings = {**given, **own}
        if search:
            found = {key: list(h.search) for key, h in info.hyper.items() if h.search}
            settings = {**found, **settings}
        axes = [_list(value) for value in settings.values()]
        which = labels if isinstance(labels, str) else labels.get(name, "")
        for values in itertools.product(*axes):
            chosen = dict(zip(settings, values, strict=True))
            for rate, size, decay, seed in itertools.product(
                _list(lr), _list(batch_size), _list(weight_decay), _list(seeds)
            ):
                specs.append(ProbeSpec(name, chosen, float(rate), int(size), int(seed), epochs, float(decay), which))
    if idle := [key for key, count in takers.items() if not count]:
        raise TypeError(f"no method of {', '.join(table)} has a setting {idle[0]!r}")
    return specs


def _table(methods: Methods) -> dict[str, Mapping[str, Any]]:
    if isinstance(methods, Mapping):
        return {name: dict(own) for name, own in methods.items()}
    names = list_methods() if methods == "all" else [methods] if isinstance(methods, str) else list(methods)
    return {name: {} for name in names}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, range)) else [value]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
