"""A pickle that leaves a mark when it is loaded, in every place where somebody might put one."""

from __future__ import annotations

import io
import pickle
import shutil
from pathlib import Path
from typing import Any

import fuzz_benchmarks  # noqa: F401 - they enter themselves
import fuzz_outer  # noqa: F401
import fuzz_runs  # noqa: F401
import numpy as np
import pytest
import torch
from fuzz_damage import Bomb
from fuzz_readers import READERS
from test_fuzz import complaint


def _saved(write: Any) -> bytes:
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def pickles() -> dict[str, bytes]:
    bomb = np.array([Bomb()], dtype=object)
    keys = ("X", "true", "header", "values", "indices", "indptr", "train", "classes", "train_true", "peak")
    return {
        "plain": pickle.dumps(Bomb()),
        "torch": _saved(lambda f: torch.save({"w": Bomb()}, f)),
        "old torch": _saved(lambda f: torch.save({"w": Bomb()}, f, _use_new_zipfile_serialization=False)),
        "npy": _saved(lambda f: np.save(f, bomb, allow_pickle=True)),
        "npz": _saved(lambda f: np.savez(f, **dict.fromkeys(keys, bomb))),
    }


def test_the_pickles_are_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.load(io.BytesIO(pickles()["npy"]), allow_pickle=True)
    assert Path("pickle-was-executed").is_dir()


@pytest.mark.parametrize("name", READERS)
def test_no_reader_runs_a_pickle(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = READERS[name]
    source, work = tmp_path / "good", tmp_path / "work"
    source.mkdir()
    reader.make(source)
    monkeypatch.chdir(tmp_path)
    victims = sorted({path for pattern in reader.victims for path in source.glob(pattern) if path.is_file()})
    for victim in victims[:4]:
        for kind, content in pickles().items():
            if victim.suffix not in (".npy", ".npz") and kind.startswith("np"):
                continue
            shutil.copytree(source, work, symlinks=True)
            (work / victim.relative_to(source)).unlink()
            (work / victim.relative_to(source)).write_bytes(content)
            assert complaint(reader, work) is None, (victim.name, kind)
            assert not Path("pickle-was-executed").exists(), (victim.name, kind)
            shutil.rmtree(work)
