"""Recovery: give the missing labels back. Modules are imported when touched: the ONNX predictor needs no torch."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "ArrayScores": "folds",
    "AuditEstimate": "estimate",
    "AuditRows": "completion",
    "CrossFit": "folds",
    "OnnxPredictor": "onnx_predictor",
    "Recovered": "completion",
    "RecoveredFile": "table",
    "crossfit": "folds",
    "estimate_audit": "estimate",
    "export_recovered": "export",
    "export_run": "deploy",
    "fit_correction": "correction",
    "label_errors": "errors",
    "near_duplicates": "duplicates",
    "plan_audit": "audit",
    "predict": "prediction",
    "read_answers": "audit",
    "recover": "completion",
}
_BELOW = {"Calibration": "onelabel.losses.calibrate", "fit_calibration": "onelabel.losses.calibrate"}
_WHERE = {name: f"onelabel.recovery.{module}" for name, module in _NAMES.items()} | _BELOW
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
