"""Observed labels: the ternary matrix, its files, and dropping labels to simulate it."""

from onelabel.labels.device import DeviceLabels
from onelabel.labels.drop import drop_labels
from onelabel.labels.k import KEstimate, estimate_k, k_interval
from onelabel.labels.matrix import ClassCounts, Labels
from onelabel.labels.summary import Summary

__all__ = ["ClassCounts", "DeviceLabels", "KEstimate", "Labels", "Summary", "drop_labels", "estimate_k", "k_interval"]
