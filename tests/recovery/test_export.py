"""Files for other tools, read back with what reads them; wrong labels and near-duplicates."""

from __future__ import annotations

import csv
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.data.report import Report
from onelabel.data.tables import read_records
from onelabel.labels import Labels
from onelabel.recovery import RecoveredFile, export_recovered, label_errors, near_duplicates, recover
from onelabel.recovery.export import FORMATS
from onelabel.recovery.export.folders import safe_name, unique_names

NAMES = ["cat", "Dog/../x", "dog..", 'q"<&', "CAT"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecoveredFile, np.ndarray, list[str]]:
    base = tmp_path_factory.mktemp("export")
    rng = np.random.default_rng(0)
    observed = np.zeros((40, 5), np.int8)
    observed[np.arange(40), np.arange(40) % 5] = 1
    scores = np.where(observed > 0, 3.0, -3.0) + rng.standard_normal((40, 5)) * 2
    scores[11, 1], scores[11, 3] = -8, 8  # row 11's label looks wrong
    examples = [f"a/{i}.jpg" if i % 2 else f"b é/{i - 1}.jpg" for i in range(40)]
    for name in examples[:-1]:
        path = base / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    labels = Labels.from_matrix(observed, NAMES)
    done = recover(
        None, labels, base / "recovered.parquet", scores=scores, examples=examples, root="pictures", show=False
    )
    return done.file, done.labels().to_dense() > 0, examples


def test_every_format_says_the_same(made: Any, tmp_path: Path) -> None:
    file, done, examples = made
    out = {to: export_recovered(file, to, tmp_path / _target(to)) for to in FORMATS}
    want = [{NAMES[c] for c in np.flatnonzero(row)} for row in done]

    rows: list[set[str]] = [set() for _ in examples]
    with open(out["csv"], encoding="utf-8", newline="") as stream:
        for line in csv.DictReader(stream):
            if line["recovered"] == "1":
                rows[int(line["row"])].add(line["class"])
    assert rows == want

    coco = json.loads(out["coco"].read_text(encoding="utf-8"))
    names = {c["id"]: c["name"] for c in coco["categories"]}
    rows = [set() for _ in examples]
    for a in coco["annotations"]:
        rows[a["image_id"]].add(names[a["category_id"]])
    assert rows == want
    assert [i["file_name"] for i in coco["images"]] == examples
    assert len({a["id"] for a in coco["annotations"]}) == len(coco["annotations"])

    tasks = json.loads(out["label-studio"].read_text(encoding="utf-8"))
    choice = [set(t["predictions"][0]["result"][0]["value"]["choices"]) for t in tasks]
    assert choice == want
    config = ET.parse(out["label-studio"].with_suffix(".xml")).getroot()
    assert [c.attrib["value"] for c in config.iter("Choice")] == NAMES
    control = next(config.iter("Choices")).attrib
    assert (control["name"], control["toName"]) == ("labels", "image")

    fifty = json.loads(out["fiftyone"].read_text(encoding="utf-8"))
    both = [
        {c["label"] for field in ("observed", "recovered") for c in s[field]["classifications"]}
        for s in fifty["samples"]
    ]
    assert both == want
    assert fifty["num_samples"] == 40
    assert os.path.isabs(fifty["samples"][0]["filepath"])

    wide = pytest.importorskip("pyarrow.parquet").read_table(out["parquet"]).to_pylist()
    assert [set(r["labels"]) for r in wide] == want
    assert Labels.load(out["labels"]) == file.labels()
    lines = (out["yolo"] / "labels.txt").read_text().splitlines()
    assert [{NAMES[int(i)] for i in line.split()} for line in lines] == want
    assert len((out["yolo"] / "train.txt").read_text(encoding="utf-8").splitlines()) == 40

    folders = unique_names(NAMES)
    for c, folder in enumerate(folders):
        links = sorted((out["folders"] / folder).iterdir())
        assert all(link.is_symlink() for link in links)
        targets = {os.path.relpath(os.readlink(link), file.folder()) for link in links}
        assert targets == {examples[r] for r in np.flatnonzero(done[:, c]) if r != 39}  # the last has no picture


