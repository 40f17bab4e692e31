"""The figure and the tables of docs/roll-call.md, roll-call-measured.md and roll-call-tried.md, from committed results.

    .venv/bin/python docs/generate/roll_call.py

Writes docs/figures/roll-call.svg and the tables between the pages' marks. A test compares the tables.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import scipy.stats

from onelabel.bench import tables
from onelabel.bench.sections import of_sweep
from onelabel.bench.stats import Cell, chosen, holm, p_text, paired_p
from onelabel.bench.sweeps import find_sweep, position
from onelabel.report import style
from onelabel.report.figures.sweeps import line_points
from onelabel.system import atomic_write

ROOT = Path(__file__).resolve().parents[2]
#: The method, what was measured of it, and what was tried.
PAGES = tuple(ROOT / "docs" / name for name in ("roll-call.md", "roll-call-measured.md", "roll-call-tried.md"))
#: Before and after each table, by its name.
MARKS = "<!-- {}: docs/generate/roll_call.py -->", "<!-- /{} -->"
UNIFORM = ("uniform1200", "uniform:1", "uniform:2", "uniform:3", "uniform:4")
BIASED = {"common first": ("biased:1:1200",), "rare first": ("biased:-1:1200",)}
DRAWS = {"five even draws": UNIFORM, **BIASED}
TUNED_DRAWS = {"even draw": UNIFORM[:1], **BIASED}
SCENE_DRAWS = {"even draw": ("uniform:1200",), **BIASED}
OTHERS = ("roll-call:even", "gr", "em", "bce")
PLAIN = {"test_map": ""}
FINETUNED = {"test_map": "plain", "test_map_averaged_flip": "averaged weights, flips"}
WORDS = {
    "an": "AN",
    "bce": "full labels (BCE)",
    "bce-ls": "full labels, smoothed",
    "roll-call:even": "before (`roll-call:even`)",
    "roll-call": "`roll-call`",
    "lasd": "LASD",
    "gr": "GR",
    "em": "EM",
    "iun": "`iun`, told all that is absent",
}
#: How linear heads are trained after which a student is taught.
TAUGHT = {"mode": "linear", "lr": 1e-4, "batch_size": 8, "student": "on", "student_smoothing": 0.1}
#: Runs that both must have for a test of their own: with two it has one degree of freedom and says nothing.
PAIRS = 3
#: Shares of the naming distribution that `benchmarks/elsewhere.py` has by themselves.
SHARES = (", naming 0", ", naming 0.5", ", naming 1")
#: Sweep, the methods shown of it, and what its axis says.
PANELS = (
    (("roll-call.alpha", "em.alpha"), ("roll-call", "em"), "α, weight of the pull to ½ (EM: of the entropy)"),
    (("roll-call.gamma",), ("roll-call",), "γ, how much a common class counts as a rival"),
    (("roll-call.naming",), ("roll-call",), "λ, share of the naming distribution"),
    (("images",), ("bce", "roll-call", "gr", "em"), "share of the 4,574 training pictures"),
)


def runs_of(
    rows: Sequence[Any], method: str, draws: Sequence[str], mode: str = "linear", dataset: str = "voc2012"
) -> Cell:
    """All draws and seeds of a method, in each draw at the rate and batch of the best validation mAP.

    Which of its labels is named is nothing to a network that is told them all: it has one draw's runs in every draw.
    """
    if dataset != "voc2012":  # no paper's recipe is for them: what was run is what was meant
        mine = [row for row in rows if (row.label, row.mode) == (method, mode) and row.draw in draws]
        best = [chosen([row for row in mine if row.draw == draw]) for draw in draws]
        return Cell(tuple(row for cell in best if cell is not None for row in cell.rows))
    picked = {draw: tables.pick(rows, dataset, method, mode, draw=draw) for draw in draws}
    if method in ("bce", "bce-ls"):
        published = tables.pick(rows, dataset, method, mode, draw=UNIFORM[0])
        told = published.rows if published else ()
        picked |= {draw: Cell(tuple(replace(r, draw=draw) for r in told)) for draw in draws if picked[draw] is None}
    return Cell(tuple(row for cell in picked.values() if cell is not None for row in cell.rows))


def units(cell: Cell, field: str) -> dict[Any, float]:
    """What a test takes for independent: where there are several draws, a draw's mean (its seeds share the labels).

    Else a run.
    """
    values = cell.values(field)
    draws = sorted({draw for draw, _ in values})
    if len(draws) == 1:
        return dict(values)
    return {draw: statistics.fmean(v for (of, _), v in values.items() if of == draw) for draw in draws}


def differences(ours: Cell, theirs: Cell, field: str) -> list[float]:
    """What ours is ahead by in each of the runs that both have."""
    mine, other = ours.values(field), theirs.values(field)
    return [mine[key] - other[key] for key in sorted(mine.keys() & other.keys())]


class Spread(NamedTuple):
    """How far such differences lie from their mean, over all methods and draws that have runs enough to tell."""

    deviation: float
    freedom: int

    @classmethod
    def pooled(cls, draws: Sequence[Sequence[Sequence[float]]]) -> Spread:
        """Of each draw's methods.

        They share roll call's runs, and heads and orders of pictures by the seed, so that a draw is taken to tell no
        more of the spread than one method would: seeds less one.
        """
        known = [[each for each in draw if len(each) >= PAIRS] for draw in draws]
        counts = [len(each) - 1 for draw in known for each in draw]
        squares = sum((len(each) - 1) * statistics.variance(each) for draw in known for each in draw)
        return cls(math.sqrt(squares / sum(counts)), sum(min(map(len, draw)) - 1 for draw in known if draw))

    def p(self, gaps: Sequence[float]) -> float:
        """Two-sided, of the mean of a few differences that have this spread."""
        t = abs(statistics.fmean(gaps)) * math.sqrt(len(gaps)) / self.deviation
        return float(2 * scipy.stats.t.sf(t, self.freedom))


class Ahead(NamedTuple):
    """A mean difference, of how many runs, and its p (Holm's), `by_spread` where they are too few for their own."""

    gap: float
    runs: int
    p: float | None

    @property
    def by_spread(self) -> bool:
        return self.runs < PAIRS


def ahead(ours: Cell, theirs: Sequence[Cell], field: str, spread: Spread | None = None) -> list[Ahead]:
    """Of each other: what ours is ahead by, by paired t-tests of `units`; of fewer runs than PAIRS by the `spread`."""
    gaps = [differences(ours, each, field) for each in theirs]
    if not all(gaps):
        raise ValueError("there are rows without a run that roll call has, too: nothing to compare")
    tested = [
        paired_p(units(ours, field), units(each, field)) if len(own) >= PAIRS else spread.p(own) if spread else None
        for each, own in zip(theirs, gaps, strict=True)
    ]
    return [Ahead(statistics.fmean(own), len(own), p) for own, p in zip(gaps, holm(tested), strict=True)]


def compared(ours: Cell, theirs: Sequence[Cell], field: str, spread: Spread | None = None) -> list[str]:
    """Means ± std, and what ours is ahead by with its p."""
    cells = [ours.text(field)]
    for each, found in zip(theirs, ahead(ours, theirs, field, spread), strict=True):
        runs = ("one seed" if found.runs == 1 else f"{found.runs} seeds") + ", " if found.by_spread else ""
        cells.append(f"{each.text(field)} ({found.gap:+.2f}, {runs}{p_words(found)})")
    return cells


def p_words(found: Ahead) -> str:
    sign = "†" if found.by_spread else ""
    return f"p{sign} {'' if found.p is not None and found.p < 0.001 else '= '}{p_text(found.p)}"


def catalogue(rows: Sequence[Any], dataset: str = "voc2012") -> list[str]:
    """Every method that was run, but for ablations and roll call itself."""
    return sorted({row.label for row in rows if ":" not in row.label and row.dataset == dataset} - {"roll-call"})


def spread_of(rows: Sequence[Any], field: str) -> Spread:
    """Of what roll call is ahead by, fine-tuned on VOC, over all methods and draws with runs enough."""
    ours = {draw: runs_of(rows, "roll-call", of, "linearinit") for draw, of in TUNED_DRAWS.items()}
    return Spread.pooled(
        [
            [differences(ours[draw], runs_of(rows, name, of, "finetune"), field) for name in catalogue(rows)]
            for draw, of in TUNED_DRAWS.items()
        ]
    )


def lined(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *body)]
    return "\n".join([lines[0], "| --- " * len(head) + "|", *lines[1:]]).replace("(-", "(−")


