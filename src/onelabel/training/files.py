"""Files that are whole or absent: written beside their target, flushed to the disk, and moved."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from onelabel.system import atomic_path, reading
from onelabel.training.machine import TrainingError


def write_bytes(path: Path, content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode(errors="backslashreplace"))  # a path's bytes under an ASCII locale


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_array(path: Path, array: Any) -> None:
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file; tensors that share memory are written once each."""
    from safetensors.torch import save

    own = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    write_bytes(path, save(own, metadata={"format": "pt", **(metadata or {})}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    with reading(path, "a safetensors file"):
        loaded: dict[str, Tensor] = load_file(str(path))
    return loaded


def best_weights(run: Path) -> Path:
    """The file of a run's best weights."""
    path = run / "weights-best.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{run}: no weights yet; resume the run first")
    return path


def link(source: Path, target: Path) -> None:
    """The same file under another name, a copy where the file system has no links."""
    import shutil

    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    try:
        os.link(source, target)
    except OSError:
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)


@contextlib.contextmanager
def explaining(where: Path) -> Iterator[None]:
    """Turn an error of the disk into one line that says what is safe and what to do."""
    try:
        yield
    except OSError as error:
        kept = (
            "the last checkpoint is intact" if (where / "checkpoint" / "latest.json").exists() else "no checkpoint yet"
        )
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = f"the disk is full; {kept}: free some space and resume"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            advice = "not writable; choose another folder or change its permissions"
        else:
            advice = f"cannot write ({error.strerror or error}); {kept}"
        raise TrainingError(f"{where}: {advice}") from error
