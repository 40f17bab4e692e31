"""The method catalogue: one page per registered method and an overview, as Markdown with MathML."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

import measured
from latex2mathml.converter import convert

import onelabel
from onelabel.bench.published import published as numbers
from onelabel.contract import Hyper, MethodInfo
from onelabel.report import figures, style
from onelabel.training.config import read_toml

LARGE = r"\displaystyle "  # fractions as in a formula that stands alone
NOTES = Path(__file__).with_name("methods.toml")
PAPERS = (("role", "1"), ("role", "A1"), ("em", "1"), ("gr", "2"), ("lasd", "2"))
DATASETS = ("voc2012", "coco2014", "nuswide", "cub")
NEEDS = {
    "index": "the batch's positions in the training set: `criterion(logits, observed, index=index)`",
    "epoch": "`criterion.begin_epoch(epoch, epochs)` at the start of each epoch",
    "scores": "`criterion.end_epoch(score)`, where `score()` gives the training set's probabilities",
    "features": "what the last layer sees: `features=`",
    "weights": "the trainable weights: `weights=model.parameters()`",
}


def notes() -> dict[str, dict[str, str]]:
    """What `methods.toml` says, by method."""
    return read_toml(NOTES)


def pages() -> dict[str, str]:
    """Path → Markdown of every page of the catalogue."""
    said, boards = notes(), measured.boards()
    made = {"catalogue/index.md": overview(said, boards)}
    for name in onelabel.list_methods():
        made[f"catalogue/{name}.md"] = page(onelabel.method_info(name), said.get(name, {}), boards)
    return made


def math_html(tex: str, *, block: bool = False) -> str:
    """LaTeX as MathML, which browsers draw by themselves."""
    return convert(tex, display="block" if block else "inline")


def formula(note: dict[str, str]) -> str:
    """The cost of an entry by what is observed of it, or of a whole batch."""
    if "whole" in note:
        return f'<div class="formula">{math_html(note["whole"], block=True)}</div>'
    rows = {"+1": note["positive"], "0": note["unknown"], "−1": note.get("negative", r"-\log(1-p)")}
    names = {"+1": "positive", "0": "unknown", "−1": "negative"}
    cells = "".join(
        f'<tr><th scope="row">{sign} <small>{names[sign]}</small></th><td>{math_html(LARGE + tex)}</td></tr>'
        for sign, tex in rows.items()
    )
    return f'<div class="formula"><table><tbody>{cells}</tbody></table></div>'


def page(info: MethodInfo, note: dict[str, str], boards: list[measured.Board]) -> str:
    """One method: formula, picture, paper, needs, settings, when to use it, what was measured."""
    parts = [f"# {info.name}", f"**{info.title}.** {info.paper} ({info.year})."]
    if note:
        parts += ["## Formula", "The cost of an entry with logit g and p = σ(g), by what was observed of it:"]
        if "whole" in note:
            parts[-1] = "The loss of a batch of B rows; p = σ(g), z the observed label:"
        parts += [formula(note), note.get("where", "")]
    parts.append(f"In the registry's words: {info.formula}.")
    parts += pictures(info)
    if note:
        parts += ["## When to use it", note["use"], "**When not.** " + note["avoid"]]
    parts += ["## Settings", settings(info), "## What it needs", needs(info)]
    parts += ["## Measured", standing(info.name, boards), published(info.name), "## In code", example(info)]
    parts.append(f"Class: [`{info.cls.__name__}`][{info.cls.__module__}.{info.cls.__name__}].")
    return "\n\n".join(part for part in parts if part) + "\n"


def pictures(info: MethodInfo) -> list[str]:
    """What an entry costs and how hard it pulls, by its logit, beside AN; at both ends of a schedule."""
    if not figures.has_curve(info.name):
        return ["There is no curve to draw: what an entry costs depends on other entries, or on what is remembered."]
    shown = [info.name] if info.name == "an" else [info.name, "an"]
    ends = ("start", "end") if info.needs.epoch else ("end",)
    drawn = []
    for what, end in [("loss", "end"), *(("gradient", end) for end in ends)]:
        when = f" in the {'first' if end == 'start' else 'last'} epoch" if info.needs.epoch else ""
        figure = figures.curves(shown, what=what, epoch=end)
        picture = style.svg(figure, key=f"{info.name}-{what}-{end}")
        said = f"{what.capitalize()} of one entry by its logit{when}"
        caption = f"<figcaption>{said}</figcaption>"
        drawn.append(f'<figure class="curve" role="img" aria-label="{said}">{picture}{caption}</figure>')
    return drawn


def settings(info: MethodInfo) -> str:
    """A table of hyperparameters: default, range, what to search."""
    if not info.hyper:
        return "None."
    lines = ["| setting | default | range | worth searching | meaning |", "| --- | --- | --- | --- | --- |"]
    for name, hyper in info.hyper.items():
        search = ", ".join(f"{v:g}" if isinstance(v, float | int) else str(v) for v in hyper.search)
        lines.append(f"| `{name}` | {info.defaults.get(name)} | {_range(hyper)} | {search or '–'} | {hyper.doc} |")
    rest = {k: v for k, v in info.defaults.items() if k not in info.hyper and k != "stack" and k not in info.fixed}
    if rest:
        lines += ["", "Also: " + ", ".join(f"`{name}={value!r}`" for name, value in rest.items()) + "."]
    if info.fixed:
        lines += ["", "Fixed: " + ", ".join(f"`{name}={value!r}`" for name, value in info.fixed.items()) + "."]
    return "\n".join(lines)


def _range(hyper: Hyper) -> str:
    ends = [f"{v:g}" if math.isfinite(v) else "∞" for v in (hyper.low, hyper.high)]
    return f"{ends[0]} to {ends[1]}"


def needs(info: MethodInfo) -> str:
    asked = info.needs
    found = [f"- **{name}**: {said}." for name, said in NEEDS.items() if getattr(asked, name)]
    if asked.views > 1:
        found.append(f"- **views={asked.views}**: the logits of {asked.views - 1} further views of each picture.")
    return "\n".join(found) or "Nothing but logits and observed labels."


def standing(name: str, boards: list[measured.Board]) -> str:
    """Where it came out, protocol by protocol."""
    lines = []
    for board in boards:
        line, rank = board.line(name), board.rank(name)
        if line is None:
            continue
        spread = f" ± {line.std:.2f}" if line.std is not None else ""
        seeds = f"{line.seeds} seed" + "s" * (line.seeds != 1)
        place = f"rank {rank[0]} of {rank[1]}" if rank else "more labels than one per example: not ranked"
        lines.append(f"| {board.title} | {line.mean:.2f}{spread} | {seeds} | {place} |")
    if not lines:
        return "Not measured yet."
    head = ["| protocol | test mAP | | place |", "| --- | --- | --- | --- |"]
    return "\n".join(head + lines)


def published(name: str) -> str:
    """What papers report of it, per dataset, fine-tuned or as they say."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for source, table in PAPERS:
        for dataset in DATASETS:
            for number in numbers(source, table, dataset):
                if number.name == name and number.value is not None:
                    found.setdefault((source, table, number.setting), {})[dataset] = number.value
    if not found:
        return ""
    head = ["Published, on other weights than ours: compare within a row's table only.", ""]
    head += ["| table | setting |" + "".join(f" {d} |" for d in DATASETS), "| --- | --- |" + " --- |" * len(DATASETS)]
    rows = [
        f"| {source.upper()} {table} | {setting} |" + "".join(f" {values.get(d, '–')} |" for d in DATASETS)
        for (source, table, setting), values in found.items()
    ]
    return "\n".join(head + rows)


