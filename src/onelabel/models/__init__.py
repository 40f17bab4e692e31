"""Backbones from timm, a small CNN, weights from files, and the classifier on top."""

from onelabel.models.backbones import backbone_names, build_backbone, starting_weights
from onelabel.models.classifier import Classifier, build_classifier
from onelabel.models.small import SmallCNN
from onelabel.models.weights import load_weights, read_weights

__all__ = [
    "Classifier",
    "SmallCNN",
    "backbone_names",
    "build_backbone",
    "build_classifier",
    "load_weights",
    "read_weights",
    "starting_weights",
]
