"""The README's Python blocks run as they stand, its commands exist, its table is that of docs/benchmarks.md."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import scipy.stats

from onelabel.bench.results import Row
from onelabel.cli import COMMANDS, LazyGroup

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert len(blocks) >= 3
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)
    assert scope["probabilities"].shape == (300, 5)  # type: ignore[attr-defined]


def test_its_commands_exist() -> None:
    """Every `onelabel …` line parses: the command is there and has the options it is given."""
    blocks = re.findall(r"```\n(.*?)```", README, flags=re.S)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines() if line.startswith("onelabel ")]
    assert len(lines) >= 10
    group = LazyGroup(name="onelabel")
    for line in lines:
        words = shlex.split(line)[1:]
        assert words[0] in COMMANDS, line
        command = group.get_command(None, words[0])
        inner = getattr(command, "commands", {})
        if inner:
            command = inner.get(words[1], inner.get("run"))
        known = {name for parameter in command.params for name in parameter.opts}
        given = {word for word in words if word.startswith("--")}
        assert given <= known, f"{line}: no {given - known}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    assert set(re.findall(r"\bmake (\w+)", README)) - {"demo", "test", "docs"} == set()
    assert {"demo", "test", "check", "docs", "coverage"} <= targets


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert len(links) > 8
    missing = [link for link in links if not (ROOT / link).exists()]
    assert not missing


def generator(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "generate" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_results_are_those_of_the_benchmarks_page() -> None:
    page = ROOT / "docs" / "benchmarks.md"
    if not page.is_file():
        pytest.skip("docs/benchmarks.md is not here: onelabel bench docs writes it")
    wanted = generator("readme_results").fill(README, page.read_text(encoding="utf-8"))
    assert wanted == README, "run .venv/bin/python docs/generate/readme_results.py"
    assert "| fine-tuned | gr |" in wanted
    assert "| fine-tuned | em (after linear initialisation, then a student) |" in wanted  # not roll call's alone


def test_roll_calls_table_is_that_of_the_committed_runs() -> None:
    module = generator("roll_call")
    rows = module.tables.find(ROOT / "docs" / "results" / "bench").rows
    texts = [page.read_text(encoding="utf-8") for page in module.PAGES]
    for text in texts:
        assert module.fill(text, rows) == text, "run .venv/bin/python docs/generate/roll_call.py"
    for name in (
        "headline",
        "paired",
        "fine-tuned",
        "all-linear",
        "all-fine-tuned",
        "all-scenes",
        "photographs",
        "pull",
        "elsewhere",
        "naming",
    ):  # one page each
        assert sum(module.MARKS[0].format(name) in text for text in texts) == 1
    assert "| linear, five even draws |" in texts[0]
    assert "| five even draws | 15 |" in texts[1]
    drawn = module.curves(rows).axes  # whose lines are the same runs
    assert [len(ax.get_legend().get_texts()) for ax in drawn] == [2, 1, 1, 4]


def test_a_draws_seeds_are_one_unit_of_a_test() -> None:
    module = generator("roll_call")

    def cell(*scores: tuple[str, int, float]) -> Any:
        rows = [Row("", "voc2012", "em", draw=draw, seed=seed, test_map=score) for draw, seed, score in scores]
        return module.Cell(tuple(rows))

    ours = cell(("a", 0, 3.0), ("a", 1, 3.2), ("b", 0, 5.0), ("b", 1, 5.2), ("c", 0, 1.0), ("c", 1, 1.4))
    theirs = cell(("a", 0, 2.0), ("a", 1, 2.2), ("b", 0, 3.0), ("b", 1, 3.4), ("c", 0, 0.0), ("c", 1, 0.0))
    (found,) = module.ahead(ours, [theirs], "test_map")
    assert found.gap == pytest.approx(8.2 / 6)
    assert found.p == pytest.approx(scipy.stats.ttest_rel([3.1, 5.1, 1.2], [2.1, 3.2, 0.0]).pvalue)
    one, other = (cell(*[("a", s, value(s)) for s in range(3)]) for value in (lambda s: 1.0 + s * s, lambda s: 0.5))
    (alone,) = module.ahead(one, [other], "test_map")
    assert alone.p == pytest.approx(scipy.stats.ttest_1samp([0.5, 1.5, 4.5], 0).pvalue)


def test_a_spread_is_pooled_over_methods_and_counts_each_draw_once() -> None:
    made = generator("roll_call").Spread.pooled([[[1.0, 2.0, 3.0], [5.0, 5.0, 8.0], [7.0]], [[0.0, 1.0, 2.0]]])
    assert made.deviation == pytest.approx(((2 + 6 + 2) / 6) ** 0.5)  # the lone run says nothing of it
    assert made.freedom == 4
    assert made.p([2.0]) == pytest.approx(2 * scipy.stats.t.sf(2.0 / made.deviation, 4))
    assert made.p([2.0, 2.0]) < made.p([2.0]) < made.p([1.0]) < 1


def test_what_criteria_lose_is_what_was_measured() -> None:
    module = generator("selection_table")
    text = module.PAGE.read_text(encoding="utf-8")
    assert module.fill(text) == text, "run .venv/bin/python docs/generate/selection_table.py"
    assert text.count(f"| **{module.TAKEN}** |") == 1


def test_the_demos_numbers_are_those_of_its_runs() -> None:
    module = generator("demo_table")
    runs = json.loads(module.STORE.read_text(encoding="utf-8"))
    for path, wanted in module.pages(runs).items():
        assert wanted == path.read_text(encoding="utf-8"), "run .venv/bin/python docs/generate/demo_table.py"
    for run in runs:  # what the papers claim
        for kind in ("probes", "networks"):
            found = run[kind]
            assert found["an"] + 1 < min(found["em"], found["gr"]) < found["full labels"]
            assert found["full labels"] - found["gr"] < found["gr"] - found["an"]
