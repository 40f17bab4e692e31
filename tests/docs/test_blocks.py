"""Every code block of the documentation runs, in order, and prints what its page says; notebooks run too."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import blocks
import pytest
import torch

import onelabel.methods  # noqa: F401  (registers every method, before a page adds one)
from onelabel import contract

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    str(page.relative_to(DOCS)): page
    for page in sorted(DOCS.rglob("*.md"))
    if any(block.reason is None for block in blocks.parse(page.read_text(encoding="utf-8")))
}
#: Blocks that cannot run: they install, listen, or need several machines.
NOT_RUN = 10


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own; nothing shown, cached or registered remains."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONELABEL_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("ONELABEL_DEBUG", raising=False)
    known, threads = dict(contract._REGISTRY), torch.get_num_threads()
    torch.set_num_threads(1)  # sums over two threads round otherwise, and a small network's best epoch is another
    yield
    torch.set_num_threads(threads)
    contract._REGISTRY.clear()
    contract._REGISTRY.update(known)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PAGES)
def test_page(name: str) -> None:
    wrong = blocks.run_page(PAGES[name])
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("script", sorted((DOCS / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_notebook(script: Path) -> None:
    runpy.run_path(str(script))


def test_tutorials_and_guides_say_what_they_print() -> None:
    for folder in ("tutorials", "how-to"):
        pages = sorted((DOCS / folder).glob("*.md"))
        assert len(pages) >= 6
        for page in pages:
            found = blocks.parse(page.read_text(encoding="utf-8"))
            assert found, page
            assert not any(block.expected and block.expected.strip() == "…" for block in found), f"{page}: run --write"


def test_few_blocks_are_left_out() -> None:
    found = [b for page in DOCS.rglob("*.md") for b in blocks.parse(page.read_text(encoding="utf-8")) if b.reason]
    assert len(found) <= NOT_RUN, [(b.line, b.reason) for b in found]


@pytest.mark.parametrize(
    ("expected", "printed", "equal"),
    [
        ("mAP 82.0", "mAP 81.3\n", True),
        ("mAP 82.0", "mAP 71.3", False),
        ("mAP 82.0", "F1 82.0", False),
        ("k = 0.12 (0.10–0.20)", "k = 0.14 (0.11–0.24)", True),
        ("first … last 3", "first\nanything\nlast 3", True),
        ("1,200 rows", "1,210   rows", True),
        ("a −1.5", "a 1.5", False),
    ],
)
def test_what_is_printed_is_compared(expected: str, printed: str, equal: bool) -> None:
    assert (blocks.differs(expected, printed) == "") is equal


def test_a_wrong_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n\n```sh\nls\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page.md:10: 'ls' is no onelabel command"):
        blocks.run_page(page)
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    assert "printed 2, expected about 3" in blocks.run_page(page)[0]
    blocks.run_page(page, write=True)
    assert blocks.run_page(page) == []
    page.write_text("```python\nx = 1\n1 / 0\n```\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as caught:
        blocks.run_page(page)
    assert caught.traceback[-1].lineno + 1 == 3  # the page's line
