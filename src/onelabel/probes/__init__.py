"""Probes: linear classifiers on frozen features, hundreds trained at once."""

from __future__ import annotations

from onelabel.probes.criteria import CRITERIA, agreement, audit, lee_liu, list_criteria
from onelabel.probes.engine import fit_probes
from onelabel.probes.results import ProbeResults
from onelabel.probes.spec import ProbeSpec, grid

__all__ = [
    "CRITERIA",
    "ProbeResults",
    "ProbeSpec",
    "agreement",
    "audit",
    "fit_probes",
    "grid",
    "lee_liu",
    "list_criteria",
]