def linear(rows: Sequence[Any]) -> str:
    """Draws × seeds of linear probes."""
    body = []
    for name, draws in DRAWS.items():
        ours = runs_of(rows, "roll-call", draws)
        theirs = [runs_of(rows, m, draws) for m in OTHERS]
        body.append([name, str(len(ours.rows)), *compared(ours, theirs, "test_map")])
    return lined(["test mAP, linear", "runs", *(WORDS[m] for m in ("roll-call", *OTHERS))], body)


def taught(rows: Sequence[Any]) -> str:
    """Linear heads after which a student was taught, by roll call and by others; heads without one beside them."""
    body = []
    for name, draws in DRAWS.items():
        ours = students(rows, "roll-call", draws, annotators="auto")
        theirs = [
            students(rows, "roll-call", draws), students(rows, "roll-call", draws, "off"),
            runs_of(rows, "roll-call", draws),
            students(rows, "em", draws), students(rows, "gr", draws), runs_of(rows, "bce", draws),
        ]  # fmt: skip
        if len({len(cell.rows) for cell in (ours, *theirs[:-1])}) > 1:  # full labels are the same in every draw
            raise ValueError(f"{name}: not all have the same number of runs")
        body.append([name, str(len(ours.rows)), *compared(ours, theirs, "test_map")])
    others = ["annotators not told", "… each class by itself", "no student", "EM's student", "GR's student"]
    return lined(["test mAP, linear", "runs", "`roll-call`'s student", *others, WORDS["bce"]], body)


