"""Hugging Face: a dataset directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onelabel.recovery.table import RecoveredFile
from onelabel.system import need


def write_hf(file: RecoveredFile, out: Path) -> Path:
    """`datasets.load_from_disk` reads it: path, labels (a sequence of ClassLabel), probabilities, observed."""
    datasets: Any = need("datasets", "data")
    names, root = list(file.class_names), file.folder()
    label = datasets.ClassLabel(names=names)
    several = getattr(datasets, "List", datasets.Sequence)
    fields = {
        "path": datasets.Value("string"),
        "labels": several(label),
        "probabilities": several(datasets.Value("float32")),
        "observed": several(label),
    }

    def rows() -> Iterator[dict[str, Any]]:
        for example in file.examples():
            yield {
                "path": str(root / example.example) if root is not None else example.example,
                "labels": [at for at, *_ in example.entries],
                "probabilities": [p for _, p, _, _ in example.entries],
                "observed": [at for at, _, seen, _ in example.entries if seen > 0],
            }

    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as temporary:
        made = datasets.Dataset.from_generator(
            rows, features=datasets.Features(fields), cache_dir=os.path.join(temporary, "cache")
        )
        made.save_to_disk(os.path.join(temporary, "done"))
        if out.is_dir():
            out.rmdir()
        os.replace(os.path.join(temporary, "done"), out)
    return out
