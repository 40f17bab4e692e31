"""Every kind of writer, stopped by the kernel: a file is whole or as it was, and nothing is left beside it."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onelabel.labels import Labels
from onelabel.system import atomic_write

ROWS = 400


@contextmanager
def no_file_over(limit: int) -> Iterator[None]:
    """As a disk that fills up: the kernel refuses every byte beyond `limit` of any file (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def labels() -> Labels:
    rng = np.random.default_rng(0)
    return Labels.from_matrix(rng.integers(-1, 2, (ROWS, 12)).astype(np.int8), [f"class {i}" for i in range(12)])


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from onelabel.recovery import recover

    folder = tmp_path_factory.mktemp("recovered")
    known = Labels.from_classes(np.random.default_rng(0).integers(0, 12, ROWS), num_classes=12)
    scores = np.random.default_rng(1).standard_normal((ROWS, 12)).astype(np.float32)
    examples = [f"{i}.jpg" for i in range(ROWS)]
    done = recover(None, known, folder / "r.parquet", scores=scores, examples=examples, root=".", show=False)
    (folder / "0.jpg").write_bytes(b"x")
    return done


def _tensors(path: Path) -> None:
    from onelabel.training.files import write_tensors

    write_tensors(path, {"w": torch.zeros(1000)})


def _array(path: Path) -> None:
    from onelabel.training.files import write_array

    write_array(path, np.zeros(1000))


def _report(path: Path) -> None:
    from onelabel.data import Report

    report = Report()
    for i in range(100):
        report.add("missing", f"{i}.jpg")
    report.save(path)


def _manifest(path: Path) -> None:
    from onelabel.data.manifest import build_manifest

    source = path.parent.parent / "own" / "cat"
    source.mkdir(parents=True, exist_ok=True)
    for i in range(60):
        (source / f"{i}.jpg").write_bytes(b"no picture")
    with no_file_over(300):
        build_manifest(source.parent, path, workers=1)


def _rows(path: Path) -> None:
    from onelabel.probes.role_table import write_rows

    write_rows([{"method": f"m{i}", "mAP": i} for i in range(100)], path)


def _plan(path: Path, recovered: Any) -> None:
    from onelabel.recovery import plan_audit

    plan_audit(recovered.file, rows=100).save(path)


def _result(path: Path) -> None:
    from onelabel.bench.results import Row, write_rows

    write_rows(path, [Row(run_id=f"r{i}", dataset="d", method="em") for i in range(20)])


FILES: dict[str, Callable[[Path], None]] = {
    "text.json": lambda path: atomic_write(path, "x" * 1000),
    "labels.npz": lambda path: labels().save(path),
    "labels.parquet": lambda path: labels().save(path),
    "weights.safetensors": _tensors,
    "scores.npy": _array,
    "report.json": _report,
    "manifest.parquet": _manifest,
    "board.csv": _rows,
    "results.parquet": _result,
}
EXPORTS = ("csv", "coco", "label-studio", "fiftyone", "folders", "yolo")


def _refused(write: Callable[[], object], folder: Path, target: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    with no_file_over(300), pytest.raises(OSError, match=r"."):
        write()
    assert {path.name for path in folder.iterdir()} == before, "something was left behind"
    if target.is_file():
        assert target.read_bytes() == b"old"


@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / name
    target.write_bytes(b"old")
    _refused(lambda: FILES[name](target), folder, target)
    if name != "manifest.parquet":
        FILES[name](target)  # and the writer itself works
        assert target.stat().st_size > 300


@pytest.mark.parametrize("kind", [*EXPORTS, "plan", "recover"])
def test_a_full_disk_leaves_no_half_export(kind: str, recovered: Any, tmp_path: Path) -> None:
    from onelabel.recovery import recover
    from onelabel.recovery.export import export_recovered

    suffix = {"csv": ".csv", "coco": ".json", "label-studio": ".json", "fiftyone": ".json", "plan": ".parquet"}
    target = tmp_path / f"out{suffix.get(kind, '')}"
    if kind == "plan":
        _refused(lambda: _plan(target, recovered), tmp_path, target)
    elif kind == "recover":
        scores = np.random.default_rng(1).standard_normal((ROWS, 12)).astype(np.float32)
        given = Labels.from_classes(np.random.default_rng(0).integers(0, 12, ROWS), num_classes=12)
        _refused(lambda: recover(None, given, tmp_path / "r.parquet", scores=scores, show=False), tmp_path, target)
    elif kind == "folders":  # links are no bytes: a folder that cannot be made instead
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match="file"):
            export_recovered(recovered.file, kind, tmp_path / "file" / "out")
    else:
        _refused(lambda: export_recovered(recovered.file, kind, target), tmp_path, target)


def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    """SIGKILL while a child writes again and again; what is there afterwards is one of the versions, whole."""
    from safetensors.torch import load_file

    from onelabel.training.files import write_tensors

    rng, kills = np.random.default_rng(0), 12
    one, target, text = labels(), tmp_path / "labels.npz", tmp_path / "text"
    one.save(target)
    for attempt in range(kills):
        child = os.fork()
        if child == 0:  # no thread of torch or Arrow is used below
            try:
                while True:
                    one.save(target)
                    atomic_write(text, b"a" * 100_000)
                    atomic_write(text, b"b" * 200_000)
                    write_tensors(tmp_path / "w.safetensors", {"w": torch.zeros(10_000)})
            finally:
                os._exit(1)
        time.sleep(0.05 + float(rng.random()) * 0.1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert Labels.load(target).num_observed == one.num_observed, attempt
        if text.exists():
            assert text.read_bytes() in (b"a" * 100_000, b"b" * 200_000)
        if (tmp_path / "w.safetensors").exists():
            assert load_file(tmp_path / "w.safetensors")["w"].shape == (10_000,)
    assert text.exists()
