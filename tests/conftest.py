"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if os.environ.get("PYTEST_XDIST_WORKER"):  # as many workers as cores: one thread each
    os.environ.setdefault("OMP_NUM_THREADS", "1")

CHROMIUM = "/usr/bin/chromium"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def speaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo and some tests' workers silence their process; the next test starts speaking again."""
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests of a process."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left in the home of whoever runs the tests, nor found there."""
    monkeypatch.setenv("ONELABEL_CACHE", str(cache_folder))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The measuring data beside the checkout; tests that ask for it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data is not here")
    return SHARED


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; skips where it is not installed."""
    if not Path(CHROMIUM).exists():
        pytest.skip("Chromium is not installed; run tests/review/setup.sh")
    api = pytest.importorskip("playwright.sync_api")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    quiet += ["--disable-component-update", "--disable-sync"]
    with api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, headless=True, args=quiet)
        yield chromium
        chromium.close()
