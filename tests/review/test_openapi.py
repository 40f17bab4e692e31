"""Schemathesis against the server's own description: nothing undocumented, nothing accepted that should not be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_schemathesis_finds_nothing(serve: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    server = serve(str(tmp_path / "x.db"), "--retrain", f"{sys.executable} -c 'print(1)'")
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    options = ["--header", "X-Onelabel-Client: schemathesis", "--max-examples", "12", "--seed", "1", "--workers", "1"]
    done = subprocess.run([*command, *options, "--no-color"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "18 selected / 18 total" in done.stdout
