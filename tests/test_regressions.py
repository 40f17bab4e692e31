"""The table of benchmarks: a ratio that fell is flagged, results of another machine are read."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "run_all.py"


@pytest.fixture(scope="module")
def run_all() -> Any:
    spec = importlib.util.spec_from_file_location("run_all", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_all"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def row(ms: float, peer: float, limit: float | None = None, case: str = "an") -> dict[str, Any]:
    of_limit = None if limit is None else limit / ms
    return {"benchmark": "fused.py", "case": case, "ms": ms, "ratio": {"bce": peer / ms}, "of_limit": of_limit}


def test_only_a_ratio_fifteen_percent_lower_is_a_regression(run_all: Any) -> None:
    before = [row(1.0, 3.0, 0.8)]
    assert run_all.regressions([row(1.17, 3.0, 0.8)], before, "cuda") == []
    (peer, limit) = run_all.regressions([row(1.2, 3.0, 0.8)], before, "cuda")
    assert "ratio to bce 2.50, was 3.00" in peer
    assert "share of the limit 0.67, was 0.80" in limit
    # a slower machine is none, nor a faster peer's absence, nor a case that is new
    assert run_all.regressions([row(2.0, 6.0, 1.6)], before, "cuda") == []
    assert run_all.regressions([{**row(9.0, 3.0), "ratio": {}}], before, "cuda") == []
    assert run_all.regressions([row(9.0, 3.0, case="new")], before, "cuda") == []


def test_on_a_cpu_the_limit_is_not_compared(run_all: Any) -> None:
    assert run_all.regressions([row(1.0, 3.0, 0.5)], [row(1.0, 3.0, 0.8)], "cpu") == []


def test_of_two_measurements_the_faster_counts(run_all: Any) -> None:
    assert [r["ms"] for r in run_all.better([row(2.0, 3.0)], [row(1.5, 3.0)])] == [1.5]


def measured(folder: Path, ms: float) -> None:
    rows = [{"case": "an", "ms": ms, "peers": {"bce": 3.0}, "limit_ms": 0.8, "ratio": {"bce": 3 / ms}}]
    content = {"benchmark": "fused", "device": "NVIDIA H200", "torch": "2", "rows": [{**rows[0], "of_limit": 0.8 / ms}]}
    (folder / "fused.json").write_text(json.dumps(content))


def test_results_of_another_machine(tmp_path: Path) -> None:
    """What gpu_speed.py wrote becomes a table and a baseline; a slower run fails, a failed check too."""
    results, out = tmp_path / "results", tmp_path / "out"
    results.mkdir()
    command = [sys.executable, str(SCRIPT), "--results", str(results), "--out", str(out)]

    def run(*more: str) -> tuple[int, str]:
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = run()
    assert code == 1
    assert "holds no results" in said
    measured(results, 1.0)
    assert run("--save-baseline")[0] == 0
    assert (out / "bench-baseline-nvidia-h200.json").exists()
    assert "| fused.py | an | 1.000 | 80% | bce 3.0× |" in (out / "bench-nvidia-h200.md").read_text()
    measured(results, 1.1)
    assert run()[0] == 0
    measured(results, 1.5)
    code, said = run()
    assert code == 1
    assert "Regressions: fused.py an: ratio to bce 2.00, was 3.00" in said
    measured(results, 1.0)
    (results / "gpu_check.json").write_text(json.dumps([{"check": "inputs", "verdict": "FAIL"}]))
    code, said = run()
    assert code == 1
    assert "FAILED: inputs" in said
