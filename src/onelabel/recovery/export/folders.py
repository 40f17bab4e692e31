"""A folder per class with symlinks, and YOLO's lists."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from onelabel.recovery.table import RecoveredFile
from onelabel.system import say

RESERVED = {"con", "prn", "aux", "nul", *(f"com{i}" for i in range(1, 10)), *(f"lpt{i}" for i in range(1, 10))}


def safe_name(name: str, *, length: int = 120) -> str:
    """A name that is one harmless path component anywhere: no separators, control characters, dots at either end."""
    made = re.sub(r"[^\w.()+=@,& -]|[\x00-\x1f]", "_", name).strip(" .")[:length].strip(" .")
    if not made:
        return "_"
    return f"_{made}" if made.split(".")[0].lower() in RESERVED else made


def unique_names(names: Sequence[str]) -> list[str]:
    """Safe names, made distinct (without regard to case) by a number."""
    seen: set[str] = set()
    return [_unused(safe_name(name), seen) for name in names]


def _unused(name: str, seen: set[str]) -> str:
    stem, dot, suffix = name.rpartition(".")
    candidate, number = name, 1
    while candidate.lower() in seen:
        number += 1
        candidate = f"{stem}-{number}.{suffix}" if dot and stem else f"{name}-{number}"
    seen.add(candidate.lower())
    return candidate


def write_folders(file: RecoveredFile, out: Path) -> Path:
    """out/class/picture → the picture: a symlink in the folder of every label it has, observed or called.

    Names are made safe; pictures of the same name get a number. Pictures that do not exist are left out and counted.
    """
    root = _root(file)
    folders = unique_names(file.class_names)
    with _building(out) as base:
        used: list[set[str]] = [set() for _ in folders]
        for folder in folders:
            (base / folder).mkdir()
        lost = 0
        for example in file.examples():
            target = Path(os.path.abspath(root / example.example))
            if not target.is_file():
                lost += 1
                continue
            name = safe_name(example.example.replace("/", "__").replace("\\", "__"))
            for at, *_ in example.entries:
                os.symlink(target, base / folders[at] / _unused(name, used[at]))
    if lost:
        say(f"{lost} pictures are not below {root} and have no link")
    return out


def write_yolo(file: RecoveredFile, out: Path) -> Path:
    """data.yaml (names), train.txt (a picture per line), labels.txt (its class numbers, same line, by spaces)."""
    root = file.folder()
    with (
        _building(out) as base,
        open(base / "train.txt", "w", encoding="utf-8", errors="backslashreplace") as pictures,
        open(base / "labels.txt", "w", encoding="utf-8") as numbers,
    ):
        for example in file.examples():
            path = str(root / example.example) if root is not None else example.example
            pictures.write(path.replace("\n", "_") + "\n")
            numbers.write(" ".join(str(at) for at in sorted(at for at, *_ in example.entries)) + "\n")
        names = "".join(f"  {i}: {json.dumps(name, ensure_ascii=False)}\n" for i, name in enumerate(file.class_names))
        head = f"path: {json.dumps(str(root or '.'), ensure_ascii=False)}\ntrain: train.txt\nlabels: labels.txt\n"
        (base / "data.yaml").write_text(f"{head}nc: {len(file.class_names)}\nnames:\n{names}", encoding="utf-8")
    return out


def _root(file: RecoveredFile) -> Path:
    root = file.folder()
    if root is None:
        raise ValueError(f"{file.path} does not say where its pictures are: recover from pictures, not from features")
    return root


@contextmanager
def _building(out: Path) -> Iterator[Path]:
    """A folder that takes its name when it is complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    base = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        yield base
        base.chmod(0o755)
        if out.is_dir():
            out.rmdir()
        os.replace(base, out)
    except BaseException:
        shutil.rmtree(base, ignore_errors=True)
        raise
