"""Methods with memory or timing, and the registry of all methods."""

import onelabel.losses  # noqa: F401  (registers the methods without memory)
from onelabel.contract import Hyper, Method, MethodInfo, Needs, list_methods, method, method_info

__all__ = ["Hyper", "Method", "MethodInfo", "Needs", "list_methods", "method", "method_info"]