def heard(rows: Sequence[Any]) -> str:
    """Fine-tuned runs whose student was also told what other classes say, beside the same seeds without."""
    body = []
    for name, draws in TUNED_DRAWS.items():
        told = students(rows, "roll-call", draws, how={"mode": "linearinit"})
        alone = runs_of(rows, "roll-call", draws, "linearinit")
        seeds = sorted({row.seed for row in told.rows} & {row.seed for row in alone.rows})
        if not seeds:
            continue
        pair = [Cell(tuple(row for row in cell.rows if row.seed in seeds)) for cell in (told, alone)]
        line = [name, ", ".join(map(str, seeds))]
        for field in FINETUNED:
            gap = statistics.fmean(differences(*pair, field))
            line.append(f"{pair[0].text(field)}, {pair[1].text(field)} ({gap:+.2f})")
        body.append(line)
    titles = [f"{text}: with what other classes say, without" for text in FINETUNED.values()]
    return lined(["test mAP, fine-tuned", "seeds", *titles], body)


def students(
    rows: Sequence[Any],
    method: str,
    draws: Sequence[str],
    context: str | None = "auto",
    how: Mapping[str, Any] = TAUGHT,
    annotators: str | None = None,
) -> Cell:
    """A method's runs with a student, of the settings that docs/roll-call-measured.md names."""
    wanted = {**how, "student_context": context, "student_annotators": annotators}
    mine = [r for r in rows if r.done and (r.dataset, r.label) == ("voc2012", method) and r.draw in draws]
    mine = [r for r in mine if {key: r.settings.get(key) for key in wanted} == wanted]
    if len({(r.draw, r.seed) for r in mine}) < len(mine):
        raise ValueError(f"{method}: several runs of a draw and seed")
    return Cell(tuple(mine))


