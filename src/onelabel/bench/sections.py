"""The page's further sections: searched settings, label draws, students, early stopping, sweeps, what is missing."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Collection, Sequence

from onelabel.bench.draws import PUBLISHED
from onelabel.bench.patience import replay
from onelabel.bench.picking import NOT_RUN, Results, candidates, pick, run_with
from onelabel.bench.plan import make_plan
from onelabel.bench.protocols import protocol
from onelabel.bench.render import Sheet, as_text
from onelabel.bench.results import Row
from onelabel.bench.stats import Cell, cells, chosen, in_reach
from onelabel.bench.sweeps import SWEEPS, Sweep, line_of, position, sweep
from onelabel.contract import list_methods


def searched(found: Results, dataset: str) -> str:
    """Where a method's own settings were searched: the best by validation beside the recipe's, on seeds all have."""
    lines, metrics = [], ("validation_map", "test_map")
    for name, mode in itertools.product(list_methods(), ("linear", "finetune", "linearinit")):
        rows = candidates(found.rows, dataset, name, mode, searched=True)
        if not any(row.plan == "search" for row in rows):
            continue
        tried = [set(cell.values("validation_map")) for cell in cells(rows)]
        seeds = set.intersection(*tried)
        shared = [row for row in rows if (row.draw, row.seed) in seeds]
        base, best = chosen(candidates(shared, dataset, name, mode)), chosen(shared)
        if base is None or best is None:
            continue
        of = len(make_plan(dataset, [name], modes=[mode], seeds=[0], search_hyper=True))
        texts = [[cell.text(metric) for metric in metrics] for cell in (base, best)]
        gains = [f"{(best.mean(m) or 0) - (base.mean(m) or 0):+.2f}".replace("-", "−") for m in metrics]
        what, took = (run_with(cell, searched=True) for cell in (best, base))
        lines.append((name, mode, f"{len(tried)} of {of}", str(len(seeds)), took, *texts[0], what, *texts[1], *gains))
    if not lines:
        return ""
    columns = ("method", "setting", "tried", "seeds", "recipe", "validation", "test", "best of those tried",
               "validation", "test", "gain: validation", "test")  # fmt: skip
    return as_text(
        Sheet(f"{dataset}: the recipes' values, and the best of a search", columns, tuple(lines)), "markdown"
    )


def draws(found: Results, dataset: str, modes: Sequence[str] = ("linear",)) -> str:
    """Results on draws other than the published one: other uniform ones as one column, each biased one.

    Fine-tuned ones as the weights are / averaged, with mirrored test pictures.
    """
    rows = [r for r in found.rows if r.done and r.dataset == dataset and r.mode in modes and r.plan == "table"]
    kinds = sorted({r.draw for r in rows if not r.draw.startswith("missing")} - {PUBLISHED})
    if not kinds:
        return "Not run."
    uniform = [kind for kind in kinds if kind.startswith("uniform")]
    biased = [kind for kind in kinds if kind not in uniform]
    lines = []
    for name, mode in dict.fromkeys((r.label, r.mode) for r in rows if r.draw != PUBLISHED):
        first, *others = (pick(found.rows, dataset, name, mode, draw=draw) for draw in (PUBLISHED, *biased))
        means = [
            mean
            for draw in uniform
            if (cell := pick(found.rows, dataset, name, mode, draw=draw)) and (mean := cell.mean("test_map"))
        ]
        spread = f" ± {statistics.stdev(means):.2f}" if len(means) > 1 else ""
        over = f"{statistics.fmean(means):.2f}{spread} ({len(means)} draws)" if means else NOT_RUN
        texts = [_plain_and_averaged(cell) if cell else NOT_RUN for cell in (first, *others)]
        rank = -(first.mean("test_map") or 0) if first else 0.0
        label = name if mode == modes[0] else f"{name} ({mode})"
        lines.append((rank, (label, texts[0], *([over] if uniform else []), *texts[1:])))
    notes = [
        f"{PUBLISHED} and biased: mean ± std over seeds"
        + (
            "; other uniform draws: mean ± std over draws of the mean over seeds" if uniform else ", one seed without ±"
        ),
        "biased:B:SEED: a present class is named with probability ∝ its frequency to the power B",
    ]
    columns = ("method", PUBLISHED, *(["other uniform draws"] if uniform else []), *biased)
    ordered = tuple(line for _, line in sorted(lines, key=lambda item: item[0]))
    return as_text(Sheet(f"{dataset}, {modes[0]}, by draw", columns, ordered, tuple(notes)), "markdown")


def _plain_and_averaged(cell: Cell) -> str:
    averaged = cell.text("test_map_averaged_flip") if cell.mean("test_map_averaged_flip") is not None else ""
    return f"{cell.text('test_map')} / {averaged}" if averaged else cell.text("test_map")


def students(found: Results, dataset: str) -> str:
    """Every training that taught a student, or was told not to: what each part of it is worth."""
    rows = [
        r
        for r in found.rows
        if r.done and r.dataset == dataset and (_validation(r, "student") or r.settings.get("student") == "off")
    ]
    lines = []
    for cell in cells(rows):
        for draw in dict.fromkeys(r.draw for r in cell.rows):
            mine = Cell(tuple(r for r in cell.rows if r.draw == draw))
            first = mine.rows[0]
            told = [
                first.settings.get("student", "on"),
                *(f"{first.settings[k]}" for k in LOOKS if k in first.settings),
                *["annotators"] * (first.settings.get("student_annotators", "off") != "off"),
                *["other classes"] * (first.settings.get("student_context") == "auto"),
            ]
            teacher, student = (
                statistics.fmean(values) if (values := [v for r in mine.rows if (v := _validation(r, phase))]) else None
                for phase in ("linear" if first.mode == "linear" else "finetune", "student")
            )
            lines.append((
                draw, -(mine.mean("test_map") or 0),
                (f"{first.label} ({first.mode})", draw, ", ".join(told), str(len(mine.rows)),
                 *("–" if v is None else f"{v:.2f}" for v in (teacher, student)), mine.text("test_map"),
                 mine.text("test_map_averaged_flip"), f"{statistics.fmean(r.seconds or 0 for r in mine.rows):.0f}",
                 ", ".join(dict.fromkeys(r.commit[:7] for r in mine.rows))),
            ))  # fmt: skip
    if not lines:
        return ""
    columns = ("method", "draw", "student: looks, smoothing, told of", "seeds", "validation: teacher", "student",
               "test mAP", "averaged, flips", "seconds", "commit")  # fmt: skip
    notes = ("validation: best epoch, of the averaged weights where there are any",)
    ordered = tuple(line for *_, line in sorted(lines, key=lambda item: (item[0] != PUBLISHED, *item[:2])))
    return as_text(Sheet(f"{dataset}: teachers and students", columns, ordered, notes), "markdown")


LOOKS = ("student_looks", "student_smoothing")


def _validation(row: Row, phase: str) -> float | None:
    """The best validation mAP of a phase, of the averaged weights where there are any."""
    values = [e.get("validation_mAP_ema", e.get("validation_mAP")) for e in row.history if e.get("phase") == phase]
    return max((float(v) for v in values if v is not None), default=None)


def stopping(found: Results, dataset: str, patience: Sequence[int] = (1, 2, 3)) -> str:
    """What a patience would have changed in the fine-tunings that were made without one."""
    rows = [r for r in found.rows if r.done and r.dataset == dataset and r.settings.get("stop") == "none"]
    lines = []
    for row in sorted(rows, key=lambda r: (r.mode, r.label, r.draw, r.seed)):
        replays = [replay(row.history, stop) for stop in patience]
        bests = f"{(row.best_epoch or 0) + 1}, {(row.best_epoch_averaged or 0) + 1} of {len(row.history)}"
        made = (
            "–" if r is None else f"{r.made}" + (f" (lost {', '.join(f'{x:.2f}' for x in r.lost)})" * (not r.same))
            for r in replays
        )
        lines.append((f"{row.label} {row.mode} seed {row.seed}", bests, *made))
    if not lines:
        return ""
    notes = ("epochs that would have been made, and the validation mAP lost by plain, averaged weights where any is",)
    columns = ("run", "best epoch, averaged", *(f"patience {p}" for p in patience))
    title = f"{dataset}: runs without early stopping, had they had a patience"
    return as_text(Sheet(title, columns, tuple(lines), notes), "markdown")


def sweeps(found: Results, dataset: str, figures: Collection[str] = ()) -> list[str]:
    """Every sweep as a table: a line a method (or further setting), a column a value; below it the figure there is."""
    made = []
    for each in SWEEPS.values():
        sheets = [
            _sweep_sheet(each, mine, mode)
            for mode in ("linear", "finetune", "linearinit")
            if (mine := of_sweep(each, found.rows, dataset, mode))
        ]
        shown = [as_text(sheet, "markdown") for sheet in sheets if len(sheet.columns) > 2]  # one value is no sweep
        file = figure_of(each.name)
        shown += [f"![{each.name}: {each.doc}](figures/{file})"] if shown and file in figures else []
        made += shown or [f"**{each.name}** ({each.figure}: {each.doc}): {NOT_RUN}."]
    return made


def figure_of(name: str) -> str:
    """The file of a sweep's figure, in the page's folder `figures`."""
    return f"bench-{name}.svg"


def of_sweep(each: Sweep, rows: Sequence[Row], dataset: str, mode: str) -> list[Row]:
    """By identity: a run of a sweep may have been made for a table."""
    if mode == "linear" and each.name == "lasd.alpha":
        return []
    wanted = {p.run_id for p in sweep(each.name, dataset, mode=mode, seeds=range(10))}
    return [r for r in rows if r.done and r.run_id in wanted]


def _sweep_sheet(each: Sweep, rows: Sequence[Row], mode: str) -> Sheet:
    places = sorted({position(each, row) for row in rows})
    grid: dict[str, dict[float, Cell]] = defaultdict(dict)
    for place in places:  # one by one: a cell may hold several draws, and a draw may be the place
        for cell in cells([row for row in rows if position(each, row) == place]):
            grid[line_of(each, cell.rows[0])].setdefault(place, cell)
    lines = tuple(
        (line, *(at[place].text("test_map") if place in at else NOT_RUN for place in places))
        for line, at in sorted(grid.items(), key=lambda item: _order(each, next(iter(item[1].values())).rows[0]))
    )
    seeds = max(len(cell.rows) for at in grid.values() for cell in at.values())
    rates = sorted({f"lr {r.settings.get('lr', 0):g}, batch {r.settings.get('batch_size')}" for r in rows})
    how = rates[0] if len(rates) == 1 else "each method's recipe"
    title = f"{each.name}, {mode} ({each.figure}: {each.doc}); test mAP, up to {seeds} seeds, {how}"
    return Sheet(title, (each.key, *(f"{place:g}" for place in places)), lines)


def _order(each: Sweep, row: Row) -> tuple[float, ...]:
    """Lines as the sweep lists them: by method, then by the further settings' values."""
    extra = next((tuple(float(row.hyper[k]) for k in line) for line in each.lines if line), ())
    return (float(each.methods.index(row.label)), *extra)


