"""CSV, Parquet and `Labels`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.recovery.table import RecoveredFile, parquet_file
from onelabel.system import atomic_file


def write_csv(file: RecoveredFile, out: Path) -> Path:
    """All candidates: row, example, class, probability, observed, rank, recovered (1: called or observed)."""
    limits = file.thresholds
    with atomic_file(out) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "example", "class", "probability", "observed", "rank", "recovered"])
        for c in file.batches():
            yes = (c["observed"] > 0) | ((c["observed"] == 0) & (c["probability"] >= limits[c["class_index"]]))
            p = np.char.mod("%.6g", c["probability"])
            cells = (c["row"].tolist(), c["example"], c["class"], p.tolist(), c["observed"].tolist())
            writer.writerows(zip(*cells, c["rank"].tolist(), yes.astype(int).tolist(), strict=True))
        text.flush()
        text.detach()
    return out


def write_parquet(file: RecoveredFile, out: Path) -> Path:
    """A row per picture; `onelabel train` reads it as a table."""
    import pyarrow as pa

    types = {
        "path": pa.string(),
        "labels": pa.list_(pa.string()),
        "probabilities": pa.list_(pa.float32()),
        "observed": pa.list_(pa.string()),
    }
    names, held = file.class_names, _empty()
    root = str(file.folder() or "")
    with parquet_file(out, types, "onelabel.completed", {"class_names": list(names), "root": root}, root) as write:
        for example in file.examples():
            held["path"].append(example.example)
            held["labels"].append([names[at] for at, *_ in example.entries])
            held["probabilities"].append([p for _, p, _, _ in example.entries])
            held["observed"].append([names[at] for at, _, seen, _ in example.entries if seen > 0])
            if len(held["path"]) >= 50_000:
                write(held)
                held = _empty()
        write(held)
    return out


def _empty() -> dict[str, list[Any]]:
    return {"path": [], "labels": [], "probabilities": [], "observed": []}


def write_labels(file: RecoveredFile, out: Path) -> Path:
    """`Labels`: observed entries as they are, called ones +1."""
    out.parent.mkdir(parents=True, exist_ok=True)
    file.labels().save(out)
    return out
