"""Real processes of the command line, and a small dataset for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

#: What takes long: `make hostile` runs it, `make test` does not.
only_hostile = pytest.mark.skipif(not os.environ.get("ONELABEL_HOSTILE"), reason="make hostile")
#: Says when everything is imported, so that a signal meets the work and not an import.
READY = (
    "import sys, onelabel.training, onelabel.recovery.command, onelabel.probes.compare, onelabel.cli as cli; "
    "print('ready', flush=True); cli.main(sys.argv[1:])"
)


def features(path: Path, rows: int = 60, width: int = 6) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, width)).astype(np.float32)
    y = (X @ rng.standard_normal((width, 4)) + rng.standard_normal((rows, 4)) > 0.8).astype(np.uint8)
    y[:, 0] |= ~y.any(1)
    held = rows // 5
    names = np.array(["İstanbul", "ılgın", "ß", "猫"])
    np.savez(path, X=X[held:], true=y[held:], X_test=X[:held], true_test=y[:held], class_names=names)
    return path


def environment(**changes: str | None) -> dict[str, str]:
    found = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    for name, value in changes.items():
        found.pop(name, None)
        if value is not None:
            found[name] = value
    return found


def run(*words: str, cwd: Path, timeout: float = 240, before: Any = None, **changes: str | None) -> Any:
    """One command to its end."""
    command = [sys.executable, "-c", "import sys; from onelabel.cli import main; main(sys.argv[1:])", *words]
    return subprocess.run(
        command, cwd=cwd, env=environment(**changes), capture_output=True, timeout=timeout, preexec_fn=before
    )


def interrupted(*words: str, cwd: Path, number: int, when: Any = None, wait: float = 1.0) -> tuple[int, str]:
    """Start a command, send a signal once it works (`when()` is true, or `wait` seconds on); exit code and stderr."""
    with open(cwd / "stderr.txt", "w+b") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", READY, *words],
            cwd=cwd,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == b"ready", errors.seek(0) or errors.read()
            end = time.monotonic() + 120
            while when is not None and not when() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            if when is None:
                time.sleep(wait)
            assert process.poll() is None, "it ended before it could be interrupted"
            process.send_signal(number)
            process.stdout.read()
            code = process.wait(60)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        return code, errors.read().decode()
