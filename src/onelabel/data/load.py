"""`load_dataset`: one entrance for benchmarks, the embedded dataset and anyone's own data."""

from __future__ import annotations

import inspect
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from onelabel.labels import Labels

from .base import Draw, Matrix, Splits
from .report import DataError, Report
from .verify import verify_splits

#: What `load_dataset` takes for any data.
DRAWN = {"seed", "validation", "drop", "positives", "negatives", "split_seed", "drop_options", "strict"}


@dataclass(frozen=True)
class Loader:
    """A named dataset, and the function that loads it (imported when first used)."""

    name: str
    module: str
    function: str
    summary: str
    needs_root: bool = True

    def __call__(self, *args: Any, **options: Any) -> Splits[Any]:
        function = getattr(import_module(f"onelabel.data.{self.module}"), self.function)
        known = inspect.signature(function).parameters
        # a loader that looks at no pictures has them looked at afterwards: any data can be asked for without bad ones
        verify: Any = options.pop("verify", "none") if "verify" not in known else "none"
        unknown = sorted(set(options) - set(known))
        if unknown:
            drawn = DRAWN if "draw" in known else set()
            usable = sorted({*known, *drawn} - {"root", "path", "draw", "report", *unknown})
            raise TypeError(f"{self.name}: no option {unknown[0]!r}; it takes {', '.join(usable) or 'none'}")
        result: Splits[Any] = function(*args, **options)
        return result if verify == "none" else verify_splits(result, verify=verify)


DATASETS: dict[str, Loader] = {
    loader.name: loader
    for loader in (
        Loader("voc2012", "voc", "load_voc", "PASCAL VOC 2012, 20 classes"),
        Loader("coco2014", "coco", "load_coco", "MS-COCO 2014, 80 classes"),
        Loader("nuswide", "nuswide", "load_nuswide", "NUS-WIDE, 81 concepts"),
        Loader("cub", "cub", "load_cub", "CUB-200-2011, 312 attributes"),
        Loader("digits-scenes", "digits", "load_digits_scenes", "embedded scenes of digits, 10 classes", False),
    )
}
FOLDER = Loader("folder", "folders", "load_folder", "a folder per class")
TABLE = Loader("table", "tables", "load_table", "CSV, TSV, Parquet or JSONL of path and label")
INSTANCES = Loader("coco", "coco", "load_instances", "own labels in COCO's form, a .json of images and annotations")
SHARDS = Loader("shards", "webdataset", "load_shards", "WebDataset .tar shards")
HUGGING_FACE = Loader("hf", "hf", "load_hf", "a Hugging Face dataset with an image and a label column")
MATRIX = Loader("matrix", "matrices", "load_matrix", "a features matrix: npy, npz, Parquet or ARFF")


def list_datasets() -> list[str]:
    """The names `load_dataset` knows."""
    return sorted(DATASETS)


def load_dataset(
    name_or_path: Any,
    *,
    root: str | Path | None = None,
    seed: int = 1200,
    validation: float = 0.2,
    drop: str | Callable[[Matrix], Labels] = "uniform",
    positives: int = 1,
    negatives: int | str | Sequence[str] = 0,
    split_seed: int | None = None,
    drop_options: Mapping[str, Any] | None = None,
    strict: bool = False,
    **options: Any,
) -> Splits[Any]:
    """Load a dataset's training, validation and test parts.

    Args:
        name_or_path: a name of `list_datasets()`; a folder with a folder per class; a `.csv`, `.tsv`, `.parquet` or
            `.jsonl` table; a `.tar` or a brace pattern of WebDataset shards; `hf:` and a directory or name, or a
            Hugging Face dataset object; a `.npy`, `.npz` or `.arff` features file (Parquet: `kind="matrix"`).
        root: where a benchmark's archives were extracted; $ONELABEL_DATA or `data` unless given. For a table, the
            folder that its paths are relative to.
        seed, validation, drop, positives, negatives, split_seed, drop_options: see `Draw`; the defaults are the
            published protocol. `drop` matters only where clean labels exist. For a table `negatives` may be the name
            of its column of them, or several.
        strict: raise `DataError` at the first problem instead of collecting them in `Splits.report`.
        **options: the loader's own, such as `size` of digits-scenes or `class_names` of a table.

    Returns:
        `Splits` of `Dataset` (pictures) or `FeatureDataset` (matrices). `validation` and `test` may be None.
    """
    if not isinstance(negatives, int):  # columns, which only a table has
        options["negatives"], negatives = negatives, 0
    draw = Draw(seed, validation, drop, positives, negatives, split_seed, dict(drop_options or {}))
    shared: dict[str, Any] = {"draw": draw, "report": Report(strict=strict)}
    given = dict(options)
    kind = options.pop("kind", None)
    if not isinstance(name_or_path, str | Path):
        return HUGGING_FACE(name_or_path, **shared, **options)
    text = str(name_or_path)
    if isinstance(name_or_path, str) and text in DATASETS:
        loader, where = DATASETS[text], [root if root is not None else default_root()]
        where = where if loader.needs_root else []
    elif text.startswith("hf:"):
        loader, where = HUGGING_FACE, [text[3:]]
    else:
        loader, where = _loader_of(text, kind), [text]
        if loader in (TABLE, INSTANCES) and root is not None:
            options["root"] = root
    return replace(loader(*where, **shared, **options), origin=text, check=check_command(text, root, **given))


def check_command(data: str, root: str | Path | None = None, **options: Any) -> str:
    """The command that looks closer at what `load_dataset` was given."""
    words = ["onelabel", "data", "check", data, *([] if root is None else ["--root", str(root)])]
    for name, value in options.items():
        if name != "verify":  # the command decodes everything
            words += ["-o", f"{name}={value if isinstance(value, str) else json.dumps(value, default=str)}"]
    return shlex.join(words)


def default_root() -> Path:
    """Where benchmarks are looked for: $ONELABEL_DATA, or `data` in the current folder."""
    return Path(os.environ.get("ONELABEL_DATA", "data"))


def _loader_of(text: str, kind: str | None) -> Loader:
    by_kind = {loader.name: loader for loader in (FOLDER, TABLE, INSTANCES, SHARDS, HUGGING_FACE, MATRIX)}
    if kind is not None:
        if kind not in by_kind:
            raise ValueError(f"kind: {kind!r}, expected one of {', '.join(by_kind)}")
        return by_kind[kind]
    path = Path(text).expanduser()
    if path.suffix == ".tar" or "{" in path.name:
        return SHARDS
    if path.is_dir():
        saved = any((path / file).exists() for file in ("dataset_info.json", "dataset_dict.json", "state.json"))
        if saved:
            return HUGGING_FACE
        return SHARDS if any(path.glob("*.tar")) and not any(p.is_dir() for p in path.iterdir()) else FOLDER
    by_suffix = {
        **dict.fromkeys((".csv", ".tsv", ".parquet", ".jsonl", ".ndjson"), TABLE),
        **dict.fromkeys((".npy", ".npz", ".arff"), MATRIX),
        ".json": INSTANCES,
    }
    if path.suffix.lower() not in by_suffix:
        known = ", ".join(list_datasets())
        if path.exists():
            raise DataError(
                f"{text}: expected a folder or {', '.join(by_suffix)}; or say which it is by -o kind= (kind=)"
            )
        raise DataError(f"{text}: neither a dataset ({known}) nor a folder, table, shard or features file that exists")
    if not path.exists():
        raise DataError(f"{text}: no such file")
    return by_suffix[path.suffix.lower()]
