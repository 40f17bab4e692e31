"""Methods with memory or timing, and the registry of all methods."""

import onelabel.losses  # noqa: F401  (registers the methods without memory)
from onelabel.contract import Hyper, Method, MethodInfo, Needs, list_methods, method, method_info
from onelabel.methods.check import check_method
from onelabel.methods.expected_negative import ExpectedNegative
from onelabel.methods.large_loss import LargeLoss
from onelabel.methods.memory import Remembering
from onelabel.methods.mime import MIME, BottleneckHead
from onelabel.methods.optim import RowAdam
from onelabel.methods.pseudo_labels import EMAPL
from onelabel.methods.role import ROLE
from onelabel.methods.smile import SMILE

__all__ = [
    "EMAPL",
    "MIME",
    "ROLE",
    "SMILE",
    "BottleneckHead",
    "ExpectedNegative",
    "Hyper",
    "LargeLoss",
    "Method",
    "MethodInfo",
    "Needs",
    "Remembering",
    "RowAdam",
    "check_method",
    "list_methods",
    "method",
    "method_info",
]