def headline(rows: Sequence[Any]) -> str:
    """The page's first table: few methods, plain weights; roll call has its whole training, a student included."""
    others, body = ("an", "em", "gr", "lasd"), []
    for mode, shown in (("fine-tuned", TUNED_DRAWS), ("linear", DRAWS)):
        for name, of in shown.items():
            if mode == "linear":
                ours, em = students(rows, "roll-call", of, annotators="auto"), students(rows, "em", of)
                beside = [runs_of(rows, m, of) for m in (*others, "bce")]
            else:
                ours = runs_of(rows, "roll-call", of, "linearinit")
                em = students(rows, "em", of, None, {"mode": "linearinit", "student": "on"})
                beside = [runs_of(rows, m, of, "finetune") for m in (*others, "bce")]
            line = [f"{mode}, {name}"]
            for cell in (*beside[:-1], em, ours, beside[-1]):
                few = ", one run" if len(cell.rows) == 1 else ""
                line.append(cell.text("test_map") + few if cell.rows else "—")
            body.append(line)
    titles = [*(WORDS[m] for m in others), "EM with a student", WORDS["roll-call"], WORDS["bce"]]
    return lined(["VOC 2012, test mAP", *titles], body)


def finetuned(rows: Sequence[Any]) -> str:
    """Seeds of each draw, fine-tuned; a dash: not run."""
    others = ("lasd", "gr", "em", "iun", "bce", "bce-ls")
    body, spreads = [], {field: spread_of(rows, field) for field in FINETUNED}
    for name, draws in TUNED_DRAWS.items():
        ours = runs_of(rows, "roll-call", draws, "linearinit")
        theirs = {m: cell for m in others if (cell := runs_of(rows, m, draws, "finetune")).rows}
        for field, text in FINETUNED.items():
            mine, *found = compared(ours, list(theirs.values()), field, spreads[field])
            beside = dict(zip(theirs, found, strict=True))
            body.append([f"{name}, {text}", mine, *(beside.get(m, "—") for m in others)])
    return lined(["test mAP, fine-tuned", *(WORDS[m] for m in ("roll-call", *others))], body)


def everyone(
    rows: Sequence[Any],
    shown: Mapping[str, Sequence[str]],
    fields: Mapping[str, str],
    modes: tuple[str, str],
    dataset: str = "voc2012",
) -> str:
    """Every method of the catalogue: what roll call is ahead by, and whether a test can tell (5%, Holm's by column).

    `modes` are roll call's own and the others'.
    """
    own, mode = modes
    names = catalogue(rows, dataset)
    found = {name: {draw: runs_of(rows, name, of, mode, dataset) for draw, of in shown.items()} for name in names}
    first = next(iter(shown))
    spreads = {field: spread_of(rows, field) for field in fields} if own == "linearinit" else {}
    body = {name: [f"`{name}`"] for name in sorted(names, key=lambda n: -(found[n][first].mean("test_map") or 0.0))}
    head, titles = ["`roll-call`"], ["test mAP"]
    for (draw, of), (field, text) in itertools.product(shown.items(), fields.items()):
        ours = runs_of(rows, "roll-call", of, own, dataset)
        head.append(f"**{ours.text(field)}**")
        titles.append(f"{draw}, {text}" if text else draw)
        run = {name: cells[draw] for name, cells in found.items() if cells[draw].values(field)}
        told = dict(zip(run, ahead(ours, list(run.values()), field, spreads.get(field)), strict=True))
        for name, line in body.items():
            if name not in run:
                line.append("—")
                continue
            lead = told[name]
            sure = lead.p is not None and lead.p <= 0.05
            star = ("†" if lead.by_spread else "*") if sure else ""
            n = len(run[name].rows)
            few = "" if n == len(ours.rows) else f", {n} runs" if n > 1 else ", one run"
            line.append(f"{run[name].text(field)} ({lead.gap:+.2f}{star}{few})")
    return lined(titles, [head, *body.values()])


def pull(measured: Mapping[str, Any]) -> str:
    """Test mAP over the strength of the pull, and what held-out rows choose (`benchmarks/pull.py`)."""
    factors = [name for name in next(iter(measured.values()))["settings"] if name not in ("role", "gr")]
    body = []
    for task, of in measured.items():
        found = of["settings"]
        best = max(found[f]["test"] for f in factors)
        cells = [f"{found[f]['test']:.1f}" for f in factors]
        cells = [f"**{cell}**" if found[f]["test"] == best else cell for f, cell in zip(factors, cells, strict=True)]
        for key, column in (("validation", "test"), ("likelihood", "test by likelihood")):
            taken = max(factors, key=lambda f, k=key: found[f][k])
            cells.append(f"×{taken}: {found[taken][column]:.1f}")
        size = f"{of['rows']:,} rows, {of['classes']} classes, k = {of['k']}"
        body.append([f"{task} ({size})", *cells, *(f"{found[m]['test']:.1f}" for m in ("role", "gr"))])
    chosen_by = ["by true labels", "by one label a row"]
    return lined(["test mAP, linear", *(f"×{f}" for f in factors), *chosen_by, "ROLE", "GR"], body)


