"""Results: one row per run, with everything needed to repeat it, in Parquet.

A results folder holds ``<run_id>.parquet`` files of one row each while runs are being made, and may hold files of many
rows (``pack``). A file that cannot be read is reported, never fatal: a run it held is simply not finished.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onelabel.system import atomic_path, need

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One run.

    Numbers are percent where they are mAP or F1, None where they were not measured. "averaged" are the averaged
    weights (EMA), each track at its own best epoch by validation mAP; "flip" averages the scores of mirrored pictures.
    Whatever a dictionary holds is JSON in the file.
    """

    # what it was
    run_id: str
    dataset: str
    method: str  #: a name of the catalogue
    name: str = ""  #: what tables call it, such as "gr:pseudo"; the method's name where it is empty
    hyper: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "finetune"  #: linear, finetune or linearinit
    draw: str = "uniform1200"  #: which labels were observed, see bench.draws
    supervision: str = "positive"  #: positive, positive+negative, positive+negatives or full
    protocol: str = "onelabel"
    seed: int = 0
    fraction: float = 1.0  #: share of the training rows used
    settings: Mapping[str, Any] = field(default_factory=dict)  #: of `train`, or of the probe
    plan: str = ""  #: which plan it was made for, such as "table" or "sweep:em.alpha"
    # what came of it
    status: str = "done"  #: done or failed
    error: str = ""
    seconds: float | None = None
    together: int = 1  #: probes trained at once; seconds are this run's share
    best_epoch: int | None = None  #: 0-based
    best_epoch_averaged: int | None = None
    stopped_early: bool = False
    validation_map: float | None = None
    validation_map_averaged: float | None = None
    test_map: float | None = None
    test_map_flip: float | None = None
    test_map_averaged: float | None = None
    test_map_averaged_flip: float | None = None
    train_map: float | None = None  #: predictions on the training rows against all their true labels (ROLE Table 2)
    micro_f1: float | None = None
    macro_f1: float | None = None
    f1_threshold: float | None = None
    test_ap: Sequence[float] = ()  #: per class, of the scores that `test_ap_of` names
    test_ap_of: str = ""  #: "plain" or "averaged, flips"
    classes: Sequence[str] = ()
    history: Sequence[Mapping[str, Any]] = ()  #: per epoch
    extra: Mapping[str, Any] = field(default_factory=dict)  #: pseudo-labels' precision, pictures per second, …
    # where it was
    commit: str = ""
    hardware: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    weights: str = ""  #: of the backbone
    rows: Mapping[str, int] = field(default_factory=dict)  #: examples per part
    started: str = ""
    command: str = ""

    @property
    def label(self) -> str:
        """What a table calls the method."""
        return self.name or self.method

    @property
    def done(self) -> bool:
        return self.status == "done"


FIELDS = {f.name: f for f in dataclasses.fields(Row)}
_JSON = {"hyper", "settings", "history", "extra", "versions", "rows"}
_LISTS = {"test_ap": "float64", "classes": "string"}
_KINDS = {"str": "string", "int": "int64", "float": "float64", "bool": "bool_"}


@dataclass(frozen=True)
class Found:
    """What a results folder holds: rows, and the files that could not be read with the reason."""

    rows: list[Row]
    unreadable: dict[str, str]


def write(folder: str | Path, row: Row) -> Path:
    """One row as ``folder/<run_id>.parquet``, whole or not at all."""
    target = Path(folder) / f"{row.run_id}.parquet"
    write_rows(target, [row])
    return target


def write_rows(path: str | Path, rows: Sequence[Row]) -> None:
    """Many rows in one file."""
    pa, pq = need("pyarrow", "cli"), need("pyarrow.parquet", "cli")
    columns = {name: [_out(name, getattr(row, name)) for row in rows] for name in FIELDS}
    schema = pa.schema(
        [(name, _arrow(pa, name)) for name in FIELDS], metadata={"onelabel_bench_schema": str(SCHEMA_VERSION)}
    )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        pq.write_table(pa.table(columns, schema=schema), temporary, compression="zstd")


