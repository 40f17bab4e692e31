"""COCO-style JSON with annotations for whole pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onelabel.recovery.table import RecoveredFile
from onelabel.system import atomic_file


def write_coco(file: RecoveredFile, out: Path) -> Path:
    """images, categories (ids from 1) and annotations without boxes; `score` and `observed` say how sure it is."""
    with atomic_file(out) as stream:

        def put(text: str) -> None:
            stream.write(text.encode(errors="backslashreplace"))

        info = {"description": "labels recovered by onelabel", "version": "1", "root": str(file.folder() or "")}
        categories = [{"id": i + 1, "name": name} for i, name in enumerate(file.class_names)]
        put(f'{{"info": {_json(info)},\n"licenses": [],\n"categories": {_json(categories)},\n"images": [')
        for n, example in enumerate(file.examples()):
            put(("," if n else "") + "\n" + _json({"id": example.row, "file_name": example.example}))
        put('],\n"annotations": [')
        number = 0
        for example in file.examples():
            for at, p, seen, _ in example.entries:
                one = {"id": number + 1, "image_id": example.row, "category_id": at + 1, "score": round(p, 6)}
                put(("," if number else "") + "\n" + _json({**one, "iscrowd": 0, "observed": seen}))
                number += 1
        put("]}\n")
    return out


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
