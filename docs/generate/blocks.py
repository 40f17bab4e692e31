"""Run a page's code blocks in order, and compare what they print with what the page says they print.

    python docs/generate/blocks.py docs/tutorials/text.md            # run, compare
    python docs/generate/blocks.py --write docs/tutorials/text.md    # put the printed text into the page instead

``--verbose`` shows what each block prints and how long it takes.

Fenced blocks marked ``python`` share one namespace; those marked ``sh`` hold ``onelabel`` commands, run in this
process. A ``text`` block right after one of them is what it prints: numbers may differ by a tenth (or 0.05), ``…``
stands for anything. A ``console`` block is rewritten like it but not compared: long tables, and picks that a rounding
may turn. ``<!-- run`` … ``-->`` holds Python that readers do not see: files a page takes for granted, checks of what
its sentences claim. ``<!-- not run: reason -->`` before a block leaves it out.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"(?P<skip><!-- not run: (?P<reason>[^>]+?) -->\n+)?"
    r"(?:^```(?P<kind>python|sh)\n(?P<code>.*?)^```$|^<!-- run\n(?P<hidden>.*?)^-->$)"
    r"(?P<after>\n+```(?P<shown>text|console)\n(?P<expected>.*?)^```$)?",
    re.M | re.S,
)
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")


@dataclass(frozen=True)
class Block:
    """One block of code, and what it is said to print."""

    kind: str  #: python, sh or hidden
    code: str
    line: int
    reason: str | None  #: why it is not run
    expected: str | None
    compared: bool  #: whether printing something else is an error
    span: tuple[int, int]  #: of the expected text in the page


def parse(text: str) -> list[Block]:
    """The blocks of a page, in order."""
    found = []
    for match in FENCE.finditer(text):
        kind = match["kind"] or "hidden"
        code = match["code"] if match["kind"] else match["hidden"]
        line = text.count("\n", 0, match.start("code") if match["kind"] else match.start("hidden")) + 1
        found.append(
            Block(
                kind, code, line, match["reason"], match["expected"], match["shown"] == "text", match.span("expected")
            )
        )
    return found


def commands(code: str) -> Iterator[list[str]]:
    """The command lines of a shell block, without prompts and remarks."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def execute(block: Block, scope: dict[str, Any], page: str) -> str:
    """Run a block; what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if block.kind == "sh":
            from onelabel.cli import main

            for words in commands(block.code):
                if words[0] != "onelabel":
                    raise ValueError(f"{page}:{block.line}: {words[0]!r} is no onelabel command; mark it 'not run'")
                try:
                    main(words[1:])
                except SystemExit as end:
                    if end.code:
                        raise RuntimeError(f"{page}:{block.line}: {shlex.join(words)} ended with {end.code}") from None
        else:
            code = "\n" * (block.line - 1) + block.code  # so that errors name the page's line
            exec(compile(code, page, "exec"), scope)
    return out.getvalue()


def differs(expected: str, printed: str) -> str:
    """Why what was printed is not what was expected, or nothing."""
    pattern, numbers = "", []
    for i, piece in enumerate(re.split(r"(…|\s+)", expected.strip())):
        if i % 2:
            pattern += ".*?" if piece == "…" else r"\s+"
            continue
        at = 0
        for number in NUMBER.finditer(piece):
            pattern += re.escape(piece[at : number.start()]) + f"({NUMBER.pattern})"
            numbers.append(number.group())
            at = number.end()
        pattern += re.escape(piece[at:])
    match = re.fullmatch(pattern, printed.strip(), re.S)
    if match is None:
        return f"printed\n{printed}\nexpected\n{expected}"
    for want, got in zip(map(_value, numbers), map(_value, match.groups()), strict=True):
        if abs(want - got) > max(0.1 * abs(want), 0.05):
            return f"printed {got:g}, expected about {want:g}, in\n{printed}"
    return ""


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))


def run_page(path: Path, *, write: bool = False, verbose: bool = False) -> list[str]:
    """Run a page in the current folder; what did not come out as it says."""
    text = path.read_text(encoding="utf-8")
    scope: dict[str, Any] = {"__name__": "__page__"}
    wrong, edits = [], []
    for block in parse(text):
        if block.reason is not None:
            continue
        start = time.perf_counter()
        printed = execute(block, scope, str(path))
        if verbose:
            print(f"--- line {block.line}, {time.perf_counter() - start:.1f} s\n{printed}")
        if block.expected is None or (write and "…" in block.expected.strip().removeprefix("…")):
            continue
        if write:
            edits.append((block.span, printed.rstrip() + "\n"))
        elif block.compared and (why := differs(block.expected, printed)):
            wrong.append(f"{path}:{block.line}: {why}")
    for (start, end), printed in reversed(edits):
        text = text[:start] + printed + text[end:]
    if edits:
        path.write_text(text, encoding="utf-8")
    return wrong


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if not word.startswith("--")]
    os.environ.setdefault("ONELABEL_QUIET", "1")
    failed = False
    for name in asked:
        start, here = time.perf_counter(), Path.cwd()
        target = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ONELABEL_CACHE"] = str(Path(folder) / ".cache")
            os.chdir(folder)
            try:
                for line in run_page(target, write="--write" in sys.argv, verbose="--verbose" in sys.argv):
                    failed = True
                    print(line)
            finally:
                os.chdir(here)
        print(f"{name}: {time.perf_counter() - start:.1f} s")
    sys.exit(failed)