def missing(found: Results, dataset: str) -> str:
    """What the results do not have."""
    lines = []
    for mode in ("linear", "finetune"):
        also = "linearinit" if mode == "finetune" else mode
        cells_of = {
            name: pick(found.rows, dataset, name, mode) or pick(found.rows, dataset, name, also)
            for name in list_methods()
        }
        absent = [name for name, cell in cells_of.items() if cell is None]
        few = [f"{name} ({len(cell.rows)})" for name, cell in cells_of.items() if cell and len(cell.rows) < 2]
        lines.append(
            f"- {mode}, not run: {', '.join(absent) or 'none'}; with a single seed: {', '.join(few) or 'none'}."
        )
        part = _unfinished(found, dataset, mode)
        lines += [f"- {mode}, only a part of the grid run: {', '.join(part)}."] if part else []
        few = _in_reach(found, dataset, mode)
        lines += (
            [f"- {mode}, within 1 mAP of the best on validation with fewer seeds: {', '.join(few)}."] if few else []
        )
    lines.append("- COCO, NUS-WIDE and CUB: not run; their pictures are not on the machines these results come from.")
    lines.append("- EM Table 2's other backbones: not run; no ResNet-34 or ResNet-101 weights of the same release.")
    failed = [row for row in found.rows if not row.done]
    lines += [f"- failed: {row.label}, {row.mode}, seed {row.seed}: {row.error}" for row in failed[:20]]
    lines += [f"- unreadable: {file} ({why})" for file, why in found.unreadable.items()]
    return "\n".join(lines)


def _unfinished(found: Results, dataset: str, mode: str) -> list[str]:
    """Methods and ablations of which not every setting of the protocol's search was run, with how many were."""
    if mode not in protocol("onelabel").search:
        return []
    short = []
    ablations = {r.label for r in found.rows if r.dataset == dataset and r.mode == mode and ":" in r.label}
    for name in (*list_methods(), *sorted(ablations)):
        tried = len(cells(candidates(found.rows, dataset, name, mode)))
        whole = len(make_plan(dataset, [name], modes=[mode], seeds=[0]))
        short += [f"{name} ({tried} of {whole})"] if 0 < tried < whole else []
    return short


def _in_reach(found: Results, dataset: str, mode: str) -> list[str]:
    """Settings of a search that may still win it, and were run with fewer seeds than what was chosen."""
    short = []
    for name in list_methods():
        tried = cells(candidates(found.rows, dataset, name, mode))
        most = max((len(cell.rows) for cell in tried), default=0)
        short += [
            f"{name} ({run_with(cell, searched=found.searched)})" for cell in in_reach(tried) if len(cell.rows) < most
        ]
    return short
