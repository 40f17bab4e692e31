"""Average precision, F1, ranking, label recovery, distinguishability, calibration."""

from onelabel.metrics._arrays import mask_from
from onelabel.metrics.precision import average_precision, mean_average_precision

__all__ = ["average_precision", "mask_from", "mean_average_precision"]
