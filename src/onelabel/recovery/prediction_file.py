"""The file that `predict` writes: Parquet, JSON lines or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onelabel.data.cells import labels_of
from onelabel.recovery.table import parquet_file
from onelabel.system import atomic_file

CSV_COLUMNS = ("path", "labels", "error")


def refuse_unreadable(class_names: Sequence[str]) -> None:
    """An error where a CSV would not be read back as it was meant: by `load_table`, whose lists have no such bounds."""
    remedy = "give an out that ends in .jsonl or .parquet"
    for name in class_names:
        if labels_of(name, "|") != [name]:
            how = "divided by | and without blanks around them"
            raise ValueError(f"class {name!r} cannot stand among the labels of a CSV, {how}; {remedy}")
        if name in CSV_COLUMNS:
            raise ValueError(f"class {name!r} is called as a column of the CSV ({', '.join(CSV_COLUMNS)}); {remedy}")


class PredictionFile:
    """Parquet, JSON lines or CSV; the file appears when all is written."""

    def __init__(self, target: Path, class_names: Sequence[str]) -> None:
        self.suffix, self.class_names = target.suffix, class_names
        if target.suffix != ".parquet":
            self.context: Any = atomic_file(target)
        else:
            import pyarrow as pa

            text = pa.list_(pa.string())
            types = {"path": pa.string(), "labels": text, "classes": text}
            types |= {"probabilities": pa.list_(pa.float32()), "error": pa.string()}
            self.context = parquet_file(target, types, "onelabel.predictions", {"schema_version": 1})

    def __enter__(self) -> Any:
        inner = self.context.__enter__()
        if self.suffix == ".csv":
            inner.write(_csv([[*CSV_COLUMNS, *self.class_names]]))
            return lambda rows: inner.write(_csv(map(self._cells, rows)))
        if self.suffix == ".parquet":
            return lambda rows: inner({name: [row[name] for row in rows] for name in rows[0]})
        return lambda rows: inner.write("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode())

    def _cells(self, row: dict[str, Any]) -> list[Any]:
        known = dict(zip(row["classes"], row["probabilities"], strict=True))
        return [row["path"], "|".join(row["labels"]), row["error"], *(known.get(name) for name in self.class_names)]

    def __exit__(self, *error: Any) -> Any:
        return self.context.__exit__(*error)


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
