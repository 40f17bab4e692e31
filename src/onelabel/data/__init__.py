"""Data: the four benchmarks, and anyone's own pictures. Modules are imported when touched: pictures need no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onelabel.data.augment import IMAGENET_MEAN, IMAGENET_STD, Augment, make_views
    from onelabel.data.base import Dataset, Draw, FeatureDataset, Splits, split_rows
    from onelabel.data.cache import Features, features
    from onelabel.data.coco import coco_object_sizes
    from onelabel.data.images import ImageError, read_image, square_image
    from onelabel.data.load import default_root, list_datasets, load_dataset
    from onelabel.data.manifest import Manifest, build_manifest
    from onelabel.data.pictures import Pictures, device_pictures
    from onelabel.data.report import DataError, Problem, Report
    from onelabel.data.sources import ArraySource, FileSource, ImageSource
    from onelabel.data.stats import Statistics, statistics
    from onelabel.data.verify import verify_splits
    from onelabel.data.voc import voc_object_sizes

_NAMES = {
    "ArraySource": "sources",
    "Augment": "augment",
    "DataError": "report",
    "Dataset": "base",
    "Draw": "base",
    "FeatureDataset": "base",
    "Features": "cache",
    "FileSource": "sources",
    "IMAGENET_MEAN": "augment",
    "IMAGENET_STD": "augment",
    "ImageError": "images",
    "ImageSource": "sources",
    "Manifest": "manifest",
    "Pictures": "pictures",
    "Problem": "report",
    "Report": "report",
    "Splits": "base",
    "Statistics": "stats",
    "build_manifest": "manifest",
    "coco_object_sizes": "coco",
    "default_root": "load",
    "device_pictures": "pictures",
    "features": "cache",
    "list_datasets": "load",
    "load_dataset": "load",
    "make_views": "augment",
    "read_image": "images",
    "split_rows": "base",
    "square_image": "images",
    "statistics": "stats",
    "verify_splits": "verify",
    "voc_object_sizes": "voc",
}
__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "ArraySource",
    "Augment",
    "DataError",
    "Dataset",
    "Draw",
    "FeatureDataset",
    "Features",
    "FileSource",
    "ImageError",
    "ImageSource",
    "Manifest",
    "Pictures",
    "Problem",
    "Report",
    "Splits",
    "Statistics",
    "build_manifest",
    "coco_object_sizes",
    "default_root",
    "device_pictures",
    "features",
    "list_datasets",
    "load_dataset",
    "make_views",
    "read_image",
    "split_rows",
    "square_image",
    "statistics",
    "verify_splits",
    "voc_object_sizes",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"onelabel.data.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
