"""What the papers plot over a setting, from benchmark results: means over seeds, bars of one standard deviation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from onelabel.report import style
from onelabel.report.figures.registry import figure

Results = Any  # bench.results.Row
Place = Callable[[Results], "float | None"]
NAMES = {
    "alpha": "α", "beta": "β", "gamma": "γ", "mu": "μ", "sigma": "σ", "tau": "τ", "lam_positive": "λ₊", "q1": "q₁",
    "q2": "q₂", "q3": "q₃", "expected_positives": "k", "gamma_negative": "γ₋", "lam": "λ", "delta": "Δ (%)",
}  # fmt: skip
#: What makes runs no repetitions of one another, however alike their settings: a mean over them says nothing.
KINDS = ("dataset", "mode", "draw", "protocol", "fraction")


class Point(NamedTuple):
    """A place on a line: the mean over seeds, its standard deviation (NaN for one) and how many there are."""

    x: float
    mean: float
    std: float
    seeds: int


def line_points(
    rows: Sequence[Results],
    place: Place,
    *,
    line: Callable[[Results], str],
    metric: str = "test_map",
    kinds: Sequence[str] = KINDS,
    lone: bool = True,
) -> dict[str, list[Point]]:
    """Lines of points. Where runs at one place differ in more than their seed (learning rate, batch, another setting),
    the cell with the best mean validation mAP is taken, as the papers do; test mAP only where nothing was validated.

    Runs of different `kinds` are different lines, named NAME|KIND where they differ. Without `lone` a line of a single
    point is left out, if others have more.
    """
    cells: dict[tuple[Any, ...], dict[float, dict[str, list[Results]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in rows:
        x, y = place(row), getattr(row, metric)
        if row.done and x is not None and y is not None:
            rest = {k: v for k, v in row.settings.items() if k not in ("seed", "device")}
            alike = repr((sorted(row.hyper.items(), key=repr), sorted(rest.items(), key=repr)))
            what = (line(row), *(getattr(row, kind) for kind in kinds))
            cells[what][float(x)][alike].append(row)
    if not lone:
        cells = {key: found for key, found in cells.items() if len(found) > 1} or cells
    differing = [i for i in range(1, len(kinds) + 1) if len({key[i] for key in cells}) > 1]
    lines: dict[str, list[Point]] = {}
    for key, places in sorted(cells.items(), key=lambda item: item[0]):
        points = lines["|".join([key[0], *(_kind(key[i]) for i in differing)])] = []
        for x, found in sorted(places.items()):
            values = [getattr(row, metric) for row in max(found.values(), key=lambda members: _worth(members, metric))]
            std = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
            points.append(Point(x, float(np.mean(values)), std, len(values)))
    return lines


def _kind(value: Any) -> str:
    return f"{value:.0%} of the rows" if isinstance(value, float) else str(value)


def _worth(members: Sequence[Results], metric: str) -> float:
    held = [row.validation_map for row in members]
    return float(np.mean([getattr(row, metric) for row in members] if None in held else held))


def hyper_of(name: str) -> Place:
    """A method's setting; GR's τ is −b/w, where it has no τ of its own."""

    def place(row: Results) -> float | None:
        value = row.hyper.get(name)
        if value is None and name == "tau" and row.method == "gr" and row.hyper.get("w"):
            value = round(-row.hyper["b"] / row.hyper["w"], 6) if "b" in row.hyper else None
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    return place


@figure("results", "EM 3a, GR 2, LASD 1")
def sweep(rows: Sequence[Results], *, hyper: str, by: str | None = None, metric: str = "test_map") -> Any:
    """mAP over a method's setting (α, β, μ, σ, q, λ₊, τ, …), with a line per value of another setting (`by`)."""
    place, other = hyper_of(hyper), hyper_of(by) if by else None

    def line(row: Results) -> str:
        extra = other(row) if other is not None else None
        return row.label if extra is None else f"{row.label}|{NAMES.get(by or '', by)} = {extra:g}"

    lines = line_points(rows, place, line=line, metric=metric, lone=False)
    if not lines:
        remedy = "`onelabel bench DATA --sweep NAME` makes them, `onelabel bench sweeps` lists the names"
        raise ValueError(f"hyper: no result has a setting {hyper!r}; {remedy}")
    fig, ax = _lines(lines)
    xs = {p.x for points in lines.values() for p in points}
    if min(xs) > 0 and max(xs) / min(xs) >= 20:
        _log(ax, sorted(xs))
    ax.set(xlabel=NAMES.get(hyper, hyper), ylabel=_metric(metric))
    return fig


