"""The README's Python blocks run as they stand, one after another."""

from __future__ import annotations

import re
from pathlib import Path

import onelabel

README = Path(__file__).resolve().parents[1] / "README.md"


def test_python_blocks_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    assert len(blocks) >= 3
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), scope)
    assert scope["probabilities"].shape == (300, 5)  # type: ignore[attr-defined]


def test_the_number_of_methods_is_the_one_told() -> None:
    told = re.search(r"lists all (\d+)", README.read_text(encoding="utf-8"))
    assert told is not None
    assert int(told.group(1)) == len(onelabel.list_methods())
