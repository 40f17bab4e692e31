"""Runs and results of digits-scenes, made once; a browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def run_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small run per method."""
    import torch
    from material import TINY, make_runs

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONELABEL_QUIET", "1")
        made = make_runs(tmp_path_factory.mktemp("runs"), TINY)
    torch.set_num_threads(threads)
    return made


@pytest.fixture(scope="session")
def runs(run_folders: dict[str, Path]) -> list[Any]:
    """The same as the report reads them: an, em, gr, role, bce."""
    from onelabel.report.runs import read_runs

    return read_runs(list(run_folders.values()))


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with real sweeps of probes."""
    from material import TINY, feature_splits, make_results

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONELABEL_QUIET", "1")
        names = ("em.alpha", "gr.mu", "role.k", "images", "missing")
        return make_results(tmp_path_factory.mktemp("results"), feature_splits(TINY), names)


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Open a page at a width; whatever it complains of or fails to load is returned with it."""
    contexts = []

    def open_(path: Path, width: int, **options: Any) -> tuple[Any, list[str]]:
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        contexts.append(context)
        page, complaints = context.new_page(), []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("requestfailed", lambda request: complaints.append(request.url[:80]))
        page.on(
            "request", lambda r: complaints.append(r.url[:80]) if not r.url.startswith(("file:", "data:")) else None
        )
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page, complaints

    yield open_
    for context in contexts:
        context.close()