@figure("results", "ROLE A1")
def k_sensitivity(rows: Sequence[Results], *, true_k: float | None = None, metric: str = "test_map") -> Any:
    """mAP over the k that a method is told; the band is what the true k gives (mean ± standard deviation)."""
    fig = sweep(rows, hyper="expected_positives", metric=metric)
    ax = fig.axes[0]
    if true_k is not None:
        lines = line_points(rows, hyper_of("expected_positives"), line=_label, metric=metric, lone=False)
        for name, points in lines.items():
            near = min(points, key=lambda p: abs(p.x - true_k))
            if abs(near.x - true_k) < 1e-6:
                spread = 0.0 if np.isnan(near.std) else near.std
                colour = style.look(name.split("|")[0]).colour
                ax.axhspan(near.mean - spread, near.mean + spread, color=colour, alpha=0.15, lw=0)
                ax.axvline(true_k, color=style.MUTED, ls=(0, (1, 1.4)), lw=1.2)
    ax.set_xlabel("k, the expected number of positives")
    return fig


@figure("results", "ROLE 1")
def label_budget(rows: Sequence[Results], *, metric: str = "test_map") -> Any:
    """mAP over the number of observed training labels: fractions of the images, one label each or all of them."""
    kinds = [kind for kind in KINDS if kind != "fraction"]
    lines = line_points(rows, observed_labels, line=_label, metric=metric, kinds=kinds)
    if not lines:
        raise ValueError("rows: no result says how many training rows it used")
    fig, ax = _lines(lines)
    ax.set(xscale="log", xlabel="observed training labels", ylabel=_metric(metric))
    return fig


def observed_labels(row: Results) -> float | None:
    """How many labels a run was given: a label an image, two with a negative, or every class where labels are full."""
    rows, classes = row.rows.get("train"), len(row.classes)
    if not rows:
        return None
    each = {"positive": 1, "positive+negative": 2, "full": classes, "positive+negatives": classes}
    count = each.get(row.supervision, 0)
    return float(rows * count) if count else None


@figure("results", "EM 5c")
def missing_fraction(rows: Sequence[Results], *, metric: str = "test_map") -> Any:
    """mAP over the share of labels of either sign that is missing."""
    kinds = [kind for kind in KINDS if kind != "draw"]
    lines = line_points(rows, missing_share, line=_label, metric=metric, kinds=kinds)
    if not lines:
        raise ValueError("rows: no result has a draw missing:SHARE; `onelabel bench DATA --sweep missing` makes them")
    fig, ax = _lines(lines)
    ax.set(xlabel="missing labels (%)", ylabel=_metric(metric))
    return fig


def missing_share(row: Results) -> float | None:
    """The percentage that a draw such as "missing:0.4" hides; 0 where every label is observed."""
    kind, _, rest = row.draw.partition(":")
    if kind == "missing":
        return 100 * float(rest.partition(":")[0])
    return None


def found_sweeps(rows: Sequence[Results]) -> Iterator[tuple[str, Sequence[Results], dict[str, Any], str]]:
    """Which of the bench room's sweeps there are among results: figure, rows, settings, caption."""
    from onelabel.bench.sweeps import SWEEPS

    drawn = {"fraction": "label-budget", "missing": "missing-fraction", "expected_positives": "k-sensitivity"}
    for name, known in SWEEPS.items():
        mine = [row for row in rows if row.plan == f"sweep:{name}" and row.done]
        if mine:
            settings = {"hyper": known.key, "by": next((k for line in known.lines for k in line), None)}
            figure = drawn.get(known.key, "sweep")
            yield figure, mine, settings if figure == "sweep" else {}, f"{known.doc} ({known.figure})."


def _label(row: Results) -> str:
    return str(row.label)


def _lines(lines: dict[str, list[Point]]) -> tuple[Any, Any]:
    fig, ax = style.canvas()
    keys = [name.split("|") for name in lines]
    looks = style.apart([style.look(name) for name, *_ in keys])
    for (name, *rest), points, look in zip(keys, lines.values(), looks, strict=True):
        _draw(ax, points, look, ", ".join([style.title(name), *rest]))
    style.legend(fig, ax)
    return fig, ax


def _draw(ax: Any, points: Sequence[Point], look: style.Look, name: str) -> None:
    x, mean, std, _ = (np.array(column) for column in zip(*points, strict=True))
    some = {"yerr": np.nan_to_num(std), "capsize": 3, "elinewidth": 1.2} if np.isfinite(std).any() else {}
    ax.errorbar(x, mean, color=look.colour, ls=look.dash, marker=look.marker, label=name, **some)


def _log(ax: Any, ticks: Sequence[float]) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())


def _metric(name: str) -> str:
    words = {"test_map": "test mAP (%)", "validation_map": "validation mAP (%)", "train_map": "training mAP (%)"}
    return words.get(name, f"{name.replace('_', ' ')} (%)")