def elsewhere(measured: Mapping[str, Any]) -> str:
    """Test mAP on others' data, each method at what validation chose (`benchmarks/elsewhere.py`); means at the end."""
    methods = ["an", "an-ls", "wan", "hill", "splc", "las", "role", "em", "gr", "roll-call"]
    columns = [*((m, "true") for m in methods), ("of all", "true"), ("roll-call", "one"), ("of all", "one"),
               ("bce", "true")]  # fmt: skip
    named = [*(f"`{m}`" for m in methods), "the best of all", "`roll-call`, by one label", "the best, by one label"]
    return _sets(measured, columns, [*named, "full labels"], len(methods))


def naming(measured: Mapping[str, Any]) -> str:
    """The same at each share λ of the naming distribution, and where λ is chosen."""
    columns = [(f"roll-call{share}", by) for by in ("true", "one") for share in (*SHARES, "")]
    titles = [*(f"λ = {share.split()[-1]}" for share in SHARES), "chosen"]
    return _sets(measured, columns, [*titles, *(f"{title}, by one label" for title in titles)], len(SHARES))


def photographs(measured: Mapping[str, Any]) -> str:
    """2,000 photographs fine-tuned: rows of `benchmarks/roll_call.py --photographs`, Holm's over each column."""
    runs = {name.removeprefix("uniform "): of for name, of in measured.items()}
    ours, columns = runs["roll-call"], {"plain": "plain", "averaged": "averaged weights"}
    cells: dict[str, list[str]] = {name: [] for name in sorted(runs, key=lambda n: statistics.fmean(runs[n]["plain"]))}
    for field in columns:
        mine, others = dict(enumerate(ours[field])), [name for name in cells if runs[name] is not ours]
        tested = holm([paired_p(mine, dict(enumerate(runs[name][field]))) for name in others])
        told = dict(zip(others, tested, strict=True))
        for name, line in cells.items():
            values = runs[name][field]
            text = f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"
            if name in told:
                lead = Ahead(statistics.fmean(mine.values()) - statistics.fmean(values), len(values), told[name])
                text += f" ({lead.gap:+.2f}, {p_words(lead)})"
            line.append(text)
    body = [
        [WORDS.get(name, name.replace("em ", "EM ")), *line, f"{statistics.fmean(runs[name]['seconds']):,.0f}"]
        for name, line in cells.items()
    ]
    return lined(["test mAP", *columns.values(), "seconds"], body)


def students_elsewhere(measured: Mapping[str, Any]) -> str:
    """Test mAP of linear heads without and with a student on others' data (`benchmarks/students.py`); the best bold."""
    kinds = list(next(iter(measured.values())))
    body, means = [], []
    for task, of in measured.items():
        found = [[statistics.fmean(values) for values in of[kind].values()] for kind in kinds]
        body.append([task, *(f"**{v:.1f}**" if v == max(row) > min(row) else f"{v:.1f}"
                             for row in found for v in row)])  # fmt: skip
        means.append([v for row in found for v in row])
    body.append(["mean", *(f"{statistics.fmean(column):.1f}" for column in zip(*means, strict=True))])
    short = {"alone": "{}, no student", "student, each class by itself": "by itself", "student": "student"}
    titles = [short[name].format(kind.replace("roll-call", "`roll-call`").replace("em,", "EM,"))
              for kind in kinds for name in measured[next(iter(measured))][kind]]  # fmt: skip
    return lined(["test mAP, linear", *titles], body)


