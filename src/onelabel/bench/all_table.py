"""The table "all": every method and mode that was run on a dataset, anyone's own above all."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onelabel.bench.draws import PUBLISHED
from onelabel.bench.picking import Results, run_with
from onelabel.bench.protocols import protocol
from onelabel.bench.recipe import recipe, spelled
from onelabel.bench.render import Sheet
from onelabel.bench.results import Row
from onelabel.bench.stats import cells, chosen, gap, holm, p_text, paired_p

NAME, TITLE = "all", "every method and mode that was run on a dataset, tested against --baseline"
#: What is searched on validation, or is no difference between lines.
SEARCHED = {"lr", "batch_size"}


@dataclass
class Line:
    """The runs of a method that differ in nothing but seed, learning rate and batch size; the best setting's cell."""

    rows: list[Row]

    def __post_init__(self) -> None:
        self.first = self.rows[0]
        self.cell = chosen(self.rows)
        self.place = (self.first.mode, self.first.draw, self.first.fraction)
        self.settings = {key: v for key, v in self.first.settings.items() if key not in SEARCHED}
        self.rank = -(self.cell.mean("test_map") or 0) if self.cell else 1.0

    @property
    def with_settings(self) -> str:
        """Learning rate and batch size, and of how many they are the best."""
        tried = len(cells(self.rows))
        return "–" if self.cell is None else run_with(self.cell) + (f" (best of {tried})" if tried > 1 else "")


def build(found: Results, dataset: str, baseline: str = "") -> Sheet:
    """By draw and mode, best first, with paired tests against a baseline: `an` where it was run and none is named.

    A line is of one setting by hand (`--hyper`, `--set`) and one draw; of runs for a search or a sweep only what is
    the recipe's own, unless the results are to be `searched`.
    """
    lines = _lines([row for row in found.rows if (row.dataset, row.protocol) == (dataset, found.rules)], found.searched)
    names = list(dict.fromkeys(line.first.label for line in lines))
    if baseline and baseline not in names:
        raise ValueError(f"--baseline: {baseline!r} was not run on {dataset}; there are {', '.join(names) or 'none'}")
    base = baseline or ("an" if "an" in names else "")
    bases = [_base(line, lines, base) for line in lines]
    tests = holm([
        None if b is None or b is line or not line.cell or not b.cell
        else paired_p(line.cell.values("test_map"), b.cell.values("test_map"))
        for line, b in zip(lines, bases, strict=True)
    ])  # fmt: skip
    own = [_own(line) for line in lines]
    shared = {key: v for key, v in own[0].items() if all(each.get(key) == v for each in own)} if own else {}
    table = []
    for line, other, p, beside in zip(lines, bases, tests, own, strict=True):
        first, cell = line.first, line.cell
        name = first.label + (f" ({first.supervision})" if first.supervision != "positive" else "")
        words = {"method": name, "mode": first.mode, "draw": first.draw}
        words["with"] = spelled({key: v for key, v in beside.items() if key not in shared}) or "–"
        words["lr, batch"] = line.with_settings
        words["test mAP"] = cell.text("test_map") if cell else f"failed: {first.error[:60]}"
        words["seeds"] = str(len(cell.rows)) if cell else "–"
        compared = cell is not None and other is not None and other is not line
        words[f"Δ {base}"] = gap(cell, other.cell, "test_map") if cell and other and compared else "–"
        words["p (Holm)"] = p_text(p)
        words["averaged, flips"] = cell.text("test_map_averaged_flip") if cell else "–"
        table.append(words)
    return Sheet(f"All methods ({dataset})", *_columns(table), _notes(lines, found, base, shared))


def _lines(rows: Sequence[Row], searched: bool) -> list[Line]:
    alike: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if _shown(row, searched):
            settings = {key: value for key, value in row.settings.items() if key not in SEARCHED}
            what = [row.label, row.mode, row.draw, row.fraction, row.supervision, settings]
            what += [] if searched else [row.hyper]
            alike[json.dumps(what, sort_keys=True, default=str)].append(row)
    return sorted(map(Line, alike.values()), key=lambda line: (line.first.draw != PUBLISHED, *line.place, line.rank))


def _shown(row: Row, searched: bool) -> bool:
    if row.plan.startswith("sweep:"):  # a point of it may be what a table asks for
        own = dict(row.hyper) == _recipe(row)["hyper"]
        return own and row.fraction == 1 and not row.draw.startswith("missing")
    return searched or row.plan != "search"


def _recipe(row: Row) -> dict[str, Mapping[str, Any]]:
    try:
        found = recipe(row.dataset, row.label, row.mode, protocol(row.protocol))
    except ValueError:  # a method of a later catalogue
        return {"hyper": row.hyper, "settings": row.settings}
    return {"hyper": found.hyper, "settings": found.settings}


def _own(line: Line) -> dict[str, Any]:
    """What its runs have that the recipe does not say."""
    first = line.cell.rows[0] if line.cell else line.first
    known = _recipe(first)
    own = {key: value for key, value in first.hyper.items() if known["hyper"].get(key) != value}
    own |= {key: value for key, value in line.settings.items() if known["settings"].get(key) != value}
    return own | ({"share": first.fraction} if first.fraction != 1 else {})


def _base(line: Line, lines: Sequence[Line], name: str) -> Line | None:
    """The baseline's line of the same mode, draw and share: with the same other settings, and its recipe's own."""
    there = [each for each in lines if each.first.label == name and each.place == line.place and each.cell]
    return min(there, key=lambda each: (each.settings != line.settings, len(_own(each))), default=None)


def _columns(table: Sequence[Mapping[str, str]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Columns and rows, without columns that say nothing."""
    names = list(table[0]) if table else ["method"]
    empty = {name for name in names if all(row[name] == "–" for row in table)}
    empty |= {"draw"} if len({row["draw"] for row in table}) == 1 else set()
    kept = tuple(name for name in names if name not in empty - {"test mAP", "seeds"})
    return kept, tuple(tuple(row[name] for name in kept) for row in table)


def _notes(lines: Sequence[Line], found: Results, base: str, shared: Mapping[str, Any]) -> tuple[str, ...]:
    from onelabel.bench.tables import place_notes

    notes = ["test mAP in %, mean ± std over seeds, of the epoch and rate that are best on validation"]
    if base:
        notes += [f"p: paired t-test over seeds against {base} of the same mode and draw, Holm-corrected over the rows"]
    notes += [f"all with {spelled(shared)}"] if shared else []
    failed = sum(not row.done for line in lines for row in line.rows)
    notes += [f"{failed} run{'s' * (failed > 1)} failed"] if failed else []
    parts = next((row.rows for line in lines for row in line.rows if row.rows), {})
    notes += ["rows: " + ", ".join(f"{count:,} {part}" for part, count in parts.items())] if parts else []
    return (*notes, *place_notes([line.cell for line in lines], found))