def test_hugging_face_reads_it(made: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    file, done, _ = made
    export_recovered(file, "hf", tmp_path / "hf")
    loaded = datasets.load_from_disk(str(tmp_path / "hf"))
    assert [set(r) for r in loaded["labels"]] == [set(np.flatnonzero(row).tolist()) for row in done]
    assert loaded.features["labels"].feature.names == NAMES


def test_rows_of_features_are_no_picture_files(tmp_path: Path) -> None:
    """Their names are row numbers; a list of pictures called 0, 1, 2 would be of nothing."""
    labels = Labels.from_classes(np.arange(40) % 5, num_classes=5, class_names=NAMES)
    scores = np.random.default_rng(0).standard_normal((40, 5))
    file = recover(None, labels, tmp_path / "rows.parquet", scores=scores, show=False).file
    numbered = recover(
        None, labels, tmp_path / "memory.parquet", scores=scores, examples=[f"{i:06d}" for i in range(40)], show=False
    ).file  # as pictures in memory are named
    before = sorted(tmp_path.iterdir())
    for to in ("coco", "label-studio", "fiftyone", "folders", "yolo"):
        for each in (file, numbered):
            with pytest.raises(
                ValueError, match=rf"parquet names no picture files, which {to} lists.*csv, parquet, hf, labels"
            ):
                export_recovered(each, to, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
    for to in ("csv", "parquet", "labels"):
        assert export_recovered(file, to, tmp_path / _target(to)).is_file()
    named = [f"/photos/{i}.jpg" for i in range(40)]
    absolute = recover(None, labels, tmp_path / "named.parquet", scores=scores, examples=named, show=False).file
    export_recovered(absolute, "yolo", tmp_path / "yolo")
    assert (tmp_path / "yolo" / "train.txt").read_text().split() == named


def test_training_finds_the_pictures_of_an_exported_table(made: Any, tmp_path: Path) -> None:
    """Wherever the table lies: its paths start at the folder that its metadata name."""
    file, _, examples = made
    table = read_records(export_recovered(file, "parquet", tmp_path / "elsewhere" / "all.parquet"), Report())
    assert table.records.names == examples
    assert table.root == file.folder()


def _target(to: str) -> str:
    return {"csv": "a.csv", "parquet": "a.parquet", "labels": "l.npz"}.get(to, f"{to}.json" if to in JSON else to)


JSON = ("coco", "label-studio", "fiftyone")


def test_nothing_is_overwritten(made: Any, tmp_path: Path) -> None:
    file, _, _ = made
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("keep")
    for to in ("folders", "yolo", "hf", "csv"):
        with pytest.raises(FileExistsError, match="nothing is overwritten"):
            export_recovered(file, to, tmp_path / "there")
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    (tmp_path / "there" / "mine.xml").write_text("keep")
    with pytest.raises(FileExistsError, match=r"mine.xml exists"):  # its labelling config
        export_recovered(file, "label-studio", tmp_path / "there" / "mine.json")
    with pytest.raises(ValueError, match=r"tasks such as tasks\.json"):
        export_recovered(file, "label-studio", tmp_path / "there" / "tasks.xml")
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == ["mine.txt", "mine.xml"]
    assert (tmp_path / "there" / "mine.xml").read_text() == "keep"
    with pytest.raises(ValueError, match="did you mean 'coco'"):
        export_recovered(file, "cocoo", tmp_path / "x")


def test_safe_names() -> None:
    for name in ("../../etc/passwd", "a/b", "", ".", "..", "con", "x\0y", "  dots. ", "é" * 300, "NUL.txt"):
        safe = safe_name(name)
        assert safe not in ("", ".", "..")
        assert os.path.basename(safe) == safe
        assert not safe.startswith(".")
        assert "\0" not in safe
        assert len(safe) <= 121
    assert len({n.lower() for n in unique_names(["A", "a", "a", "a-2"])}) == 4


def test_wrong_labels_come_first(made: Any) -> None:
    file, _, examples = made
    found = label_errors(file, most=5)
    assert found[0].row == 11
    assert found[0].example == examples[11]
    assert found[0].label == NAMES[1]
    assert found[0].suggestion == NAMES[3]
    assert len(label_errors(file, most=1)) == 1
    assert label_errors(file, below=1e-9) == []


@pytest.mark.parametrize("exact", [10_000, 10])
def test_near_duplicates(exact: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 16)).astype(np.float32)
    X[50], X[170] = X[3] * 2, X[3] + 1e-3  # scaled, and slightly off
    X[200] = X[201] = X[120]
    X[10] = 0
    X[11] = 0
    y = np.arange(300) % 7
    y[[120, 200, 201]] = 4
    labels = Labels.from_classes(y, num_classes=7)
    every = near_duplicates(X, labels, cosine=0.99, disagreeing=False, exact_rows=exact)
    assert [g.rows for g in every] == [(3, 50, 170), (120, 200, 201)]
    some = near_duplicates(X, labels, cosine=0.99, exact_rows=exact)
    assert [g.rows for g in some] == [(3, 50, 170)]
    assert some[0].classes == tuple(sorted({3 % 7, 50 % 7, 170 % 7}))


def test_identical_pictures_are_one_group() -> None:
    labels = Labels.from_classes(np.arange(3000) % 3, num_classes=3)
    (group,) = near_duplicates(np.ones((3000, 4), np.float32), labels)
    assert len(group.rows) == 3000
    assert group.disagrees
