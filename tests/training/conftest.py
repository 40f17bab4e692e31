"""Child processes that start at once: a server process has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def processes() -> Any:
    """A multiprocessing context whose children begin with torch and the training room imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["onelabel.training", "onelabel.data", "lightning.fabric", "sklearn.datasets"])
    first = context.Process(target=os.getpid)  # starts the server: what follows can be timed
    first.start()
    first.join()
    return context
