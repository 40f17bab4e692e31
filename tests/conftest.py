"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

if os.environ.get("PYTEST_XDIST_WORKER"):  # as many workers as cores: one thread each
    os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def speaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo and some tests' workers silence their process; the next test starts speaking again."""
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The measuring data beside the checkout; tests that ask for it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data is not here")
    return SHARED