def _sets(measured: Mapping[str, Any], columns: Sequence[tuple[str, str]], titles: Sequence[str], bold: int) -> str:
    """A row for every set, then means; of the first `bold` columns the best is set in bold."""
    body, values = [], []
    for task, of in measured.items():
        found = [of["settings"][name][by] for name, by in columns]
        best = max(found[:bold])
        size = f"{of['rows']:,} rows, {of['columns']:,} columns, {of['classes']} classes, k = {of['k']}"
        body.append([f"{task} ({size})", *(f"**{v:.1f}**" if v == best and i < bold else f"{v:.1f}"
                                           for i, v in enumerate(found))])  # fmt: skip
        values.append(found)
    body.append(["mean", *(f"{sum(column) / len(values):.1f}" for column in zip(*values, strict=True))])
    ranks = [scipy.stats.rankdata([-v for v in found[:bold]]) for found in values]
    means = [f"{statistics.fmean(column):.1f}" for column in zip(*ranks, strict=True)]
    body.append(["mean rank", *means, *[""] * (len(columns) - bold)])
    return lined(["test mAP, linear", *titles], body)


#: Tables made of a benchmark's JSON.
STORED = {
    "pull": (pull, "roll-call-pull.json"),
    "elsewhere": (elsewhere, "roll-call-elsewhere.json"),
    "naming": (naming, "roll-call-elsewhere.json"),
    "photographs": (photographs, "roll-call-photographs.json"),
    "students-elsewhere": (students_elsewhere, "roll-call-students.json"),
}


def fill(page: str, rows: Sequence[Any]) -> str:
    """The page with each table that it has marks for between them."""
    tables_of = {"headline": headline(rows), "paired": linear(rows), "fine-tuned": finetuned(rows)}
    tables_of |= {"taught": taught(rows), "heard": heard(rows)}
    tables_of["all-linear"] = everyone(rows, DRAWS, PLAIN, ("linear", "linear"))
    tables_of["all-fine-tuned"] = everyone(rows, TUNED_DRAWS, FINETUNED, ("linearinit", "finetune"))
    scenes = tables.find(ROOT / "docs" / "results" / "scenes").rows
    tables_of["all-scenes"] = everyone(scenes, SCENE_DRAWS, PLAIN, ("finetune", "finetune"), scenes[0].dataset)
    for name, (made_by, stored) in STORED.items():
        tables_of[name] = made_by(json.loads((ROOT / "docs" / "results" / stored).read_text(encoding="utf-8")))
    for name, made in tables_of.items():
        begin, end = (mark.format(name) for mark in MARKS)
        if begin not in page:
            continue
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{made}\n{end}{rest.split(end)[1]}"
    return page


def curves(rows: Sequence[Any]) -> Any:
    """mAP over α, γ, λ and the number of training pictures, a panel each; bars are one deviation over seeds."""
    with style.styled():
        figure, axes = style.canvas(len(PANELS), width=3.6, height=2.9)
        for ax, (names, methods, label) in zip(axes[0], PANELS, strict=True):
            for name in names:
                sweep = find_sweep(name)
                mine = [r for r in of_sweep(sweep, rows, "voc2012", "linear") if r.label in methods]
                lines = line_points(mine, lambda r, s=sweep: position(s, r), line=lambda r: r.label, kinds=())
                for method, points in lines.items():
                    look = style.look(method)
                    ax.errorbar(
                        [p.x for p in points], [p.mean for p in points], [p.std for p in points],
                        color=look.colour, linestyle=look.dash, marker=look.marker, markersize=4, capsize=2,
                        label="full labels" if method == "bce" else style.title(method),
                    )  # fmt: skip
            ax.set_xlabel(label)
            ax.legend(loc="lower right" if "images" in names else "lower left")
        axes[0][0].set(xscale="log", ylabel="test mAP, linear")
    return figure


if __name__ == "__main__":
    results = tables.find(ROOT / "docs" / "results" / "bench").rows
    with matplotlib.rc_context({"svg.hashsalt": "roll-call"}):  # the same runs give the same file
        style.save(curves(results), ROOT / "docs" / "figures" / "roll-call.svg")
    for target in PAGES:
        atomic_write(target, fill(target.read_text(encoding="utf-8"), results))
