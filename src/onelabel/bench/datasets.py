"""The data of a benchmark: pictures, and the features that linear runs are made on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onelabel.data import FeatureDataset, Splits, load_dataset


def is_voc_features(source: str) -> bool:
    """Whether a folder holds VOC's labels.npz and features."""
    folder = Path(source).expanduser()
    return all((folder / name).is_file() for name in ("labels.npz", "features-resnet50-448.npz"))


def holds_pictures(source: str) -> bool:
    """Whether a source, by its name, is pictures rather than features."""
    return not is_voc_features(source) and Path(source).suffix.lower() not in (".npz", ".npy", ".arff")


def load(source: str, *, root: str | None = None, **options: Any) -> Splits[Any]:
    """Splits of a benchmark by name, file or folder; a folder of VOC features is "voc2012"."""
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
    from onelabel.models import build_classifier, starting_weights

    network = build_classifier(len(splits.class_names), backbone=backbone, weights=starting_weights(backbone, weights))
    mean, std = ((buffer.flatten() / 255).tolist() for buffer in (network.mean, network.std))
    made = {}
    for name, part in splits.parts.items():
        found = features(part, network.backbone, size=size, device=device, mean=mean, std=std)
        made[name] = found.dataset(part)
    return Splits(splits.name, made["train"], made.get("validation"), made.get("test"), splits.notes)
