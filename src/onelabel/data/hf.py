"""Hugging Face `datasets` with an image and a label column."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onelabel.system import need, reading

from .base import Draw, Splits
from .images import MAX_PIXELS, ImageError, Raw
from .own import Complete, Records, own_splits, part_name
from .report import DataError, Report
from .sources import ImageSource, Rows
from .verify import Verify


class HFSource(ImageSource):
    """Rows of a `datasets.Dataset`; pictures are decoded here, not by `datasets`, so hostile ones are caught."""

    def __init__(self, data: Any, column: str, paths: Sequence[str]) -> None:
        self.data, self.column, self.paths, self.max_pixels = data, column, list(paths), MAX_PIXELS

    def raw(self, row: int) -> Raw:
        value = self.data[int(row)][self.column]
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes | str):
            return value
        raise ImageError("missing", self.paths[row], "neither bytes nor a path")

    def take(self, rows: Rows) -> HFSource:
        index = [int(row) for row in rows]
        return HFSource(self.data.select(index), self.column, [self.paths[row] for row in index])

    def fingerprint(self) -> str:
        return f"hf-{self.data._fingerprint}-{self.column}"  # changes with every operation on the dataset


def load_hf(
    path: Any,
    *,
    image: str | None = None,
    label: str | None = None,
    negatives: str | None = None,
    class_names: Sequence[str] | str | Path | None = None,
    complete: Complete = False,
    verify: Verify = "header",
    draw: Draw | None = None,
    report: Report | None = None,
) -> Splits[Any]:
    """A `Dataset` or `DatasetDict`, a folder made by `save_to_disk`, or a name that `datasets.load_dataset` knows.

    Args:
        image, label, negatives: the columns; the first Image feature and the first ClassLabel (or list of them, or a
            column called label or labels) unless given. A label may be a name, a number or a list of either.
        complete: every label that a row lacks is absent; its labels then count as clean;
            'held-out': of validation and test rows alone.
    """
    datasets = need("datasets", "data")
    report = report if report is not None else Report()
    data = _open(datasets, path)
    parts = dict(data) if isinstance(data, Mapping) else {"train": data}
    unknown = [name for name in parts if part_name(name) is None]
    if unknown:
        raise DataError(
            f"hf: split {unknown[0]!r} is none of train, validation, test; pass the datasets by those names"
        )
    records, sources = Records(), []
    names: list[str] | None = None
    for key, part in parts.items():
        with reading(key, "whole rows of a dataset", remedy="save it again", kind=DataError):
            part.data.table.validate(full=True)  # Arrow trusts a memory map: a false offset would end the process
        part = part.with_format(None)  # whatever columns and types its owner had chosen to see
        features = part.features
        picture = image or next((c for c, f in features.items() if isinstance(f, datasets.Image)), None)
        picture = picture or next((c for c in ("image", "path", "file") if c in features), None)
        target = label or _label_column(features, datasets)
        for column, option in ((picture, "image"), (target, "label")):
            if column is None or column not in features:
                raise DataError(f"hf: no {option} column among {', '.join(features)}; pass {option}=")
        assert picture is not None
        if isinstance(features[picture], datasets.Image):
            part = part.cast_column(picture, datasets.Image(decode=False))
        names = names or _names(features[target], datasets)
        against = part[negatives] if negatives else [[]] * len(part)
        paths = [f"{key}[{row}]" for row in range(len(part))]
        for where, positive, negative in zip(paths, part[target], against, strict=True):
            records.add(where, _words(positive, names), _words(negative, names), part_name(key))
        sources.append(HFSource(part, picture, paths))
    whole = sources[0]
    if len(sources) > 1:
        picture = sources[0].column
        joined = datasets.concatenate_datasets([s.data.select_columns([s.column]) for s in sources])
        whole = HFSource(joined, picture, [name for s in sources for name in s.paths])
    return own_splits(
        "hf" if not isinstance(path, str) else os.path.basename(path.rstrip("/")) or "hf",
        whole,
        records,
        class_names=class_names if class_names is not None else names,
        complete=complete,
        draw=draw or Draw(),
        report=report,
        verify=verify,
        notes=("a Hugging Face dataset",),
    )


def _open(datasets: Any, path: Any) -> Any:
    if not isinstance(path, str | Path):
        if isinstance(path, datasets.Dataset | datasets.DatasetDict | dict):
            return path
        raise TypeError(f"dataset: {type(path).__name__}, expected a name, a path or a datasets.Dataset")
    folder = Path(path).expanduser()
    if any((folder / name).exists() for name in ("dataset_info.json", "dataset_dict.json", "state.json")):
        with reading(folder, "a dataset that save_to_disk wrote", kind=DataError):
            return datasets.load_from_disk(str(folder))
    return datasets.load_dataset(str(path))


def _inner(feature: Any) -> Any:
    """What a list feature is a list of; the feature itself otherwise."""
    inner = getattr(feature, "feature", None)
    if inner is not None:
        return inner
    return feature[0] if isinstance(feature, list) and feature else feature


def _label_column(features: Mapping[str, Any], datasets: Any) -> str | None:
    named = [c for c in ("label", "labels", "class", "classes", "category") if c in features]
    typed = [c for c, f in features.items() if isinstance(_inner(f), datasets.ClassLabel)]
    return next(iter([*typed, *named]), None)


def _names(feature: Any, datasets: Any) -> list[str] | None:
    inner = _inner(feature)
    return list(inner.names) if isinstance(inner, datasets.ClassLabel) else None


def _words(value: Any, names: list[str] | None) -> list[str]:
    if value is None:
        return []
    items = value if isinstance(value, list | tuple) else [value]
    if names is None:
        return [str(item) for item in items if item is not None]
    # ClassLabel marks an unknown class by −1.
    found = [item for item in items if item is not None and item != -1]
    wrong = [item for item in found if isinstance(item, int) and not 0 <= item < len(names)]
    if wrong:
        raise DataError(f"hf: label {wrong[0]}, expected 0 to {len(names) - 1}, or -1 for unknown")
    return [names[item] if isinstance(item, int) else str(item) for item in found]
