"""Mutation spot checks: change a sign, a constant or an operator in a room and see whether its quick tests notice.

    python tests/hostile/mutate.py losses --count 20 --seed 0
    python tests/hostile/mutate.py metrics --count 20

A mutant lives in a copy of the sources in a temporary folder; the working tree is never touched. Every mutant is a
single change by syntax tree, drawn with a seed; its tests run until the first failure. A mutant is killed when they
fail, survives when they pass. Survivors are printed as a diff, and the exit code is their number (at most 100).
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import hypothesis  # noqa: F401 - children find it loaded
import numpy as np  # noqa: F401
import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[2]
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.GtE, ast.GtE: ast.Lt,
    ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.USub: ast.UAdd,
}  # fmt: skip
#: Files that only arrange, and what tests of the room do not claim to check.
SKIP = {"__init__.py", "compiled.py"}
TYPES = {"annotation", "returns", "decorator_list", "type_comment", "args", "bases", "keywords"}


def sites(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    """Places to change: operators, comparisons, numbers; not in annotations, defaults, docstrings or messages."""
    found: list[tuple[ast.AST, str]] = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)):
            return
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in SWAPS:
            if not _is_type_union(node):
                found.append((node, "op"))
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
            found.append((node, "compare"))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            found.append((node, "constant"))
        for name, value in ast.iter_fields(node):
            if name in TYPES and not isinstance(node, ast.Call):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    walk(child)

    walk(tree)
    return found


def _is_type_union(node: ast.AST) -> bool:
    """`int | None` is no arithmetic."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)):
        return False
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return bool(names & {"int", "float", "str", "Tensor", "Any"}) or any(
        isinstance(n, ast.Constant) and n.value is None for n in ast.walk(node)
    )


def change(node: ast.AST, kind: str, rng: random.Random) -> None:
    if kind == "op":
        node.op = SWAPS[type(node.op)]()  # type: ignore[attr-defined]
    elif kind == "compare":
        node.ops = [SWAPS[type(node.ops[0])]()]  # type: ignore[attr-defined]
    elif isinstance(node, ast.Constant):
        value = node.value
        assert isinstance(value, (int, float))
        node.value = rng.choice((value + 1, -value if value else 1, value * 2 if value else -1))


def draw(room: str, count: int, seed: int) -> list[tuple[Path, str, str]]:
    """(file, its text, the mutant's text), drawn without repetition from all sites of a room."""
    rng = random.Random(seed)
    places: list[tuple[Path, ast.Module, int]] = []
    for path in sorted((REPOSITORY / "src" / "onelabel" / room).rglob("*.py")):
        if path.name not in SKIP:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            places += [(path, tree, i) for i in range(len(sites(tree)))]
    mutants = []
    for path, tree, number in rng.sample(places, min(count, len(places))):
        mutant = copy.deepcopy(tree)
        node, kind = sites(mutant)[number]
        change(node, kind, rng)
        mutants.append((path, ast.unparse(tree), ast.unparse(ast.fix_missing_locations(mutant))))
    return mutants


def survives(source: Path, tests: list[str], timeout: float) -> bool:
    """Whether the tests pass with these sources, in a child that has the heavy libraries from its parent."""
    child = os.fork()
    if child == 0:
        with open(source.parent / "output.txt", "w") as told:
            os.dup2(told.fileno(), 1)
            os.dup2(told.fileno(), 2)
        os.chdir(REPOSITORY)
        sys.path.insert(0, str(source))
        sys.dont_write_bytecode = True
        words = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not shared", "--tb=line"]
        words += ["-k", "not two_processes"]  # a forked child cannot start processes that find the copied sources
        try:
            code = int(pytest.main([*words, *tests]))
            mine = str(source) in str(sys.modules["onelabel"].__file__)
            os._exit(code if mine else 99)
        finally:
            os._exit(98)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code in (98, 99):
                raise RuntimeError("the tests did not run on the copied sources")
            return code == 0
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)  # a loop that no longer ends is noticed
    os.waitpid(child, 0)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop drawing new mutants after so long")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without a mutation first")
    parser.add_argument("--tests", nargs="*", help="default: tests/ROOM")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a child of a process with busy threads could wait for them for ever
    tests = options.tests or [f"tests/{options.room}"]
    begun, killed, survivors = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "src"
        shutil.copytree(REPOSITORY / "src", copied, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        if not options.trust and not survives(copied, tests, 3600):
            print("the tests fail without any mutation:", (copied.parent / "output.txt").read_text()[-2000:])
            return 101
        for path, before, after in draw(options.room, options.count, options.seed):
            if time.monotonic() - begun > options.seconds:
                break
            target = copied / path.relative_to(REPOSITORY / "src")
            kept = target.read_text(encoding="utf-8")
            target.write_text(after, encoding="utf-8")
            own = f"tests/{options.room}/test_{path.stem}.py"  # most die there, and soon
            alive = not (REPOSITORY / own).is_file() or survives(copied, [own], 600)
            alive = alive and survives(copied, tests, 600)
            target.write_text(kept, encoding="utf-8")
            killed, survivors = killed + (not alive), survivors + alive
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
            diff = [line for line in lines if line[:1] in "+-"]
            told = " → ".join(line[1:].strip() for line in diff[2:])
            print(f"{'SURVIVED' if alive else 'killed  '} {path.name}: {told}", flush=True)
    print(f"{options.room}: {killed} killed, {survivors} survived of {killed + survivors} (seed {options.seed})")
    return min(survivors, 100)


if __name__ == "__main__":
    sys.exit(main())
