"""onelabel: one label per image in, every label out.

    criterion = onelabel.method("em", alpha=0.2)
    loss = criterion(logits, observed)          # logits B×L, observed B×L in {+1, 0 unknown, −1}
"""

from onelabel import losses, methods, metrics
from onelabel.contract import Method, list_methods, method, method_info
from onelabel.labels import Labels

__version__ = "0.1.0"
__all__ = [
    "Labels",
    "Method",
    "list_methods",
    "losses",
    "method",
    "method_info",
    "methods",
    "metrics",
]
