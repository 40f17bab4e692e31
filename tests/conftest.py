"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The measuring data beside the checkout; tests that ask for it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data is not here")
    return SHARED
