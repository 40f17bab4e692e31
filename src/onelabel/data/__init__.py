"""Data: the four benchmarks, and anyone's own pictures."""

from onelabel.data.augment import IMAGENET_MEAN, IMAGENET_STD, Augment, make_views
from onelabel.data.base import Dataset, Draw, FeatureDataset, Splits, split_rows
from onelabel.data.cache import Features, features
from onelabel.data.images import ImageError, read_image, square_image
from onelabel.data.load import default_root, list_datasets, load_dataset
from onelabel.data.pictures import Pictures, device_pictures
from onelabel.data.report import DataError, Problem, Report
from onelabel.data.sources import ArraySource, FileSource, ImageSource

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
    "Pictures",
    "Problem",
    "Report",
    "Splits",
    "default_root",
    "device_pictures",
    "features",
    "list_datasets",
    "load_dataset",
    "make_views",
    "read_image",
    "split_rows",
    "square_image",
]
