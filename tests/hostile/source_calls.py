"""What the source calls, by syntax tree: (file, enclosing function, dotted name, the call)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[2] / "src" / "onelabel"


class Call(NamedTuple):
    """`inside` are the names of the functions that the enclosing `with` statements call."""

    file: str
    function: str
    name: str
    node: ast.Call
    inside: tuple[str, ...]


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def calls() -> Iterator[Call]:
    for file, tree in trees():
        yield from _walk(tree, file, "", ())


def dotted(node: ast.AST) -> str:
    """a.b.c of an expression; `.c` where what is before it is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def _walk(node: ast.AST, file: str, function: str, inside: tuple[str, ...]) -> Iterator[Call]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        function, inside = node.name, ()
    if isinstance(node, ast.Call):
        yield Call(file, function, dotted(node.func), node, inside)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        entered = tuple(dotted(i.context_expr.func) for i in node.items if isinstance(i.context_expr, ast.Call))
        for item in node.items:
            yield from _walk(item, file, function, inside + entered)
        inside = inside + entered
        for child in node.body:
            yield from _walk(child, file, function, inside)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, file, function, inside)
