"""What the bar says of the probes is what the leaderboard says when they have ended."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from onelabel.labels import Labels
from onelabel.probes import ProbeResults, fit_probes, grid


class Bar:
    """A progress bar that keeps what it was told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add_task(self, *_: Any, probes: str, **__: Any) -> int:
        self.probes = probes
        return 0

    def update(self, _: int, *, description: str, **__: Any) -> None:
        self.texts.append(description)

    def start(self) -> None: ...

    stop = start


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[list[str], ProbeResults]:
    """What the bar showed, and the probes of some seeds."""
    bar = Bar()
    monkeypatch.setattr("onelabel.probes.progress.make_bar", lambda *_: bar)
    rng = np.random.default_rng(0)
    X, classes = rng.normal(size=(80, 4)).astype(np.float32), rng.integers(3, size=80)
    seeds, block = request.param
    specs = grid(["an", "em"], lr=[1e-1, 1e-2], batch_size=16, seeds=range(seeds), epochs=4)
    labels = Labels.from_classes(classes[:50], num_classes=3)
    held = (X[50:], np.eye(3, dtype=np.uint8)[classes[50:]])
    return bar.texts, fit_probes(X[:50], labels, specs, validation=held, block=block, device="cpu")


@pytest.mark.parametrize("fitted", [(1, None), (3, None), (3, 1)], indirect=True)  # 1: a probe of a seed at a time
def test_the_bar_ends_with_the_top_of_the_leaderboard(fitted: tuple[list[str], ProbeResults]) -> None:
    texts, results = fitted
    top = results.leaderboard()[0]
    of = f", mean of {len(top.probes)} seeds" if len(top.probes) > 1 else ""
    assert texts[-1] == f"highest clean so far {top.value:.4f}{of}: {top.spec}"
    if of:
        assert results.values.max() > top.value  # a single probe's would be another number
    shown = [float(re.findall(r"so far (\d\.\d+)", text)[0]) for text in texts if text]
    assert shown == sorted(shown)


@pytest.mark.parametrize("fitted", [(3, 1)], indirect=True)
def test_nothing_is_said_before_a_cell_has_all_its_seeds(fitted: tuple[list[str], ProbeResults]) -> None:
    assert fitted[0][0] == ""


@pytest.mark.parametrize(("count", "said"), [(1, "1 probe"), (2, "2 probes")])
def test_the_bar_counts_its_probes(monkeypatch: pytest.MonkeyPatch, count: int, said: str) -> None:
    bar = Bar()
    monkeypatch.setattr("onelabel.probes.progress.make_bar", lambda *_: bar)
    X, labels = np.eye(6, dtype=np.float32), Labels.from_classes([0, 1, 2, 0, 1, 2], num_classes=3)
    specs = grid(["an"], lr=[1e-1], batch_size=4, seeds=range(count), epochs=1)
    fit_probes(X, labels, specs, device="cpu")
    assert bar.probes == said