def example(info: MethodInfo) -> str:
    set_ = {name: info.defaults[name] for name, hyper in info.hyper.items() if hyper.search}
    given = next((f"{name}={value}" for name, value in set_.items() if value is not None), "")
    call = f'onelabel.method("{info.name}"' + (f", {given})" if given else ")")
    return f"```python\nimport onelabel\n\ncriterion = {call}\n```"


def overview(said: dict[str, dict[str, str]], boards: list[measured.Board]) -> str:
    """The table of all methods, and the boards."""
    infos = [onelabel.method_info(name) for name in onelabel.list_methods()]
    ranks = "".join(f" {board.title.removeprefix('VOC 2012, ')} |" for board in boards)
    lines = [
        "# Methods",
        f"All {len(infos)} methods behind one interface, generated from the registry (`onelabel methods`, "
        "`onelabel.list_methods()`). The last columns are the rank among methods that saw one positive per example, on "
        "VOC 2012 (– where not measured); [benchmarks](../benchmarks.md) has learning rates, tests, published values.",
        "Which one? Without any wish of your own take [`em`](em.md); when fine-tuning pictures for eight epochs or "
        "more [`gr`](gr.md); and let `onelabel compare` try the families on your own data. "
        "[No clean validation set](../tutorials/no-validation.md) shows how to choose then.",
    ]
    table = [f"| method | what it is | year | needs |{ranks}", "| --- | --- | --- | --- |" + " --- |" * len(boards)]
    for info in sorted(infos, key=lambda i: i.name):
        places = (board.rank(info.name) for board in boards)
        cells = "".join(f" {place[0]} |" if place else " – |" for place in places)
        title = html.escape(info.title)
        table.append(f"| [`{info.name}`]({info.name}.md) | {title} | {info.year} | {info.needs} |{cells}")
    parts = [*lines, "\n".join(table)]
    for board in boards:
        rows = [
            f"| [`{line.method}`]({line.method}.md) | {line.mean:.2f} | {_pm(line)} | {line.seeds} |"
            for line in board.lines
        ]
        head = ["| method | test mAP | std | seeds |", "| --- | --- | --- | --- |"]
        parts += [f"## {board.title}", "\n".join(head + rows)]
    return "\n\n".join(parts) + "\n"


def _pm(line: measured.Line) -> str:
    return f"{line.std:.2f}" if line.std is not None else "–"


def names() -> list[Any]:
    """The catalogue's part of the navigation."""
    return ["catalogue/index.md", *({name: f"catalogue/{name}.md"} for name in sorted(onelabel.list_methods()))]
