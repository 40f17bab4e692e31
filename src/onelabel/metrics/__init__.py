"""Average precision, F1, ranking, label recovery, distinguishability, calibration.

Every function takes NumPy arrays or torch tensors, `scores` (N, L) or a stack of models (..., N, L) and `true`
0/1, and gives the same kind back: a NumPy array or a float, or a tensor on the scores' device that the host has
not waited for. Values (NaN, labels other than 0 and 1) are checked on the CPU only, shapes everywhere.
"""

from onelabel.metrics._arrays import mask_from
from onelabel.metrics.calibration import Reliability, brier_score, calibration_error, reliability
from onelabel.metrics.distinguishability import FalseNegativeShare, false_negative_share, wasserstein
from onelabel.metrics.f1 import PrecisionRecall, best_thresholds, f1_score, precision_recall
from onelabel.metrics.hamming import cost_sensitive_hamming_loss, hamming_loss
from onelabel.metrics.precision import average_precision, mean_average_precision
from onelabel.metrics.ranking import (
    coverage_error,
    label_ranking_average_precision,
    one_error,
    precision_at_k,
    ranking_loss,
    recall_at_k,
)
from onelabel.metrics.recovery import PredictiveValues, label_recovery_ap, ppv_npv

__all__ = [
    "FalseNegativeShare",
    "PrecisionRecall",
    "PredictiveValues",
    "Reliability",
    "average_precision",
    "best_thresholds",
    "brier_score",
    "calibration_error",
    "cost_sensitive_hamming_loss",
    "coverage_error",
    "f1_score",
    "false_negative_share",
    "hamming_loss",
    "label_ranking_average_precision",
    "label_recovery_ap",
    "mask_from",
    "mean_average_precision",
    "one_error",
    "ppv_npv",
    "precision_at_k",
    "precision_recall",
    "ranking_loss",
    "recall_at_k",
    "reliability",
    "wasserstein",
]
