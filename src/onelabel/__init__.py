"""onelabel: one label per image in, every label out.

    criterion = onelabel.method("em", alpha=0.2)
    loss = criterion(logits, observed)          # logits B×L, observed B×L in {+1, 0 unknown, −1}

The rooms are imported when first touched, so that ``onelabel --help`` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onelabel import data, labels, losses, methods, metrics, models, probes, training
    from onelabel.contract import Method
    from onelabel.labels import Labels, drop_labels, estimate_k
    from onelabel.methods import check_method, list_methods, method, method_info

__version__ = "0.1.0"

_ROOMS = ("data", "labels", "losses", "methods", "metrics", "models", "probes", "training")
_NAMES = {
    "Labels": "labels",
    "drop_labels": "labels",
    "estimate_k": "labels",
    "Method": "methods",
    "check_method": "methods",
    "list_methods": "methods",
    "method": "methods",
    "method_info": "methods",
}
__all__ = [
    "Labels",
    "Method",
    "check_method",
    "data",
    "drop_labels",
    "estimate_k",
    "labels",
    "list_methods",
    "losses",
    "method",
    "method_info",
    "methods",
    "metrics",
    "models",
    "probes",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"onelabel.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"onelabel.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'onelabel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
