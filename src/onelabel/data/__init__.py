"""Data: the four benchmarks, and anyone's own pictures."""

from onelabel.data.base import Dataset, Draw, FeatureDataset, Splits, split_rows
from onelabel.data.images import ImageError, read_image, square_image
from onelabel.data.load import default_root, list_datasets, load_dataset
from onelabel.data.report import DataError, Problem, Report
from onelabel.data.sources import ArraySource, FileSource, ImageSource

__all__ = [
    "ArraySource",
    "DataError",
    "Dataset",
    "Draw",
    "FeatureDataset",
    "FileSource",
    "ImageError",
    "ImageSource",
    "Problem",
    "Report",
    "Splits",
    "default_root",
    "list_datasets",
    "load_dataset",
    "read_image",
    "split_rows",
    "square_image",
]
