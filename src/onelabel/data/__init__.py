"""Data: the four benchmarks, and anyone's own pictures."""

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
