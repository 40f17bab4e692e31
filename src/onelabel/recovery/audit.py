"""`plan_audit`: which pictures to check completely, so that a given number of human minutes tells most."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.answers import read_file
from onelabel.recovery.places import rows_by_name
from onelabel.recovery.schema import AUDITED, COLUMNS, VERSION
from onelabel.recovery.table import RecoveredFile, arrow, parquet_file
from onelabel.system import check_schema, reading

#: Rows of a stratum that the sample should have at least: below it variances are guesses.
LEAST = 5
#: Confidence bins: the expected number of missing positives of a row.
BINS = (0.05, 0.25, 0.6, 1.0)


@dataclass(frozen=True)
class Plan:
    """A stratified sample without replacement: every row of stratum h is in it with probability n_h/N_h.

    Attributes:
        rows, examples, inclusion, stratum: one entry per chosen row, sorted by row.
        sizes: stratum → (rows in it, rows chosen).
        path: the file it was read from.
    """

    rows: NDArray[np.int64]
    examples: list[str]
    inclusion: NDArray[np.float64]
    stratum: list[str]
    sizes: dict[str, tuple[int, int]]
    path: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan (Parquet), as `onelabel review --audit` reads it."""
        meta = {"schema_version": VERSION, "strata": {k: list(v) for k, v in self.sizes.items()}}
        columns = (self.rows, self.examples, self.inclusion, self.stratum)
        with parquet_file(Path(path), COLUMNS[AUDITED], AUDITED, meta) as write:
            write(dict(zip(COLUMNS[AUDITED], columns, strict=True)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan."""
        if not Path(path).exists():
            raise FileNotFoundError(f"{path}: no plan there; `onelabel audit plan RECOVERED --out {path}` draws one")
        pa, parquet = arrow()
        with reading(path, "an audit plan"):
            table = parquet.read_table(Path(path))
            header = (table.schema.metadata or {}).get(AUDITED.encode())
            if header is None:
                raise ValueError(f"no {AUDITED!r} in its metadata")
            meta = json.loads(header)
            check_schema(meta["schema_version"], VERSION, path)
            sizes = {name: (int(a), int(b)) for name, (a, b) in meta["strata"].items()}
            table = table.select(list(COLUMNS[AUDITED])).cast(pa.schema(list(COLUMNS[AUDITED].items())))
            row, chance = (table.column(n).to_numpy() for n in ("row", "inclusion_probability"))
            stratum = table.column("stratum").to_pylist()
            if sum(column.null_count for column in table.columns) or not set(stratum) <= set(sizes):
                raise ValueError("values are missing, or a stratum has no size")
            drawn = Counter(stratum)
            if any(not drawn[name] <= rows < 1 << 53 for name, (rows, _) in sizes.items()):
                raise ValueError("a stratum has fewer rows than were drawn of it, or more than there can be")
            if not ((chance > 0) & (chance <= 1)).all() or (len(row) and row.min() < 0):
                raise ValueError("a row below 0 or an inclusion probability outside 0 to 1")
            return cls(row, table.column("example").to_pylist(), chance, stratum, sizes, Path(path))

    def placed(self, file: RecoveredFile) -> Plan:
        """The plan with the rows that its pictures have in a file; an error where it was drawn from others than its."""
        there = file.names()
        rows = rows_by_name(self.rows, self.examples, there.items())
        drawn_from, absent = sum(size for size, _ in self.sizes.values()), int((rows < 0).sum())
        if absent or drawn_from != len(there):
            raise ValueError(
                f"{self.path or 'the plan'} was drawn from {drawn_from:,} pictures, {file.path} holds {len(there):,}, "
                f"and {absent:,} of the {len(rows):,} planned are not there; give the file it was drawn from"
            )
        return replace(self, rows=rows)


def plan_audit(
    recovered: RecoveredFile | str | os.PathLike[str],
    *,
    rows: int | None = None,
    minutes: float | None = None,
    seconds_per_row: float = 15.0,
    seed: int = 0,
) -> Plan:
    """Draw the rows to check: stratified by expected missing positives and likeliest missing class.

    Rows of a stratum are drawn without replacement; their number is Neyman's, ∝ N_h·S_h with S_h² the mean of
    Σ_l q(1−q), mixed half and half with a proportional share so that wrong probabilities cost little.

    Args:
        rows: how many to check; or `minutes` at `seconds_per_row`.
    """
    file = recovered if isinstance(recovered, RecoveredFile) else RecoveredFile.open(recovered)
    if (rows is None) == (minutes is None):
        raise ValueError(f"give either rows or minutes, got {rows!r} and {minutes!r}")
    budget = rows if rows is not None else int(float(minutes or 0) * 60 / seconds_per_row)
    profile = _profile(file)
    total = len(profile.row)
    if budget < 2:
        raise ValueError(f"an audit needs at least 2 rows, got {budget}")
    if budget >= total:
        sizes = {"all": (total, total)}
        return Plan(profile.row, profile.example, np.ones(total), ["all"] * total, sizes)
    stratum, names = _strata(profile, file.class_names, budget)
    count = np.bincount(stratum, minlength=len(names))
    spread = np.sqrt(np.bincount(stratum, profile.spread, len(names)) / count)
    chosen_of = _allocate(count, spread, budget)
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(np.flatnonzero(stratum == h), chosen_of[h], replace=False) for h in range(len(names))]
    at = np.sort(np.concatenate(chosen))
    chance = (chosen_of / count)[stratum[at]]
    sizes = {names[h]: (int(count[h]), int(chosen_of[h])) for h in range(len(names))}
    examples = [profile.example[i] for i in at]
    return Plan(profile.row[at], examples, chance, [names[h] for h in stratum[at]], sizes)


@dataclass(frozen=True)
class _Profile:
    row: NDArray[np.int64]
    example: list[str]
    expected: NDArray[np.float64]  # missing positives
    spread: NDArray[np.float64]  # Σ q(1−q)
    likeliest: NDArray[np.int64]  # the likeliest unknown class, −1 for none


def _profile(file: RecoveredFile) -> _Profile:
    """One line a row of the recovered labels, in one pass."""
    size = file.rows
    expected, spread, best = np.zeros(size), np.zeros(size), np.full(size, -1.0)
    likeliest, there = np.full(size, -1), np.zeros(size, np.bool_)
    example: list[str] = [""] * size
    for c in file.batches():
        row, q, unknown = c["row"], c["probability"].astype(np.float64), c["observed"] == 0
        there[row] = True
        for i in np.flatnonzero(np.diff(row, prepend=-1)):
            example[row[i]] = c["example"][i]
        row, q, cls = row[unknown], q[unknown], c["class_index"][unknown]
        expected += np.bincount(row, q, size)
        spread += np.bincount(row, q * (1 - q), size)
        order = np.argsort(q, kind="stable")
        row, q, cls = row[order], q[order], cls[order]
        better = q > best[row]
        likeliest[row[better]], best[row[better]] = cls[better], q[better]
    at = np.flatnonzero(there)
    return _Profile(at, [example[i] for i in at], expected[at], spread[at], likeliest[at])


def _strata(profile: _Profile, names: tuple[str, ...], budget: int) -> tuple[NDArray[np.int64], list[str]]:
    """A stratum per row: confidence bins, split by likeliest class where the budget leaves `LEAST` rows for it."""
    level = np.digitize(profile.expected, BINS)
    weight = np.sqrt(profile.spread) + np.sqrt(profile.spread.mean())
    share = budget * weight / max(weight.sum(), 1e-12)  # rows of the sample that a row stands for
    kind = level * (len(names) + 1) + len(names)  # "others" until a class earns its own stratum
    own = level * (len(names) + 1) + np.where(profile.likeliest < 0, len(names), profile.likeliest)
    earned = np.bincount(own, share, minlength=(len(BINS) + 1) * (len(names) + 1))
    big = earned >= 2 * LEAST
    kind = np.where(big[own], own, kind)
    # what is left of a bin may be too little: it joins the bin's largest class stratum, or the next bin
    for _ in range(len(BINS) + 1):
        found, inverse = np.unique(kind, return_inverse=True)
        size, rows = np.bincount(inverse, share), np.bincount(inverse)
        small = np.flatnonzero((size < LEAST) | (rows < LEAST))
        if len(found) < 2 or not len(small):
            break
        at = int(small[np.argmin(size[small])])
        near = at - 1 if at else 1
        kind = np.where(kind == found[at], found[near], kind)
    found, inverse = np.unique(kind, return_inverse=True)
    said = []
    for value in found:
        bin_, cls = divmod(int(value), len(names) + 1)
        span = ("fewest", "few", "some", "many", "most")[bin_]
        said.append(f"{span}/{names[cls] if cls < len(names) else 'other'}")
    return inverse.astype(np.int64), said


def _allocate(count: NDArray[np.int64], spread: NDArray[np.float64], budget: int) -> NDArray[np.int64]:
    """Rows per stratum: half Neyman, half proportional; at least 2, at most all; they add up to the budget."""
    half = (count * spread / max((count * spread).sum(), 1e-12) + count / count.sum()) / 2
    least = np.minimum(count, 2)
    wanted = np.clip(budget * half, least, count)
    for _ in range(100):  # what the caps cut off goes to the others
        free = (wanted > least) & (wanted < count)
        gap = budget - wanted.sum()
        if abs(gap) < 1e-9 or not free.any():
            break
        wanted[free] += gap * half[free] / half[free].sum()
        wanted = np.clip(wanted, least, count)
    whole = np.floor(wanted + 1e-9).astype(np.int64)
    for h in np.argsort(whole - wanted)[: max(budget - int(whole.sum()), 0)]:
        whole[h] += whole[h] < count[h]
    return whole


def read_answers(path: str | os.PathLike[str], plan: Plan, class_names: tuple[str, ...]) -> NDArray[np.int8]:
    """Answers to a plan's rows, rows × classes in {+1, −1, 0 unanswered}; they go to the pictures of their names.

    Either what `onelabel review --export` writes (Parquet), or a CSV: `row,class,value` with values of 1 and −1, or
    `row,labels` (or `example,labels`) with all classes of a picture divided by |, everything else being absent.
    """
    return read_file(path, plan.rows, plan.examples, class_names).values
