"""The register of figures: what a figure is called, which figures of the papers it redraws, what it is drawn from."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from onelabel.report import style

Takes = Literal["methods", "runs", "results"]


@dataclass(frozen=True)
class Entry:
    """A figure. `takes`: names of methods, run folders, or a folder of benchmark results."""

    name: str
    takes: Takes
    papers: str
    draw: Callable[..., Any]

    @property
    def says(self) -> str:
        """The first line of the function's docstring."""
        return (self.draw.__doc__ or "").strip().splitlines()[0]

    @property
    def options(self) -> dict[str, Any]:
        """Its keyword-only arguments and their defaults."""
        found = inspect.signature(self.draw).parameters.values()
        return {p.name: p.default for p in found if p.kind is p.KEYWORD_ONLY}


FIGURES: dict[str, Entry] = {}


def figure(takes: Takes, papers: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that draws a figure; it is called in the one style."""

    def add(draw: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(draw)
        def styled(*args: Any, **options: Any) -> Any:
            with style.styled():
                return draw(*args, **options)

        name = draw.__name__.replace("_", "-")
        FIGURES[name] = Entry(name, takes, papers, styled)
        return styled

    return add


def entry(name: str) -> Entry:
    """A figure by name; an unknown name is answered with the nearest."""
    import difflib

    if name not in FIGURES:
        near = difflib.get_close_matches(name.replace("_", "-"), FIGURES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"there is no figure {name!r}; {hint}onelabel figure --list shows them all")
    return FIGURES[name]
