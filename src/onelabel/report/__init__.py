"""The report: figures and one self-contained page about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onelabel.report.page import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    # matplotlib's and the training room's weight only for who asks
    if name == "write_report":
        from onelabel.report.page import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
