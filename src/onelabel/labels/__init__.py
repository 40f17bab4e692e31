"""Observed labels: the ternary matrix, its files, other encodings, and dropping labels to simulate it."""

from onelabel.labels.convert import (
    SoftTargets,
    from_minus_one_unknown,
    from_soft,
    from_zero_one,
    to_minus_one_unknown,
    to_soft,
    to_zero_one,
)
from onelabel.labels.device import DeviceLabels
from onelabel.labels.drop import drop_labels
from onelabel.labels.k import KEstimate, estimate_k, k_interval
from onelabel.labels.matrix import ClassCounts, Labels
from onelabel.labels.summary import Summary

__all__ = [
    "ClassCounts",
    "DeviceLabels",
    "KEstimate",
    "Labels",
    "SoftTargets",
    "Summary",
    "drop_labels",
    "estimate_k",
    "from_minus_one_unknown",
    "from_soft",
    "from_zero_one",
    "k_interval",
    "to_minus_one_unknown",
    "to_soft",
    "to_zero_one",
]
