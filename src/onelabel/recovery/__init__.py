"""Recovery: give the missing labels back. Modules are imported when touched: the ONNX predictor needs no torch."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "ArrayScores": "folds",
    "AuditEstimate": "estimate",
    "AuditRows": "completion",
    "Calibration": "calibrate",
    "CrossFit": "folds",
    "OnnxPredictor": "onnx_predictor",
    "Recovered": "completion",
    "RecoveredFile": "table",
    "crossfit": "folds",
    "estimate_audit": "estimate",
    "export_recovered": "export",
    "export_run": "deploy",
    "fit_calibration": "calibrate",
    "fit_correction": "correction",
    "label_errors": "errors",
    "near_duplicates": "duplicates",
    "plan_audit": "audit",
    "predict": "prediction",
    "read_answers": "audit",
    "recover": "completion",
}
__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"onelabel.recovery.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
