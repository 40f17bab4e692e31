"""The file of recovered labels: Parquet written and read in pieces; beside it a JSON with thresholds and summary."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.labels import Labels
from onelabel.recovery.schema import COLUMNS, RECOVERED, VERSION
from onelabel.system import atomic_path, check_schema, read_json, reading

NUMBERS = ("row", "class_index", "probability", "observed", "rank")


def arrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet module."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("recovered labels are Parquet files: pip install 'onelabel[cli]'") from None
    return pyarrow, pyarrow.parquet


@contextlib.contextmanager
def parquet_file(path: Path, types: dict[str, str], key: str, meta: Any, root: str = "") -> Iterator[Any]:
    """A writer of record batches with these columns; the file appears when the block ends without an error.

    `root` is the folder that paths in it are relative to, for those who read it as a table.
    """
    pa, parquet = arrow()
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {key: json.dumps(meta, ensure_ascii=False), **({"onelabel.root": root} if root else {})}
    schema = pa.schema(list(types.items()), metadata=metadata)
    with atomic_path(path) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:

        def write(columns: dict[str, Any]) -> None:
            arrays = [pa.array(columns[name], schema.field(name).type) for name in types]
            writer.write_batch(pa.record_batch(arrays, schema=schema))

        yield write


@dataclass(frozen=True)
class RecoveredFile:
    """Recovered labels on disk: candidates in Parquet, thresholds and settings in the JSON beside it.

    Attributes:
        about: the JSON: thresholds by class, k, method, floor, top, per-class summary.
    """

    path: Path
    class_names: tuple[str, ...]
    root: str
    rows: int
    about: dict[str, Any]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RecoveredFile:
        """A recovered.parquet, or a folder that holds one."""
        _, parquet = arrow()
        given = Path(path)
        target = given / "recovered.parquet" if given.is_dir() else given
        if not target.is_file():
            command = f"onelabel recover {given}" if given.is_dir() else f"onelabel recover DATA --out {given}"
            raise FileNotFoundError(f"{target}: no recovered labels there; `{command}` writes them")
        with reading(target, "recovered labels", remedy="write them with onelabel recover"):
            with parquet.ParquetFile(target) as file:
                header, most = (file.schema_arrow.metadata or {}).get(RECOVERED.encode()), file.metadata.num_rows
            if header is None:
                raise ValueError(f"no {RECOVERED!r} in its metadata")
            meta = json.loads(header)
            check_schema(meta["schema_version"], VERSION, target)
            names, rows = tuple(meta["class_names"]), int(meta.get("rows", 0))
            if not names or not all(isinstance(name, str) for name in names) or not 0 <= rows <= most:
                raise ValueError(f"class_names {names!r:.40}, {rows} rows of {most} entries")
        beside = target.with_suffix(".json")
        about = read_json(beside) if beside.is_file() else {}
        found = cls(target, names, str(meta.get("root") or ""), rows, about)
        with reading(beside, "what recover writes beside its labels"):
            check_schema(about.get("schema_version", 1), VERSION, beside)
            if found.thresholds.shape != (len(names),):
                raise ValueError(f"{found.thresholds.size} thresholds for {len(names)} classes")
            for each in about.get("classes", []):
                if not (isinstance(each["name"], str) and isinstance(each["observed"], int)):
                    raise ValueError(f"classes: {str(each)[:60]!r}, expected names with what was observed")
            if "k" in about:
                float(about["k"]), *map(float, about["k_interval"])  # what the report prints
        return found

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """Per class; 0.5 where the JSON is missing, inf where nothing is called."""
        found = self.about.get("thresholds")
        if found is None:
            return np.full(len(self.class_names), 0.5)
        return np.array([np.inf if t is None else float(t) for t in found])

    def folder(self) -> Path | None:
        """The folder of the pictures."""
        return (self.path.parent / os.path.expanduser(self.root)).resolve() if self.root else None

    def batches(self, size: int = 65_536) -> Iterator[dict[str, Any]]:
        """Columns as arrays (`example` and `class` as lists), in row order."""
        pa, parquet = arrow()
        schema = pa.schema(list(COLUMNS[RECOVERED].items()))
        with reading(self.path, "recovered labels"), parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(size, columns=schema.names):
                batch = batch.select(schema.names).cast(schema)
                columns: dict[str, Any] = {name: np.asarray(batch.column(name)) for name in NUMBERS}
                columns |= {name: batch.column(name).to_pylist() for name in ("example", "class")}
                self._check(columns, sum(column.null_count for column in batch.columns))
                yield columns

    def names(self) -> dict[int, str]:
        """Row → the picture's name."""
        return {row: name for c in self.batches() for row, name in zip(c["row"].tolist(), c["example"], strict=True)}

    def _check(self, c: dict[str, Any], missing: int) -> None:
        """Every number where it belongs: rows and classes are used as places in memory."""
        least = {"row": (0, self.rows or 2**62), "class_index": (0, len(self.class_names)), "observed": (-1, 2)}
        for name, (low, high) in least.items():
            if missing or (bad := (c[name] < low) | (c[name] >= high)).any():
                raise ValueError(f"{missing} values missing" if missing else f"{name} {c[name][bad][0]}")
        if not ((c["probability"] >= 0) & (c["probability"] <= 1)).all():
            raise ValueError("a probability outside 0 to 1")

    def examples(self, *, called: bool = True) -> Iterator[Example]:
        """Row by row, what is known and suggested of a picture; all rows are there, in order."""
        limits = self.thresholds
        current: Example | None = None
        for c in self.batches():
            for i, row in enumerate(c["row"].tolist()):
                if current is None or current.row != row:
                    if current is not None:
                        yield current
                    current = Example(row, c["example"][i], [])
                at = int(c["class_index"][i])
                p, seen = float(c["probability"][i]), int(c["observed"][i])
                yes = seen > 0 or (seen == 0 and p >= limits[at])
                if yes or not called:
                    current.entries.append((at, p, seen, yes))
        if current is not None:
            yield current

    def labels(self, *, observed: Labels | None = None) -> Labels:
        """Observed labels with every called entry as +1, for the next training round."""
        limits, parts = self.thresholds, []
        for c in self.batches():
            at, seen = c["class_index"], c["observed"]
            yes = (seen == 0) & (c["probability"] >= limits[at])
            value = np.where(yes, 1, seen).astype(np.int8)
            keep = value != 0
            parts.append((c["row"][keep], at[keep], value[keep]))
        rows, cols, values = (np.concatenate(x) for x in zip(*parts, strict=True)) if parts else ([], [], [])
        if observed is not None:
            return observed.with_updates(rows, cols, values)
        return Labels.from_coo(
            rows, cols, values, shape=(self.rows, len(self.class_names)), class_names=self.class_names
        )


@dataclass(frozen=True)
class Example:
    """One picture: entries are (class index, probability, observed, called)."""

    row: int
    example: str
    entries: list[tuple[int, float, int, bool]]


def header(root: str, class_names: Sequence[str], rows: int) -> dict[str, Any]:
    """The Parquet file's JSON header."""
    return {"schema_version": VERSION, "root": root, "class_names": list(class_names), "rows": rows}
