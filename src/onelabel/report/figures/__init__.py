"""Every figure of the papers, drawn from methods, runs or results; each function returns a matplotlib Figure."""

from onelabel.report.figures.entries import curves, entry_curve, has_curve
from onelabel.report.figures.registry import FIGURES, Entry, entry

__all__ = ["FIGURES", "Entry", "curves", "entry", "entry_curve", "has_curve"]