def find(folder: str | Path) -> Found:
    """Every row of a results folder (or of one file), one per run, finished ones before failed ones."""
    base = Path(folder)
    files = [base] if base.is_file() else sorted(base.rglob("*.parquet"))
    if not base.exists():
        raise FileNotFoundError(no_results(base))
    every: list[Row] = []
    unreadable: dict[str, str] = {}
    for file in files:
        if file.name.startswith("."):  # being written
            continue
        try:
            every += _read_file(file)
        except FileNotFoundError:  # packed away by another process meanwhile
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            unreadable[str(file.relative_to(base) if file != base else file)] = " ".join(str(error).split())[:200]
    return Found(_best(every), unreadable)


def no_results(place: str | Path) -> str:
    """What to say, and do, where results were looked for and none are."""
    committed = Path("docs/results/bench")  # of a checkout
    near = f", --results {committed} has some" if committed.is_dir() and committed != place else ""
    return f"{place}: no results there; onelabel bench DATA --out {place} makes them{near}"


def read(folder: str | Path) -> list[Row]:
    """The rows of a results folder; files that cannot be read are left out (`find` names them)."""
    return find(folder).rows


def gather(folder: str | Path, path: str | Path) -> Found:
    """Write a folder's rows into one file, in a fixed order; what was found."""
    found = find(folder)
    write_rows(path, sorted(found.rows, key=_order))
    return found


def _order(row: Row) -> tuple[Any, ...]:
    return row.dataset, row.mode, row.plan, row.label, row.draw, row.seed, row.run_id


def _best(rows: Iterable[Row]) -> list[Row]:
    """One row a run: a finished one before a failed one, else the latest."""
    best: dict[str, Row] = {}
    for row in rows:
        kept = best.get(row.run_id)
        if kept is None or (row.done, row.started) >= (kept.done, kept.started):
            best[row.run_id] = row
    return list(best.values())


def pack(folder: str | Path, path: str | Path) -> int:
    """`gather`, beside what the file already holds; how many rows.

    In the folder itself the file takes the place of those the rows came from; elsewhere it is a copy, and they stay.
    """
    base, target = Path(folder), Path(path).resolve()
    files = [file for file in sorted(base.glob("*.parquet")) if not file.name.startswith(".")]
    found = find(base)
    held = find(target) if target.is_file() else Found([], {})
    if held.unreadable:
        raise ValueError(f"{path}: cannot be read, so nothing is added to it; give another file")
    rows = _best([*held.rows, *found.rows])
    write_rows(target, sorted(rows, key=_order))
    for file in files if base.resolve() in target.parents else ():
        if file.name not in found.unreadable and file.resolve() != target:
            file.unlink(missing_ok=True)
    return len(rows)


def as_dict(row: Row) -> dict[str, Any]:
    """A row as plain values, JSON within (for databases)."""
    return {name: _out(name, getattr(row, name)) for name in FIELDS}


def from_dict(values: Mapping[str, Any]) -> Row:
    """The opposite of `as_dict`; fields this version does not know are left out, absent ones take their default."""
    return Row(**{name: _in(name, value) for name, value in values.items() if name in FIELDS and value is not None})


def _read_file(file: Path) -> Iterable[Row]:
    pa, pq = need("pyarrow", "cli"), need("pyarrow.parquet", "cli")
    try:
        table = pq.ParquetFile(file).read()
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None
    version = int((table.schema.metadata or {}).get(b"onelabel_bench_schema", b"0"))
    if version > SCHEMA_VERSION:
        raise ValueError(f"schema {version}, this version reads up to {SCHEMA_VERSION}: upgrade onelabel")
    return [from_dict(values) for values in table.to_pylist()]


def _out(name: str, value: Any) -> Any:
    if name in _JSON:
        return json.dumps(value, ensure_ascii=False, default=str)
    return list(value) if name in _LISTS else value


def _in(name: str, value: Any) -> Any:
    if name in _JSON:
        found = json.loads(value) if isinstance(value, str) else value
        return tuple(found) if isinstance(found, list) else found
    return tuple(value) if name in _LISTS else value


def _arrow(pa: Any, name: str) -> Any:
    if name in _JSON:
        return pa.string()
    if name in _LISTS:
        return pa.list_(getattr(pa, _LISTS[name])())
    return getattr(pa, _KINDS[str(FIELDS[name].type).split(" | ")[0]])()
