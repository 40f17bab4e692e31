"""Review: a page where a person confirms or rejects suggested labels, and the answers as observed labels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onelabel.review.app import create_app
    from onelabel.review.export import Answers, export_file, export_labels, import_answers, load_answers
    from onelabel.review.settings import Settings
    from onelabel.review.source import read_audit, read_recovered, write_audit, write_recovered

_NAMES = {
    "Answers": "export",
    "Settings": "settings",
    "create_app": "app",
    "export_file": "export",
    "export_labels": "export",
    "import_answers": "export",
    "load_answers": "export",
    "read_audit": "source",
    "read_recovered": "source",
    "write_audit": "source",
    "write_recovered": "source",
}
__all__ = [
    "Answers",
    "Settings",
    "create_app",
    "export_file",
    "export_labels",
    "import_answers",
    "load_answers",
    "read_audit",
    "read_recovered",
    "write_audit",
    "write_recovered",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'onelabel.review' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"onelabel.review.{_NAMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("onelabel"):
            raise
        raise ImportError(f"review needs {error.name}: pip install 'onelabel[review]'") from error
