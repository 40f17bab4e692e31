"""Sweeps: what the papers plot over a setting, as plans of the runner."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onelabel.bench.datasets import without_mark
from onelabel.bench.plan import Planned, make_plan
from onelabel.bench.published import K_PRINTED
from onelabel.bench.recipe import settled

WEIGHTS = (0.01, 0.02, 0.1, 0.2, 0.4, 0.9)


@dataclass(frozen=True)
class Sweep:
    """One axis of settings: of the method (`hyper`), of the draw, or of the share of training rows.

    Attributes:
        key: the setting on the horizontal axis, as rows have it in `hyper`, or "fraction" or "missing".
        values: along the axis; `lines` are further settings, one line of the figure each.
    """

    name: str
    figure: str
    doc: str
    methods: tuple[str, ...]
    key: str
    values: tuple[float, ...]
    lines: tuple[Mapping[str, Any], ...] = field(default_factory=lambda: ({},))


SWEEPS: Mapping[str, Sweep] = {
    s.name: s
    for s in (
        Sweep("em.alpha", "EM 3a", "weight of the entropy", ("em",), "alpha", WEIGHTS),
        Sweep("roll-call.alpha", "ours", "weight of the pull to ½", ("roll-call",), "alpha", WEIGHTS),
        Sweep("roll-call.gamma", "ours", "how much a common class counts as a rival", ("roll-call",), "gamma",
              (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)),
        Sweep("roll-call.naming", "ours", "share of the naming distribution in a logit", ("roll-call",), "naming",
              (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)),
        Sweep("em-apl.beta", "EM supplement", "weight of pseudo-labels", ("em-apl",), "beta", WEIGHTS),
        Sweep(
            "gr.tau",
            "GR 2a",
            "threshold τ = −b/w of k̂ at the end, for three b",
            ("gr",),
            "tau",
            (0.6, 0.7, 0.8, 0.9, 1.0),
            ({"b": -2.0}, {"b": -5.0}, {"b": -8.0}),
        ),
        Sweep(
            "gr.mu",
            "GR 2b",
            "centre μ of v at the end, for three widths σ",
            ("gr",),
            "mu",
            (0.2, 0.4, 0.6, 0.8, 1.0),
            ({"sigma": 0.1}, {"sigma": 0.5}, {"sigma": 1.0}),
        ),
        Sweep(
            "gr.q", "GR 2c", "q3, for three q2", ("gr",), "q3", (0.01, 0.5, 1.0, 1.5),
            ({"q2": 0.01}, {"q2": 0.5}, {"q2": 1.0}),
        ),
        Sweep(
            "lasd.lam", "LASD 1a", "leverage λ₊", ("lasd",), "lam_positive", (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
        ),
        Sweep("lasd.tau", "LASD 1b", "disambiguation threshold", ("lasd",), "tau", (0.86, 0.88, 0.9, 0.93, 0.96, 1.0)),
        Sweep("lasd.alpha", "LASD 1c", "weight of the consistency (pictures only)", ("lasd",), "alpha",
              (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 1.0)),
        Sweep("role.k", "ROLE A1", "k over the interval of its estimates from five rows", ("role",),
              "expected_positives", ()),
        Sweep("images", "ROLE 1", "share of the training images", ("bce", "iun", "an", "an-ls", "role", "em", "gr",
              "roll-call"), "fraction", tuple(round(0.1 * m, 1) for m in range(1, 11))),
        Sweep("missing", "EM 5c", "share of labels missing at random; bce sees all", ("bce", "iu", "an", "em", "gr"),
              "missing", (0.1, 0.3, 0.5, 0.7, 0.9)),
    )
}  # fmt: skip


def find_sweep(name: str) -> Sweep:
    """The sweep of a name; unknown ones are answered with the nearest."""
    if name not in SWEEPS:
        near = difflib.get_close_matches(name, SWEEPS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"there is no sweep {name!r}; {hint}there are {', '.join(SWEEPS)}")
    return SWEEPS[name]


def sweep(
    name: str, dataset: str, *, mode: str = "linear", seeds: Sequence[int] = (0, 1, 2), **options: Any
) -> list[Planned]:
    """The runs of a sweep, at the recipe's learning rate and batch size; `options` are those of `make_plan`."""
    found = find_sweep(name)
    if mode == "linear" and found.key == "alpha" and found.methods == ("lasd",):
        raise ValueError("lasd.alpha weighs augmented pictures, which frozen features do not have: give mode finetune")
    common: dict[str, Any] = {**options, "modes": (mode,), "seeds": seeds, "plan": f"sweep:{name}"}
    common["search"] = bool(common.get("search"))
    if found.key == "fraction":
        return make_plan(dataset, found.methods, fractions=found.values, **common)
    if found.key == "missing":
        return make_plan(dataset, found.methods, draws=[f"missing:{v:g}" for v in found.values], **common)
    values: Sequence[float] = found.values
    if found.key == "expected_positives":
        low, high = K_PRINTED.get(without_mark(dataset), K_PRINTED["voc2012"])[0]
        values = [round(float(v), 4) for v in np.linspace(low, high, 10)]
    made = []
    for line in found.lines:
        for value in values:
            own = settled(found.methods[0], {**line, found.key: value})
            axes = {key: [setting] for key, setting in own.items()}
            made += make_plan(dataset, found.methods, hyper=axes, **common)
    return made


def settings_of(found: Sweep) -> list[str]:
    """The method's settings that differ within a sweep; GR's τ is −b/w."""
    lines = [key for line in found.lines for key in line]
    return list(dict.fromkeys(["w" if found.name == "gr.tau" else found.key, *lines]))


def position(found: Sweep, row: Any) -> float:
    """Where a row lies on a sweep's axis."""
    if found.key == "fraction":
        return float(row.fraction)
    if found.key == "missing":
        return float(row.draw.split(":")[1])
    if found.key == "tau" and found.methods == ("gr",):
        return round(-row.hyper["b"] / row.hyper["w"], 4)
    return float(row.hyper[found.key])


def line_of(found: Sweep, row: Any) -> str:
    """Which line of the figure a row belongs to."""
    extra = next(({k: row.hyper[k] for k in line} for line in found.lines if line), {})
    return " ".join([row.label, *(f"{k}={v:g}" for k, v in extra.items())])
