"""Which figures a report shows, in which order, with what they say; a figure that cannot be drawn is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onelabel.report import style
from onelabel.report.figures import entry
from onelabel.report.figures.surface import kept_surface
from onelabel.report.runs import RunView

Section = dict[str, Any]

#: Title → figures: name, settings, caption.
LAYOUT: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "Learning": [
        ("learning-curves", {}, "Validation mAP by epoch; a ring marks the best epoch."),
        ("learning-curves", {"metric": "validation_likelihood"}, "Likelihood of validation's observed labels by epoch, "
         "by which the best epoch was chosen."),
        ("positive-loss", {}, "Loss on the observed positives, from training's own steps. A method that spends itself "
         "on assumed negatives learns them late."),
    ],
    "What is unknown": [
        ("class-counts", {}, "Positives that were observed, and positives that are missing."),
        ("unknown-shares", {}, "Of the labels nobody gave, how many are positive: few, in most classes."),
    ],
    "What the model thinks of what it was never told": [
        ("heatmap", {}, "Probabilities of the unknown positives by epoch. Mass rising to 1: they are found again."),
        ("scores-by-group", {}, "Probabilities of observed and unknown positives: median and quartiles."),
        ("logits-by-group", {}, "Absolute logits of unknown positives and negatives: median and quartiles."),
        ("wasserstein-epochs", {}, "How far apart unknown positives and negatives are held, all classes together."),
        ("false-negative-share", {}, "Of unknown entries given probability p, the share that is positive in truth."),
        ("predictive-values", {}, "How often a positive and a negative prediction on validation is right."),
    ],
    "Class by class": [
        ("class-improvement", {}, "Average precision on test, gained or lost."),
        ("wasserstein", {}, "Each point is a class: how far apart its unknown positives and negatives are held."),
        ("densities", {}, "Scores of positives and negatives of the most frequent classes, on test."),
    ],
    "The losses themselves": [
        ("curves", {"what": "gradient", "epoch": "end"}, "How hard an entry pulls, by its logit, when training ends."),
        ("landscape", {"kept": True}, "The loss around the weights of the best epoch, along two random directions: the "
         "flatter, the less it matters where exactly training ended."),
    ],
}  # fmt: skip


def figure_sections(runs: Sequence[RunView]) -> list[Section]:
    """The figures of runs; those trained on every label are left out where nothing is unknown to them."""
    partial = [run for run in runs if not run.full]
    made = []
    for name, figures in LAYOUT.items():
        items = []
        for figure, settings, caption in figures:
            about_unknown = name.startswith(("What", "The losses")) or figure in ("wasserstein",)
            chosen: Any = partial if about_unknown else runs
            if figure == "curves":
                chosen = _drawable(runs)
            elif figure == "landscape":  # only what somebody asked for: it takes long
                chosen = [run for run in partial if kept_surface(run.path) is not None]
            item = draw(figure, chosen, settings, caption, key=f"{name}-{figure}-{settings.get('metric', '')}")
            items += [item] if item else []
        if items:
            made.append({"title": name, "figures": filled(items)})
    return made


def filled(items: list[Section]) -> list[Section]:
    """Figures go two in a row; one that would stand alone beside a hole gets the whole row."""
    waiting: Section | None = None
    for item in [*items, {"wide": True}]:
        if not item["wide"]:
            waiting = item if waiting is None else None
        elif waiting is not None:
            waiting["alone"], waiting = True, None
    return items


def result_sections(rows: Sequence[Any]) -> list[Section]:
    """The sweeps found among benchmark results."""
    if not rows:
        return []
    from onelabel.report.figures.sweeps import found_sweeps

    items = [
        draw(name, chosen, settings, caption, key=caption) for name, chosen, settings, caption in found_sweeps(rows)
    ]
    drawn = [item for item in items if item]
    return [{"title": "Benchmark", "figures": filled(drawn)}] if drawn else []


def draw(name: str, chosen: Any, settings: dict[str, Any], caption: str, *, key: str) -> Section | None:
    """One figure as SVG for the page, or None where its data are not there."""
    if not chosen:
        return None
    try:
        figure = entry(name).draw(chosen, **settings)
    except ValueError:  # the figure says what it lacks; a page goes without
        return None
    width = float(figure.get_figwidth())
    from markupsafe import Markup

    # matplotlib escapes the names it prints; nothing else of the SVG comes from outside
    picture = Markup(_described(style.svg(figure, key=key), caption))
    return {"name": name, "svg": picture, "caption": caption, "width": width, "wide": width > 6.5, "alone": False}


def _described(svg: str, caption: str) -> str:
    from html import escape

    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(caption, quote=True)}" ', 1)


def _drawable(runs: Sequence[RunView]) -> Any:
    from onelabel.methods import method
    from onelabel.report.figures import has_curve

    make: Callable[..., Any] = method
    found: dict[str, Any] = {}
    for run in runs:
        if has_curve(run.method) and not run.full:
            found.setdefault(style.title(run.method), make(run.method, **run.config.hyper))
    return found
