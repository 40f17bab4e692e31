from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onelabel.data import DataError, build_manifest, load_dataset
from onelabel.data import manifest as module


def _rows(file: Path) -> dict[str, dict[str, object]]:
    return {row["path"]: row for row in pq.read_table(file).to_pylist()}


def test_columns(class_folder: Path, tmp_path: Path, hostile: dict[str, bytes]) -> None:
    for name, data in hostile.items():
        (class_folder / "cat" / name).write_bytes(data)
    (class_folder / "owl" / "twin.jpg").write_bytes((class_folder / "cat" / "cat0.jpg").read_bytes())
    made = build_manifest(class_folder, tmp_path / "m.parquet", decode=True)
    rows = _rows(tmp_path / "m.parquet")
    assert made.rows == len(rows) == 12 + len(hostile) + 1
    assert made.reused == 0
    row = rows["cat/cat0.jpg"]
    data = (class_folder / "cat/cat0.jpg").read_bytes()
    assert row["hash"] == hashlib.blake2b(data, digest_size=16).hexdigest()
    assert (row["bytes"], row["width"], row["height"], row["format"]) == (len(data), 20, 14, "JPEG")
    assert row["labels"] == ["cat"]
    problems = {name: str(rows[f"cat/{name}"]["problem"]) for name in hostile}
    assert {name: kind for name, kind in problems.items() if kind} == {
        "broken.jpg": "broken",
        "truncated.jpg": "truncated",
        "truncated.png": "truncated",
        "empty.jpg": "empty-file",
        "bomb.png": "bomb",
    }
    assert rows["cat/rotated.jpg"]["notes"] == ["rotated"]
    assert made.report.names("duplicate-content") == ["cat/good.jpg", "owl/twin.jpg"]  # all three are one picture
    assert made.report.lost == 5
    splits = load_dataset(tmp_path / "m.parquet", validation=0)  # relative to the folder it was made of
    assert len(splits.train) == len(rows) - 5
    assert splits.report.lost == 5
    assert splits.train.source.read(0).ndim == 3
    same = load_dataset(class_folder, validation=0).train
    assert splits.train.class_names == same.class_names


def test_only_what_changed_is_read(
    class_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, picture: Callable[..., bytes]
) -> None:
    out = tmp_path / "m.parquet"
    build_manifest(class_folder, out)
    before = _rows(out)
    (class_folder / "dog" / "dog1.jpg").write_bytes(picture(77))
    os.utime(class_folder / "dog" / "dog2.jpg", ns=(1, 1))
    (class_folder / "dog" / "new.jpg").write_bytes(picture(78))
    (class_folder / "owl" / "owl0.jpg").unlink()
    read: list[str] = []
    inspect = module.inspect_image
    monkeypatch.setattr(module, "inspect_image", lambda raw, name, decode: read.append(name) or inspect(raw, name=name))
    made = build_manifest(class_folder, out)
    assert sorted(read) == ["dog/dog1.jpg", "dog/dog2.jpg", "dog/new.jpg"]
    assert (made.rows, made.reused) == (12, 9)
    after = _rows(out)
    assert set(before) ^ set(after) == {"dog/new.jpg", "owl/owl0.jpg"}
    assert before["dog/dog1.jpg"]["hash"] != after["dog/dog1.jpg"]["hash"]
    assert before["dog/dog2.jpg"]["hash"] == after["dog/dog2.jpg"]["hash"]
    assert all(before[p] == after[p] for p in set(before) & set(after) - {"dog/dog1.jpg", "dog/dog2.jpg"})
    assert build_manifest(class_folder, out, decode=True).reused == 0  # it had not been decoded before


def test_many_files_in_parallel_keep_their_order(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    folder = tmp_path / "many" / "thing"
    folder.mkdir(parents=True)
    data = picture(0, (4, 4), "PNG")
    names = [f"{i:05d}.png" for i in range(2000)]
    for name in names:
        (folder / name).write_bytes(data)
    made = build_manifest(tmp_path / "many", tmp_path / "m.parquet", workers=2)
    assert pq.read_table(tmp_path / "m.parquet")["path"].to_pylist() == [f"thing/{name}" for name in names]
    assert made.report.counts == {"duplicate-content": 1999, "tiny": 2000}
    assert build_manifest(tmp_path / "many", tmp_path / "m.parquet", workers=2).reused == 2000


def test_from_a_table_and_strict(class_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,negatives\ncat/cat0.jpg,cat|furry,dog\ncat/none.jpg,cat,\n")
    build_manifest(tmp_path / "t.csv", tmp_path / "m.parquet", root=class_folder)
    rows = _rows(tmp_path / "m.parquet")
    assert rows["cat/cat0.jpg"]["labels"] == ["cat", "furry"]
    assert rows["cat/cat0.jpg"]["negatives"] == ["dog"]
    assert rows["cat/none.jpg"]["problem"] == "missing"
    splits = load_dataset(tmp_path / "m.parquet", validation=0)
    assert splits.train.observed.to_dense().tolist() == [[1, -1, 1]]
    (tmp_path / "m.parquet").unlink()
    with pytest.raises(DataError, match=r"none\.jpg"):
        build_manifest(tmp_path / "t.csv", tmp_path / "m.parquet", root=class_folder, strict=True)
    assert not (tmp_path / "m.parquet").exists()  # nothing half-written
    assert not list(tmp_path.glob(".m.parquet*"))


def test_damaged_manifest_is_made_anew(class_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "m.parquet").write_bytes(b"nonsense")
    assert build_manifest(class_folder, tmp_path / "m.parquet").reused == 0
    assert len(_rows(tmp_path / "m.parquet")) == 12
    whole = pq.read_table(tmp_path / "m.parquet")
    wrong = {"hash": ["zz"] * 12, "notes": ["x"] * 12, "path": [None] * 12, "width": ["wide"] * 12, "mode": [None] * 12}
    for name, values in wrong.items():
        pq.write_table(whole.set_column(whole.schema.get_field_index(name), name, [values]), tmp_path / "w.parquet")
        assert build_manifest(class_folder, tmp_path / "w.parquet").reused == 0
        assert pq.read_table(tmp_path / "w.parquet").equals(whole)
    paths = pa.array([None, *whole["path"].to_pylist()[1:]], pa.string())
    pq.write_table(whole.set_column(whole.schema.get_field_index("path"), "path", paths), tmp_path / "w.parquet")
    splits = load_dataset(tmp_path / "w.parquet", validation=0)
    assert (len(splits.train), splits.report.names("malformed")) == (11, ["w.parquet: row 1"])


def test_fingerprint_follows_contents_not_times(class_folder: Path, tmp_path: Path) -> None:
    build_manifest(class_folder, tmp_path / "m.parquet")
    first = load_dataset(tmp_path / "m.parquet", validation=0).train.source.fingerprint()
    for file in class_folder.rglob("*.jpg"):
        os.utime(file, ns=(5, 5))
    build_manifest(class_folder, tmp_path / "m.parquet")
    assert load_dataset(tmp_path / "m.parquet", validation=0).train.source.fingerprint() == first
    folder = load_dataset(class_folder, validation=0).train.source
    before = folder.fingerprint()
    os.utime(class_folder / "cat" / "cat0.jpg", ns=(6, 6))
    assert folder.fingerprint() != before
