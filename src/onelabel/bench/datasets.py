"""The data of a benchmark: pictures, and the features that linear runs are made on; and what rows call them.

A benchmark as published is called by its name. Anyone's own data, and a benchmark loaded with options, are called
NAME-1a2b3c4d by what they hold, so that other data, another split or other labels are other runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.data import FeatureDataset, FileSource, ImageSource, Splits, list_datasets, load_dataset

#: Options of every loader that say which labels are observed: here draws do.
DRAWING = ("seed", "drop", "positives", "negatives", "drop_options")
_MARK = re.compile(r"-[0-9a-f]{8}$")


def is_voc_features(source: str) -> bool:
    """Whether a folder holds VOC's labels.npz and features."""
    folder = Path(source).expanduser()
    return all((folder / name).is_file() for name in ("labels.npz", "features-resnet50-448.npz"))


def holds_pictures(source: str, splits: Splits[Any] | None = None) -> bool:
    """Whether a source is pictures rather than features; a benchmark that was not read yet is."""
    return not (is_voc_features(source) if splits is None else isinstance(splits.train, FeatureDataset))


def is_published(source: str, options: Mapping[str, Any]) -> bool:
    """Whether a source is a benchmark by name (or its features) just as its loader gives it."""
    return is_voc_features(source) or (source in list_datasets() and not options)


def check_options(source: str, options: Mapping[str, Any]) -> None:
    """Options of the loader that a bench cannot take are an error in one line."""
    for key in (key for key in DRAWING if key in options):
        seed = options[key] if key == "seed" else 1
        raise ValueError(
            f"-o {key}: draws say which labels are observed, such as --draws uniform:{seed}; -o split_seed=N is "
            "another split"
        )
    if options and is_voc_features(source):
        raise ValueError(f"-o {next(iter(options))}: a folder of VOC features has the published split, and no options")


def short_name(source: str) -> str:
    """What people call a source: the benchmark's name, or the file's or folder's own."""
    return "voc2012" if is_voc_features(source) else source if source in list_datasets() else Path(source).stem


def without_mark(dataset: str) -> str:
    """The name of a dataset without what tells it from others of the name."""
    return _MARK.sub("", dataset)


def marked(name: str, splits: Splits[Any]) -> str:
    """The name with eight digits of what is trained and tested on: rows, observed and true labels, classes, parts."""
    digest = hashlib.blake2b(json.dumps(splits.class_names).encode(), digest_size=4)
    for part_name, part in splits.parts.items():
        digest.update(f"{part_name} {len(part)}\n".encode())
        digest.update(_pictures(part.source) if hasattr(part, "source") else np.ascontiguousarray(part.X).data)
        for array in (part.observed.indptr, part.observed.indices, part.observed.values, part.true):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
    return f"{name}-{digest.hexdigest()}"


def _pictures(source: ImageSource) -> bytes:
    if not isinstance(source, FileSource) or source.hashes is not None:
        return source.fingerprint().encode()
    files = ((path, os.path.join(source.root, path)) for path in source.paths)
    # no times of files: machines that each have a copy of a folder share the runs
    sizes = [[path, os.path.getsize(file) if os.path.isfile(file) else None] for path, file in files]
    return json.dumps(sizes).encode()


def load(source: str, *, root: str | None = None, **options: Any) -> Splits[Any]:
    """Splits of a benchmark by name, file or folder; a folder of VOC features is "voc2012"."""
    check_options(source, options)
    if is_voc_features(source):
        return voc_features(source)
    return load_dataset(source, root=root, **options)


def voc_features(folder: str | Path) -> Splits[FeatureDataset]:
    """VOC 2012 as features: the published split and draw, see `probes.role_table.load_voc_features`."""
    from onelabel.labels import Labels
    from onelabel.probes.role_table import load_voc_features

    data = load_voc_features(folder)

    def part(name: str, rows: tuple[Any, Any], observed: Any) -> FeatureDataset:
        return FeatureDataset(f"voc2012/{name}", data.class_names, rows[0], observed, rows[1])

    full = {name: Labels.from_true(getattr(data, name)[1], data.class_names) for name in ("validation", "test")}
    return Splits(
        "voc2012",
        part("train", data.train, data.observed),
        part("validation", data.validation, full["validation"]),
        part("test", data.test, full["test"]),
    )


def as_features(
    splits: Splits[Any], *, backbone: str, weights: str | None, size: int, device: str | None
) -> Splits[FeatureDataset]:
    """Frozen features of every part's pictures, from the data room's cache where they are there."""
    from onelabel.data.cache import features
    from onelabel.training.frozen import frozen_backbone

    network, look = frozen_backbone(backbone, weights, size=size)
    made = {}
    for name, part in splits.parts.items():
        made[name] = features(part, network, size=size, device=device, **look).dataset(part)
    return Splits(splits.name, made["train"], made.get("validation"), made.get("test"), splits.notes)
