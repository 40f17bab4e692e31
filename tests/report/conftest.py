"""Runs and results of digits-scenes, made once; a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def run_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small run per method."""
    import torch
    from material import TINY, make_runs

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONELABEL_QUIET", "1")
        made = make_runs(tmp_path_factory.mktemp("runs"), TINY)
    torch.set_num_threads(threads)
    return made


@pytest.fixture(scope="session")
def runs(run_folders: dict[str, Path]) -> list[Any]:
    """The same as the report reads them: an, em, gr, role, bce."""
    from onelabel.report.runs import read_runs

    return read_runs(list(run_folders.values()))


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with real sweeps of probes."""
    from material import TINY, feature_splits, make_results

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONELABEL_QUIET", "1")
        names = ("em.alpha", "gr.mu", "role.k", "images", "missing")
        return make_results(tmp_path_factory.mktemp("results"), feature_splits(TINY), names)
