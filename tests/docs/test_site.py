"""The site builds without a warning and without a network, holds every method and public name, and shows well."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import catalogue
import notebooks
import pytest

import onelabel
from onelabel import data, labels, losses, metrics, models, probes, recovery, review, training

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (data, labels, losses, metrics, models, probes, recovery, review, training)
SHOWN = (
    "index.html",
    "architecture.html",
    "catalogue/index.html",
    "catalogue/gr.html",
    "tutorials/own-pictures.html",
    "how-to/recover-audit-review.html",
    "api/labels.html",
)
pytestmark = pytest.mark.slow


def test_every_method_has_its_lines() -> None:
    said = catalogue.notes()
    lacking = sorted(set(onelabel.list_methods()) - set(said))
    assert not lacking, f"docs/generate/methods.toml says nothing of {lacking}: formula, use and avoid"
    for name, note in said.items():
        assert note["use"], name
        assert note["avoid"], name
        assert ("whole" in note) != ("positive" in note and "unknown" in note), name
        assert "<math" in catalogue.formula(note)


def test_percent_scripts_become_pages() -> None:
    found = notebooks.cells("# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1  # %% is no cell here\n")
    assert found == [("markdown", "# Title\n\nText."), ("python", "x = 1  # %% is no cell here")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; MkDocs itself stops at warnings, and a network would be refused."""
    target = tmp_path_factory.mktemp("site")
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return target


class Assets(HTMLParser):
    """What a page loads, and where it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.loads += filter(None, [given.get("src")])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads += filter(None, [given.get("href")])
        if tag == "a":
            self.links += filter(None, [given.get("href")])


def test_pages_load_and_link_nothing_that_is_not_there(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 60
    for page in pages:
        found = Assets()
        found.feed(page.read_text(encoding="utf-8"))
        outside = [url for url in found.loads if re.match(r"(https?:)?//", url)]
        assert not outside, (page, outside)
        for url in [*found.loads, *found.links]:
            path = url.split("#")[0].split("?")[0]
            if path and not re.match(r"[a-z]+:", path):
                assert (page.parent / path).exists(), (page, url)


def test_every_method_and_every_public_name_has_its_place(site: Path) -> None:
    for name in onelabel.list_methods():
        text = (site / "catalogue" / f"{name}.html").read_text(encoding="utf-8")
        assert "<math" in text, name
        assert "When to use it" in text, name
    api = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    ids = set(re.findall(r'id="([\w.]+)"', api))
    lacking = []
    for room in ROOMS:
        for name in room.__all__:
            value = getattr(room, name)
            if hasattr(value, "__qualname__"):  # classes and functions; constants speak for themselves
                where = {f"{room.__name__}.{name}", f"{value.__module__}.{value.__qualname__}"}
                lacking += [] if where & ids else [f"{room.__name__}.{name}"]
    assert not lacking, f"on no page of the API: {lacking}"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("width", [1440, 390])
def test_pages_show_well(address: str, browser: Any, width: int, tmp_path: Path) -> None:
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark")
    page = context.new_page()
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # going to the next page breaks off what the last one was still fetching
    page.on("requestfailed", lambda r: complaints.append(r.url) if r.failure != "net::ERR_ABORTED" else None)
    page.on("request", lambda request: None if request.url.startswith(address) else complaints.append(request.url))
    page.on("response", lambda answer: complaints.append(f"{answer.status} {answer.url}") if answer.status > 399 else 0)
    shots = Path(os.environ.get("ONELABEL_SHOTS", tmp_path))
    for name in SHOWN:
        page.goto(f"{address}/{name}", wait_until="load")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} px wider than {width}"
        page.screenshot(path=str(shots / f"{name.replace('/', '-')}-{width}.png"))
    page.goto(f"{address}/catalogue/gr.html", wait_until="load")
    boxes = page.evaluate(
        "[...document.querySelectorAll('math, figure.curve svg')].map(e => e.getBoundingClientRect().height)"
    )
    assert len(boxes) >= 5
    assert min(boxes) > 8  # drawn, not just there
    context.close()
    assert not complaints, complaints
