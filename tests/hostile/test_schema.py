"""What an earlier version kept opens in this one; what a newer one kept is refused in one line that says so."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sqlalchemy")

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
VERSIONS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir() and path.name.startswith("v"))


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    shutil.copytree(FIXTURES / request.param, tmp_path / "kept")
    return tmp_path / "kept"


def _make() -> Any:
    spec = importlib.util.spec_from_file_location("fixtures_make", FIXTURES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_kept_run_opens_and_scores_as_it_did(kept: Path, tmp_path: Path) -> None:
    from onelabel.training import Run, evaluate
    from onelabel.training.again import Origin

    run = Run.load(kept / "run")
    assert run.class_names == ("cat", "dog", "čáp")
    assert [row["epoch"] for row in run.history] == [0, 1]
    found = evaluate(run, _make().splits(tmp_path))
    assert found["mAP"] == pytest.approx(run.result["test_mAP"], abs=1e-6)
    np.testing.assert_allclose(found["scores"], run.scores["test"], atol=1e-6)
    assert run.method_state
    assert Origin.load(kept / "run").options == {"size": 24}


def test_a_kept_interrupted_run_goes_on_to_where_the_whole_one_came(kept: Path, tmp_path: Path) -> None:
    from onelabel.training import Run, train

    made = _make()
    again = train(made.splits(tmp_path), out=kept / "interrupted", resume=True, **made.SETTINGS)
    whole = Run.load(kept / "run")
    assert [row["epoch"] for row in again.history] == [0, 1]
    for mine, theirs in zip(again.history, whole.history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    np.testing.assert_allclose(again.scores["test"], whole.scores["test"], atol=1e-4)


def test_kept_labels_recovered_audit_answers_review_and_cache_open(kept: Path) -> None:
    from onelabel.data.journal import ChunkedArray
    from onelabel.labels import Labels
    from onelabel.recovery import RecoveredFile, estimate_audit, read_answers
    from onelabel.recovery.audit import Plan
    from onelabel.review.export import load_answers
    from onelabel.review.source import read_audit, read_recovered

    expected = np.array([[1, 0, -1], [0, 1, 0], [0, 0, 1], [1, 1, 0]], np.int8)
    for name in ("labels.npz", "labels.parquet"):
        np.testing.assert_array_equal(Labels.load(kept / name).to_dense(), expected)
    file = RecoveredFile.open(kept / "recovered.parquet")
    assert [e.row for e in file.examples()] == [0, 1, 2, 3]
    assert ((file.labels().to_dense() == 1) >= (expected == 1)).all()
    assert read_recovered(kept / "recovered.parquet").class_names == ["cat", "dog", "čáp"]
    plan = Plan.load(kept / "audit.parquet")
    assert (len(plan.rows), read_audit(kept / "audit.parquet").rows) == (2, 2)
    answers = read_answers(kept / "answers.parquet", plan, file.class_names)
    assert answers.shape == (2, 3)
    assert estimate_audit(file, plan, np.where(answers == 0, -1, answers).astype(np.int8)) is not None
    for source in ("answers.parquet", "review.db"):
        found = load_answers(kept / source)
        assert list(zip(found.rows.tolist(), found.cols.tolist(), found.values.tolist(), strict=True)) == [
            (0, 1, 1),
            (1, 0, -1),
        ]
    whole = ChunkedArray(kept, "cache", (10, 3), "float32", {"data": "x"}, chunk=4).finished()
    assert whole is not None
    assert whole[0][:, 0].tolist() == [0.0] * 4 + [1.0] * 4 + [2.0] * 2


# -- newer ones --------------------------------------------------------------------------------------------------------


def _json_file(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["schema_version"] == 1
    path.write_text(json.dumps({**content, "schema_version": 99}))


def _parquet(path: Path) -> None:
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    meta = {k: v for k, v in table.schema.metadata.items() if k.startswith(b"onelabel")}
    for key, value in meta.items():
        header = json.loads(value)
        name = "version" if "version" in header else "schema_version"
        assert header[name] == 1
        meta[key] = json.dumps({**header, name: 99}).encode()
    parquet.write_table(table.replace_schema_metadata(meta), path)


def _safetensors(path: Path) -> None:
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    about = json.loads(header["__metadata__"]["onelabel"])
    assert about["schema_version"] == 1
    header["__metadata__"]["onelabel"] = json.dumps({**about, "schema_version": 99})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def _toml(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("schema_version = 1\n")
    path.write_text(text.replace("schema_version = 1\n", "schema_version = 99\n"), encoding="utf-8")


def _npz(path: Path) -> None:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    arrays["header"] = np.frombuffer(json.dumps({**header, "version": 99}).encode(), np.uint8)
    np.savez(path, **arrays)


def _database(path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("INSERT INTO migration (version, name, at) VALUES (99, 'later', 0)")
    connection.close()


def _run(folder: Path) -> None:
    from onelabel.training import Run

    Run.load(folder / "run")


def _resume(folder: Path) -> None:
    from onelabel.training import train

    made = _make()
    train(made.splits(folder), out=folder / "interrupted", resume=True, **made.SETTINGS)


def _origin(folder: Path) -> None:
    from onelabel.training.again import Origin

    Origin.load(folder / "run")


def _labels(name: str) -> Callable[[Path], None]:
    from onelabel.labels import Labels

    return lambda folder: Labels.load(folder / name) and None  # type: ignore[func-returns-value]


def _recovered(folder: Path) -> None:
    from onelabel.recovery import RecoveredFile

    RecoveredFile.open(folder / "recovered.parquet")


def _review(folder: Path) -> None:
    from onelabel.review.source import read_recovered

    read_recovered(folder / "recovered.parquet")


def _plan(folder: Path) -> None:
    from onelabel.recovery.audit import Plan

    Plan.load(folder / "audit.parquet")


def _answers(name: str) -> Callable[[Path], None]:
    from onelabel.review.export import load_answers

    return lambda folder: load_answers(folder / name) and None  # type: ignore[func-returns-value]


NEWER: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], None]]] = {
    "config": ("run/config.toml", _toml, _run),
    "result": ("run/result.json", _json_file, _run),
    "weights": ("run/weights-best.safetensors", _safetensors, _run),
    "recording": ("run/recording.safetensors", _safetensors, _run),
    "origin": ("run/data.json", _json_file, _origin),
    "checkpoint": ("interrupted/checkpoint/*/state.json", _json_file, _resume),
    "labels npz": ("labels.npz", _npz, _labels("labels.npz")),
    "labels parquet": ("labels.parquet", _parquet, _labels("labels.parquet")),
    "recovered": ("recovered.parquet", _parquet, _recovered),
    "recovered in review": ("recovered.parquet", _parquet, _review),
    "thresholds": ("recovered.json", _json_file, _recovered),
    "audit": ("audit.parquet", _parquet, _plan),
    "answers": ("answers.parquet", _parquet, _answers("answers.parquet")),
    "review database": ("review.db", _database, _answers("review.db")),
}


@pytest.mark.parametrize("what", NEWER)
def test_a_newer_schema_is_refused_in_one_line(kept: Path, what: str) -> None:
    pattern, change, read = NEWER[what]
    (path,) = kept.glob(pattern)
    read(kept) if what != "checkpoint" else None
    change(path)
    with pytest.raises((ValueError, RuntimeError), match=r"version.*99|99.*version") as caught:
        read(kept)
    assert "\n" not in str(caught.value)
    assert "upgrade onelabel" in str(caught.value) or "reads" in str(caught.value) or "version 1" in str(caught.value)


def test_a_cache_of_another_version_is_computed_again(kept: Path) -> None:
    """Its version is part of its key: what another version wrote is never read."""
    from onelabel.data.journal import ChunkedArray

    assert ChunkedArray(kept, "cache", (10, 3), "float32", {"data": "x"}, chunk=4).finished() is not None
    assert ChunkedArray(kept, "cache", (10, 3), "float32", {"data": "x", "version": 2}, chunk=4).finished() is None
