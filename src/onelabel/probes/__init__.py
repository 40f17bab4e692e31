"""Probes: linear classifiers on frozen features, hundreds trained at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onelabel.probes.auto import Choice, choose
from onelabel.probes.criteria import CRITERIA, agreement, audit, lee_liu, list_criteria
from onelabel.probes.engine import fit_probes
from onelabel.probes.prior import PriorEstimate, estimate_priors
from onelabel.probes.results import ProbeResults
from onelabel.probes.spec import ProbeSpec, grid

if TYPE_CHECKING:
    from onelabel.probes.estimator import OneLabelClassifier

__all__ = [
    "CRITERIA",
    "Choice",
    "OneLabelClassifier",
    "PriorEstimate",
    "ProbeResults",
    "ProbeSpec",
    "agreement",
    "audit",
    "choose",
    "estimate_priors",
    "fit_probes",
    "grid",
    "lee_liu",
    "list_criteria",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is imported only by who asks for the estimator
    if name == "OneLabelClassifier":
        from onelabel.probes.estimator import OneLabelClassifier

        return OneLabelClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
