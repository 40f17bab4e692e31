"""Every figure of the papers, drawn from methods, runs or results; each function returns a matplotlib Figure."""

from onelabel.report.figures.classes import class_counts, class_improvement, densities, unknown_shares, wasserstein
from onelabel.report.figures.entries import curves, entry_curve, has_curve
from onelabel.report.figures.epochs import (
    apl_variants,
    heatmap,
    learning_curves,
    logits_by_group,
    positive_loss,
    scores_by_group,
    wasserstein_epochs,
)
from onelabel.report.figures.gallery import gallery
from onelabel.report.figures.outcomes import false_negative_share, predictive_values
from onelabel.report.figures.registry import FIGURES, Entry, entry
from onelabel.report.figures.surface import landscape
from onelabel.report.figures.sweeps import k_sensitivity, label_budget, missing_fraction, sweep

__all__ = [
    "FIGURES",
    "Entry",
    "apl_variants",
    "class_counts",
    "class_improvement",
    "curves",
    "densities",
    "entry",
    "entry_curve",
    "false_negative_share",
    "gallery",
    "has_curve",
    "heatmap",
    "k_sensitivity",
    "label_budget",
    "landscape",
    "learning_curves",
    "logits_by_group",
    "missing_fraction",
    "positive_loss",
    "predictive_values",
    "scores_by_group",
    "sweep",
    "unknown_shares",
    "wasserstein",
    "wasserstein_epochs",
]
