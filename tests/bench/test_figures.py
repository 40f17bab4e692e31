"""The page's figures are those of the committed results, and the same runs give the same files."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_figures_are_of_the_committed_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    source = ROOT / "docs" / "generate" / "bench_figures.py"
    if not source.is_file():
        pytest.skip("docs/ is not here: an installed package has no page")
    spec = importlib.util.spec_from_file_location("bench_figures", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    drawn = {file.name for file in module.draw(ROOT / "docs" / "results" / "bench", tmp_path)}
    there = {file.name for file in (ROOT / "docs" / "figures").glob("bench-*.svg")}
    assert drawn == there, "run docs/generate/bench_figures.py"
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert {name for name in drawn if f"](figures/{name})" in text} == drawn, "run onelabel bench docs"
