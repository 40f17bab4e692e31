"""FiftyOne: a dataset JSON as `fiftyone.Dataset.to_json` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onelabel.recovery.table import Example, RecoveredFile
from onelabel.system import atomic_file


def write_fiftyone(file: RecoveredFile, out: Path) -> Path:
    """Two fields of classifications per sample: `observed`, and `recovered` with confidences.

    Read it with ``fiftyone.Dataset.from_json(path)``; file paths are absolute where the dataset's folder is known.
    """
    root = file.folder()
    count = sum(1 for _ in file.examples())
    with atomic_file(out) as stream:
        head = {"name": out.stem, "media_type": "image", "num_samples": count, "info": {"made_by": "onelabel"}}
        classes = {"observed": list(file.class_names), "recovered": list(file.class_names)}
        text = json.dumps({**head, "classes": classes}, ensure_ascii=False)
        stream.write((text[:-1] + ', "samples": [').encode())
        for n, example in enumerate(file.examples()):
            path = str(root / example.example) if root is not None else example.example
            sample = {"filepath": path, "tags": [], "row": example.row}
            sample |= {"observed": _labels(file, example, True), "recovered": _labels(file, example, False)}
            text = ("," if n else "") + "\n" + json.dumps(sample, ensure_ascii=False)
            stream.write(text.encode(errors="backslashreplace"))
        stream.write(b"\n]}\n")
    return out


def _labels(file: RecoveredFile, example: Example, observed: bool) -> dict[str, Any]:
    each = [
        {"_cls": "Classification", "tags": [], "label": file.class_names[at], "confidence": round(p, 6)}
        for at, p, seen, _ in example.entries
        if (seen > 0) == observed
    ]
    return {"_cls": "Classifications", "classifications": each}
