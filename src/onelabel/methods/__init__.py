"""Methods with memory or timing, and the registry of all methods."""

import onelabel.losses  # noqa: F401  (registers the methods without memory)
from onelabel.contract import Hyper, Method, MethodInfo, Needs, list_methods, method, method_info
from onelabel.methods.large_loss import LargeLoss
from onelabel.methods.memory import Remembering
from onelabel.methods.optim import RowAdam
from onelabel.methods.pseudo_labels import EMAPL
from onelabel.methods.role import ROLE

__all__ = [
    "EMAPL",
    "ROLE",
    "Hyper",
    "LargeLoss",
    "Method",
    "MethodInfo",
    "Needs",
    "Remembering",
    "RowAdam",
    "list_methods",
    "method",
    "method_info",
]
