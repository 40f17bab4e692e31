"""A page as a reader and as a browser see it."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Reader(HTMLParser):
    """Tags and texts of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def fits(page: Any) -> None:
    """Nothing sticks out of the window, no text out of its box or its figure, no picture is broken."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert page.evaluate(broken) == 0
    out = """[...document.querySelectorAll('body *:not(svg *)')].filter(e => {
        if (e.closest('.scroll, .plot, pre') || !e.getClientRects().length) return false;
        const box = e.getBoundingClientRect();
        return box.right > innerWidth + 1 || box.left < -1;
    }).map(e => e.outerHTML.slice(0, 120))"""
    assert not (found := page.evaluate(out)), found
    boxes = """[...document.querySelectorAll('body *:not(svg *)')].filter(e => {
        const style = getComputedStyle(e);
        return style.overflowX === 'visible' && style.display !== 'inline' && !e.closest('.scroll, .plot, pre')
            && e.clientWidth && e.scrollWidth > e.clientWidth + 1;
    }).map(e => e.outerHTML.slice(0, 120))"""
    assert not (found := page.evaluate(boxes)), found
    texts = """[...document.querySelectorAll('figure svg')].flatMap(svg => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].filter(text => {
            const own = text.getBoundingClientRect();
            return own.width && (own.left < box.left - 2 || own.right > box.right + 2 || own.bottom > box.bottom + 2);
        }).map(text => text.textContent);
    })"""
    assert not (found := page.evaluate(texts)), found


def check_in_a_browser(page: Path, visit: Callable[..., Any], width: int, scheme: str) -> None:
    """No complaint, nothing sticking out, sortable, dark where asked, printable."""
    shown, complaints = visit(page, width, color_scheme=scheme)
    fits(shown)
    paper = shown.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    column = "[...document.querySelectorAll('#class-table tbody tr')].map(r => Number(r.cells[1].dataset.value))"
    shown.click("#class-table th:nth-child(2) button")
    falling = shown.evaluate(column)
    assert falling == sorted(falling, reverse=True)
    shown.click("#class-table th:nth-child(2) button")
    assert shown.evaluate(column) == sorted(falling)
    shown.emulate_media(media="print")
    assert shown.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert not complaints, complaints
