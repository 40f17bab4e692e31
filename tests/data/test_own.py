"""Own data: folders, tables, Hugging Face datasets, shards and matrices."""

from __future__ import annotations

import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onelabel.data import DataError, FeatureDataset, load_dataset, split_rows, square_image
from onelabel.labels import drop_labels

Picture = Callable[..., bytes]


def _positives(dataset: object) -> list[set[str]]:
    """The observed positives of each row, by name."""
    dense = dataset.observed.to_dense()  # type: ignore[attr-defined]
    names = np.array(dataset.class_names)  # type: ignore[attr-defined]
    return [set(names[row > 0]) for row in dense]


# --- folders -----------------------------------------------------------------------------------------------------


def test_folder_per_class(class_folder: Path) -> None:
    splits = load_dataset(class_folder)
    assert splits.class_names == ("cat", "dog", "owl")
    assert splits.name == "own"
    assert (len(splits.train), len(splits.validation), splits.test) == (10, 2, None)
    assert splits.train.true is None
    for part in (splits.train, splits.validation):
        assert _positives(part) == [{path.split("/")[0]} for path in part.source.paths]
        assert part.observed.is_positive_only
    everything = sorted(f"{c}/{c}{i}.jpg" for c in ("cat", "dog", "owl") for i in range(4))
    assert splits.validation.source.paths == [everything[row] for row in split_rows(12, 0.2)[1]]
    assert splits.train.source.fingerprint() == load_dataset(class_folder).train.source.fingerprint()
    assert len(splits.report) == 0


@pytest.mark.filterwarnings("ignore:.*no positive:UserWarning")
def test_folder_with_parts_class_list_and_clean_labels(class_folder: Path) -> None:
    whole = class_folder.parent / "parts"
    for part, name in (("train", "cat"), ("train", "dog"), ("val", "owl")):
        (whole / part).mkdir(parents=True, exist_ok=True)
        (class_folder / name).rename(whole / part / name)
    (whole / "test" / "cat").mkdir(parents=True)
    splits = load_dataset(whole, class_names=["dog", "cat"], complete=True)
    assert (len(splits.train), len(splits.validation)) == (8, 4)
    assert splits.class_names == ("dog", "cat")
    assert splits.report.counts == {"unknown-label": 4, "no-label": 4, "empty-folder": 1}
    np.testing.assert_array_equal(splits.train.true.sum(0), [4, 4])
    assert splits.train.observed.num_observed == 8


def test_folders_that_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a dataset"):
        load_dataset(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no pictures found"):
        load_dataset(tmp_path / "empty")


def test_folder_links_do_not_loop(class_folder: Path) -> None:
    (class_folder / "cat" / "again").symlink_to(class_folder / "cat")
    assert len(load_dataset(class_folder, validation=0).train) == 12


# --- tables ------------------------------------------------------------------------------------------------------

ROWS = [
    {"path": "cat/cat0.jpg", "label": ["cat", "grass"], "negatives": ["dog"], "split": "train"},
    {"path": "dog/dog0.jpg", "label": ["dog"], "negatives": [], "split": "train"},
    {"path": "owl/owl0.jpg", "label": [], "negatives": [], "split": "val"},
    {"path": "owl/owl1.jpg", "label": ["owl"], "negatives": ["owl"], "split": "test"},
    {"path": "dog/../dog/dog0.jpg", "label": ["grass"], "negatives": [], "split": "train"},
    {"path": "dog/none.jpg", "label": ["dog"], "negatives": [], "split": "train"},
]


def _write(kind: str, folder: Path) -> Path:
    file = folder / f"table.{kind}"
    if kind in ("csv", "tsv"):
        by = "," if kind == "csv" else "\t"
        lines = [by.join(ROWS[0])] + [
            by.join("|".join(v) if isinstance(v, list) else v for v in row.values()) for row in ROWS
        ]
        lines.insert(3, by.join(["too", "few"]))
        file.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    elif kind == "jsonl":
        lines = [json.dumps(row) for row in ROWS]
        lines.insert(3, "{broken")
        file.write_text("\n".join(lines))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(ROWS), file)
    return file


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_tables_agree(kind: str, class_folder: Path) -> None:
    splits = load_dataset(_write(kind, class_folder))
    assert splits.class_names == ("cat", "dog", "grass", "owl")
    assert splits.train.source.paths == ["cat/cat0.jpg", "dog/dog0.jpg"]
    np.testing.assert_array_equal(splits.train.observed.to_dense(), [[1, -1, 1, 0], [0, 1, 1, 0]])
    np.testing.assert_array_equal(splits.validation.observed.to_dense(), [[0, 0, 0, 0]])
    np.testing.assert_array_equal(splits.test.observed.to_dense(), [[0, 0, 0, 0]])
    counts = dict(splits.report.counts)
    assert counts.pop("malformed", 0) == (0 if kind == "parquet" else 1)
    assert counts == {"conflict": 1, "duplicate-path": 1, "missing": 1, "no-label": 2}
    assert splits.report.names("duplicate-path") == ["dog/dog0.jpg"]


def test_table_options(class_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("where;first;second;stage\n".replace(";", ",") + "cat/cat0.jpg,cat,furry,\nowl/owl0.jpg,owl,,\n")
    splits = load_dataset(file, root=class_folder, image="where", labels=["first", "second"], validation=0)
    assert _positives(splits.train) == [{"cat", "furry"}, {"owl"}]
    clean = load_dataset(
        file, root=class_folder, image="where", labels=["first", "second"], validation=0, complete=True
    )
    np.testing.assert_array_equal(clean.train.true, [[1, 1, 0], [0, 0, 1]])
    assert (clean.train.observed.positives_per_row() == 1).all()
    (tmp_path / "classes.txt").write_text("owl\ncat\n")
    listed = load_dataset(
        file, root=class_folder, image="where", labels="first", validation=0, class_names=tmp_path / "classes.txt"
    )
    assert listed.class_names == ("owl", "cat")
    for bad, words in (
        ({"image": "nope"}, "no column nope"),
        ({"image": "where"}, "no label column"),
        ({"image": "where", "labels": "nope"}, "no column 'nope'"),
    ):
        with pytest.raises(DataError, match=words):
            load_dataset(file, root=class_folder, **bad)
    with pytest.raises(DataError, match="listed twice"):
        load_dataset(file, root=class_folder, image="where", labels="first", class_names=["a", "a"])


HELD = "cat/cat0.jpg,cat,\ncat/cat1.jpg,cat,\ndog/dog0.jpg,dog,\nowl/owl0.jpg,cat|dog,val\nowl/owl1.jpg,dog,val\n"


def test_held_out_rows_alone_may_be_complete(class_folder: Path) -> None:
    file = class_folder / "t.csv"
    file.write_text(f"path,label,split\n{HELD}")
    splits = load_dataset(file, complete="held-out")
    assert splits.train.true is None
    assert _positives(splits.train) == [{"cat"}, {"cat"}, {"dog"}]
    np.testing.assert_array_equal(splits.validation.true, [[1, 1], [0, 1]])
    assert not splits.left_out
    assert load_dataset(file).validation.true is None
    with pytest.raises(DataError, match="complete: 'val', expected true, false or 'held-out'"):
        load_dataset(file, complete="val")
    file.write_text("path,label\ncat/cat0.jpg,cat\ndog/dog0.jpg,dog\n")
    with pytest.raises(DataError, match="all are in training; give a split column, or folders train/ and val/"):
        load_dataset(file, complete="held-out")


def test_a_part_of_which_every_entry_is_known_is_complete(class_folder: Path) -> None:
    file = class_folder / "t.csv"
    rows = ["cat/cat0.jpg,1,0,", "dog/dog0.jpg,0,1,", "owl/owl0.jpg,1,1,val", "owl/owl1.jpg,-1,1,val"]
    file.write_text("\n".join(["path,cat,dog,split", *rows]))
    splits = load_dataset(file)
    assert splits.train.true is None
    np.testing.assert_array_equal(splits.validation.true, [[1, 1], [0, 1]])
    np.testing.assert_array_equal(splits.validation.observed.to_dense(), [[1, 1], [-1, 1]])
    file.write_text("\n".join(["path,cat,dog,split", *rows[:3], "owl/owl1.jpg,0,1,val"]))
    assert load_dataset(file).validation.true is None


def test_cells_that_were_not_quoted_are_told_how(class_folder: Path) -> None:
    file = class_folder / "t.csv"
    file.write_text("path,label\ncat/cat0.jpg,cat\ncat/cat1.jpg,cat, dog\ndog/dog0.jpg\n")
    found = [problem.detail for problem in load_dataset(file, validation=0).report if problem.kind == "malformed"]
    assert found == ["3 fields, expected 2: quote a cell that has ',' in it, as \"a, b\"", "1 fields, expected 2"]


def test_that_labels_are_hidden_is_said(class_folder: Path) -> None:
    file = class_folder / "t.csv"
    file.write_text("path,label\ncat/cat0.jpg,cat|dog\ncat/cat1.jpg,cat\n")
    told = "of 1.50 labels a row in training 1.00 of them drawn, the rest hidden (-o drop=none shows all)"
    assert told in load_dataset(file, complete=True, validation=0, strict=True).left_out
    assert not load_dataset(file, complete=True, validation=0, drop="none").left_out
    assert not load_dataset(file, validation=0).left_out


def test_that_complete_rows_have_one_label_each_is_said(class_folder: Path) -> None:
    """A folder a class is the commonest case: its pictures may show more than their folder says."""
    file = class_folder / "t.csv"
    rows = ["path,label", "cat/cat0.jpg,cat", "dog/dog0.jpg,dog", "owl/owl0.jpg,owl"]
    file.write_text("\n".join(rows))
    told = "each row has one label and, by `complete`, no other"
    assert told in load_dataset(file, complete=True, validation=0).left_out
    assert not load_dataset(file, validation=0).left_out
    file.write_text("\n".join([*rows, "cat/cat1.jpg,cat|owl"]))
    assert "sole" not in load_dataset(file, complete=True, validation=0).report.counts
    file.write_text("\n".join(row for row in rows if "owl" not in row))  # one of two classes is nothing odd
    assert not load_dataset(file, complete=True, validation=0).left_out


def test_a_row_of_an_unknown_part_is_not_trained_on(class_folder: Path) -> None:
    file = class_folder / "t.csv"
    for word in ("eval", "holdout", "trainval", "0"):
        file.write_text(f"path,label,split\ncat/cat0.jpg,cat,train\nowl/owl0.jpg,owl,{word}\n")
        known = r"expected one of train, training, val, .*, testing; rename it, or the column"
        with pytest.raises(DataError, match=rf"t\.csv: row 2, column split: '{word}', {known}"):
            load_dataset(file)
    file.write_text("path,label,split\ncat/cat0.jpg,cat,\nowl/owl0.jpg,owl,  \ndog/dog0.jpg,dog, Dev \n")
    splits = load_dataset(file)
    assert (len(splits.train), splits.validation.source.paths) == (2, ["dog/dog0.jpg"])
    rows = [{"path": "cat/cat0.jpg", "label": "cat", "split": None}, {"path": "owl/owl0.jpg", "label": "owl"}]
    rows.append({"path": "dog/dog0.jpg", "label": "dog", "split": float("nan")})  # as pandas writes a missing cell
    (class_folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert len(load_dataset(class_folder / "t.jsonl", validation=0).train) == 3


def test_a_byte_order_mark_is_no_part_of_the_first_record(class_folder: Path) -> None:
    rows = [{"path": f"cat/cat{i}.jpg", "label": "cat"} for i in range(3)]
    for encoding in ("utf-8-sig", "utf-8"):
        (class_folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding=encoding)
        splits = load_dataset(class_folder / "t.jsonl", validation=0)
        assert splits.train.source.paths == [row["path"] for row in rows]
        assert not splits.report.counts


def test_backslashes_as_windows_writes_them(class_folder: Path) -> None:
    (class_folder / "owl" / "a\\b.jpg").write_bytes((class_folder / "owl" / "owl0.jpg").read_bytes())
    lines = ["cat\\cat0.jpg,cat", "cat/cat0.jpg,furry", ".\\dog\\dog1.jpg,dog", "owl/a\\b.jpg,owl", "no\\such.jpg,owl"]
    (class_folder / "t.csv").write_text("\n".join(["path,label", *lines]))
    splits = load_dataset(class_folder / "t.csv", validation=0)
    assert splits.train.source.paths == ["cat/cat0.jpg", "dog/dog1.jpg", "owl/a\\b.jpg"]
    assert _positives(splits.train) == [{"cat", "furry"}, {"dog"}, {"owl"}]
    assert splits.report.names("missing") == ["no\\such.jpg"]
    content = {
        "images": [{"id": 1, "file_name": "cat\\cat0.jpg"}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"image_id": 1, "category_id": 1}],
    }
    (class_folder / "t.json").write_text(json.dumps(content), encoding="utf-8-sig")
    assert load_dataset(class_folder / "t.json", validation=0).train.source.paths == ["cat/cat0.jpg"]


def test_wide_table(class_folder: Path) -> None:
    (class_folder / "wide.csv").write_text("file,cat,fur,big\ncat/cat0.jpg,1,1,-1\nowl/owl0.jpg,0,-1,\n")
    splits = load_dataset(class_folder / "wide.csv", validation=0)
    assert splits.class_names == ("cat", "fur", "big")
    np.testing.assert_array_equal(splits.train.observed.to_dense(), [[1, 1, -1], [0, -1, 0]])


def test_tables_that_cannot_work(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("path,label\nx.jpg,caf\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match="pass -o encoding="):
        load_dataset(tmp_path / "latin.csv")
    (tmp_path / "open.csv").write_text('path,",split\nx.jpg,cat,train\n')  # a quotation that never ends
    with pytest.raises(DataError, match=r"no label column among path, ,split x\.jpg,cat,train") as told:
        load_dataset(tmp_path / "open.csv")
    assert "\n" not in str(told.value)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match="empty"):
        load_dataset(tmp_path / "empty.csv")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"bad\.parquet"):
        load_dataset(tmp_path / "bad.parquet")
    (tmp_path / "twice.csv").write_text("path,path\na,b\n")
    with pytest.raises(DataError, match="same name"):
        load_dataset(tmp_path / "twice.csv")
    with pytest.raises(DataError, match="no such file"):
        load_dataset(tmp_path / "none.csv")


# --- Hugging Face ------------------------------------------------------------------------------------------------


def test_hugging_face(class_folder: Path, tmp_path: Path, hostile: dict[str, bytes]) -> None:
    import datasets

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.Sequence(datasets.ClassLabel(names=["owl", "cat", "dog"]))}
    )
    images = [{"bytes": (class_folder / p).read_bytes(), "path": None} for p in ("cat/cat0.jpg", "dog/dog1.jpg")]
    images += [{"bytes": hostile["broken.jpg"], "path": None}, {"bytes": hostile["cmyk.jpg"], "path": None}]
    data = datasets.Dataset.from_dict({"image": images, "label": [[1], [2, 0], [0], []]}, features=features)
    splits = load_dataset(data, validation=0)
    assert splits.class_names == ("owl", "cat", "dog")
    assert _positives(splits.train) == [{"cat"}, {"dog", "owl"}, set()]
    assert splits.report.names("broken") == ["train[2]"]
    np.testing.assert_array_equal(
        splits.train.source.square(0, 16), square_image(str(class_folder / "cat/cat0.jpg"), 16)
    )
    both = datasets.DatasetDict({"train": data, "test": data.select([0, 1])})
    both.save_to_disk(str(tmp_path / "saved"))
    for where in (f"hf:{tmp_path / 'saved'}", str(tmp_path / "saved")):
        loaded = load_dataset(where, validation=0)
        assert (len(loaded.train), len(loaded.test)) == (3, 2)
        np.testing.assert_array_equal(loaded.test.source.square(1, 16), splits.train.source.square(1, 16))
    assert loaded.test.source.fingerprint() != loaded.train.source.fingerprint()
    shown = load_dataset(data.with_format("numpy", columns=["image"]), validation=0)  # the owner looked at one column
    assert _positives(shown.train) == _positives(splits.train)
    with pytest.raises(DataError, match="pass label="):
        load_dataset(data.remove_columns("label"))
    (file,) = (tmp_path / "saved" / "train").glob("*.arrow")  # a false offset, which Arrow itself would follow
    ends = np.cumsum([0] + [len(image["bytes"]) for image in images]).astype("<i4")
    false = np.where(np.arange(5) == 1, 1 << 30, ends).astype("<i4")
    file.write_bytes(file.read_bytes().replace(ends.tobytes(), false.tobytes()))
    with pytest.raises(DataError, match=r"train: not whole rows of a dataset .*; save it again"):
        load_dataset(tmp_path / "saved", validation=0)
    with pytest.raises(TypeError, match="expected a name, a path"):
        load_dataset(3)


# --- WebDataset --------------------------------------------------------------------------------------------------


def test_shards_written_by_webdataset(tmp_path: Path, picture: Picture) -> None:
    import webdataset

    pictures = {f"{i:04d}": picture(i) for i in range(10)}
    with webdataset.ShardWriter(str(tmp_path / "set-%02d.tar"), maxcount=4, verbose=0) as sink:
        for i, (key, data) in enumerate(pictures.items()):
            labels = {"labels": ["cat", "dog"], "negatives": ["owl"]} if i % 2 else {"label": "owl"}
            sink.write({"__key__": key, "jpg": data, "json": labels})
    for pattern in (tmp_path / "set-{00..02}.tar", tmp_path / "set-*.tar", tmp_path):
        splits = load_dataset(str(pattern), kind="shards", validation=0)
        assert splits.class_names == ("cat", "dog", "owl")
        assert [name.partition(":")[2] for name in splits.train.source.paths] == list(pictures)
        for row, data in enumerate(pictures.values()):
            np.testing.assert_array_equal(splits.train.source.square(row, 16), square_image(data, 16))
        np.testing.assert_array_equal(splits.train.observed.to_dense()[:2], [[0, 0, 1], [1, 1, -1]])
    source = pickle.loads(pickle.dumps(splits.train.source))
    np.testing.assert_array_equal(source.take([7]).square(0, 16), square_image(pictures["0007"], 16))
    order = source.nearby_order(0, shards_at_once=1)
    assert sorted(order) == list(range(10))
    assert len({int(source.shard[row]) for row in order[:4]}) <= 2


def test_malformed_shards(tmp_path: Path, picture: Picture) -> None:
    import io

    def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))

    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        add(archive, "1.jpg", picture(1))
        add(archive, "1.cls", b"1")
        add(archive, "2.cls", b"0")
        add(archive, "3.jpg", picture(3))
        add(archive, "3.json", b"[not json")
        add(archive, "4.jpg", b"")
        add(archive, "4.cls", b"0")
    splits = load_dataset(tmp_path / "a.tar", class_names=["owl", "cat"], validation=0, verify="header")
    assert _positives(splits.train) == [{"cat"}, set()]
    assert splits.report.counts == {"empty-file": 1, "malformed": 2, "no-label": 1}
    data = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "b.tar").write_bytes(data[:2000])
    assert load_dataset(tmp_path / "b.tar", class_names=["owl", "cat"], validation=0).report.names("truncated") == [
        "b.tar"
    ]
    (tmp_path / "c.tar").write_bytes(b"not a tar file" * 100)
    with pytest.raises(DataError, match="no pictures found"):
        load_dataset(tmp_path / "c.tar")
    for bad in ("http://example.org/x-{0..3}.tar", str(tmp_path / "x-{0..3}.tar")):
        with pytest.raises(DataError, match=r"download them first|no such shard"):
            load_dataset(bad)


def test_own_labels_in_cocos_form(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "pictures").mkdir()
    names = ["a, b", "École", "cat"]
    images, annotations = [], []
    for i in range(10):
        Image.new("RGB", (20, 20), (i, 0, 0)).save(tmp_path / "pictures" / f"{i}.jpg")
        images.append({"id": 100 - i, "file_name": f"{i}.jpg"})
        for column in {i % 3, (i // 3) % 3} if i < 9 else ():
            annotations.append({"id": len(annotations), "image_id": 100 - i, "category_id": 7 * column})
    annotations.append({"id": 99, "image_id": 100, "category_id": 14, "score": 0.2})
    categories = [{"id": 7 * column, "name": name} for column, name in enumerate(names)]
    content = {"images": images, "categories": categories, "annotations": annotations}
    (tmp_path / "mine.json").write_text(json.dumps(content))
    for complete in (False, True):
        splits = load_dataset(tmp_path / "mine.json", root=tmp_path / "pictures", validation=0, complete=complete)
        assert splits.class_names == tuple(names)
        assert len(splits.train) == 9  # the tenth has no annotation
        assert splits.train.source.square(0, 8).shape == (8, 8, 3)
        labels = splits.train.true if complete else splits.train.observed.to_dense()
        for path, row in zip(splits.train.source.paths, labels, strict=True):
            i = int(path.removesuffix(".jpg"))
            assert {*np.flatnonzero(row == 1)} == {i % 3, (i // 3) % 3}
        assert (splits.train.true is not None) == complete
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(DataError, match=r"not an instances file \(KeyError\('categories'\)\); write it again"):
        load_dataset(tmp_path / "mine.json")
    (tmp_path / "mine.xml").write_text("<a/>")
    with pytest.raises(
        DataError, match=r"mine.xml: expected a folder or \.csv, .*\.json; or say which it is by -o kind="
    ):
        load_dataset(tmp_path / "mine.xml")


def test_columns_of_negatives_are_named(tmp_path: Path) -> None:
    from PIL import Image

    for name in "ab":
        Image.new("RGB", (20, 20)).save(tmp_path / f"{name}.jpg")
    (tmp_path / "t.csv").write_text("path,label,lacks\na.jpg,cat,dog\nb.jpg,dog,\n")
    splits = load_dataset(tmp_path / "t.csv", negatives="lacks", validation=0)
    np.testing.assert_array_equal(splits.train.observed.to_dense(), [[1, -1], [0, 1]])
    with pytest.raises(DataError, match="no column 'missing'"):
        load_dataset(tmp_path / "t.csv", negatives="missing", validation=0)
    with pytest.raises(TypeError, match="folder: no option 'negatives'"):
        load_dataset(tmp_path, negatives="lacks")


def test_an_unknown_option_names_those_of_the_draw_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label\na.jpg,cat\n")
    with pytest.raises(TypeError, match=r"no option 'drop_seed'; it takes .*drop_options.*seed, separator.*split_seed"):
        load_dataset(tmp_path / "t.csv", drop_seed=5)


# --- matrices ----------------------------------------------------------------------------------------------------


def test_matrices(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 5)).astype(np.float32)
    Y = (rng.random((20, 3)) < 0.5).astype(np.uint8)
    Y[:, 0] = 1
    np.savez(tmp_path / "a.npz", X=X, true=Y, class_names=["a", "b", "c"], X_test=X[:4], true_test=Y[:4])
    np.save(tmp_path / "b.npy", X)
    np.save(tmp_path / "y.npy", Y)
    columns = {f"f{i}": X[:, i] for i in range(5)} | {name: Y[:, i] for i, name in enumerate("abc")}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    pq.write_table(pa.table({"X": list(X), **{n: Y[:, i] for i, n in enumerate("abc")}}), tmp_path / "d.parquet")
    loads = [
        load_dataset(tmp_path / "a.npz"),
        load_dataset(tmp_path / "b.npy", labels=tmp_path / "y.npy", class_names=["a", "b", "c"]),
        load_dataset(tmp_path / "c.parquet", kind="matrix", labels=["a", "b", "c"]),
        load_dataset(tmp_path / "d.parquet", kind="matrix", labels=["a", "b", "c"]),
    ]
    first, held = split_rows(20, 0.2)
    for splits in loads:
        assert isinstance(splits.train, FeatureDataset)
        np.testing.assert_array_equal(splits.train.X, X[first])
        np.testing.assert_array_equal(splits.validation.true, Y[held])
        assert splits.class_names == ("a", "b", "c")
        assert splits.train.observed == loads[0].train.observed
    np.testing.assert_array_equal(loads[0].test.X, X[:4])
    ternary = Y.astype(np.int8) * 2 - 1
    ternary[3] = 0
    X[5, 2] = np.nan
    np.savez(tmp_path / "t.npz", features=X, y=ternary)
    splits = load_dataset(tmp_path / "t.npz", validation=0, verify="none")  # `onelabel data check` asks so of any data
    assert splits.train.true is None
    assert len(splits.train) == 19
    assert splits.report.names("malformed") == ["t.npz: train row 5"]
    np.testing.assert_array_equal(splits.train.observed.to_dense(), np.delete(ternary, 5, 0))


def test_observed_labels_are_no_clean_ones(tmp_path: Path) -> None:
    """Whether or not anything is known to be absent: the array's name says what it is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 5)).astype(np.float32)
    true = (rng.random((20, 3)) < 0.5).astype(np.uint8)
    true[:, 0] = 1
    observed = drop_labels(true, positives=2).to_dense()
    np.savez(tmp_path / "o.npz", X=X, observed=observed, X_test=X, observed_test=observed, true_test=true)
    np.savez(tmp_path / "both.npz", X=X, observed=observed, true=true)
    np.savez(tmp_path / "signs.npz", X=X, observed=observed, true=2 * true.astype(int) - 1)
    alone, *both = (load_dataset(tmp_path / f"{name}.npz") for name in ("o", "both", "signs"))
    first, held = split_rows(20, 0.2)
    assert alone.train.true is None
    assert alone.validation.true is None
    np.testing.assert_array_equal(alone.test.true, true)
    for splits in (alone, *both):
        np.testing.assert_array_equal(splits.train.observed.to_dense(), observed[first])
        np.testing.assert_array_equal(splits.validation.observed.to_dense(), observed[held])
    for splits in both:
        np.testing.assert_array_equal(splits.train.true, true[first])
    np.savez(tmp_path / "bad.npz", X=X, observed=observed, true=1 - true)
    with pytest.raises(DataError, match="row 0, 0: observed and true contradict each other"):
        load_dataset(tmp_path / "bad.npz")
    np.savez(tmp_path / "bad.npz", X=X, true=np.where(true, 1, rng.integers(-1, 1, (20, 3))))
    with pytest.raises(DataError, match="call it observed if 0 means unknown"):
        load_dataset(tmp_path / "bad.npz")


ARFF = """% a comment
@relation 'birds: -C 2'
@attribute owl {0,1}
@attribute 'black bird' {0, 1}
@attribute size numeric
@attribute "colour of wing" {red,'dark blue',green}
@attribute tame {no,yes}
@data
1,0,2.5,red,no
0,1,?,'dark blue',yes
{0 1, 2 -1e3, 3 green}
"""


def test_arff(tmp_path: Path) -> None:
    (tmp_path / "a.arff").write_text(ARFF)
    splits = load_dataset(tmp_path / "a.arff", validation=0)
    assert splits.class_names == ("owl", "black bird")
    np.testing.assert_array_equal(splits.train.X, [[2.5, 1, 0, 0, 0], [-1000, 0, 0, 1, 0]])
    np.testing.assert_array_equal(splits.train.true, [[1, 0], [1, 0]])
    assert splits.report.names("malformed") == ["a.arff: train row 1"]
    (tmp_path / "m.arff").write_text(ARFF.replace(" -C 2", "").replace("?", "1"))
    (tmp_path / "m.xml").write_text(
        '<labels xmlns="http://mulan"><label name="black bird"/><label name="owl"/></labels>'
    )
    mulan = load_dataset(tmp_path / "m.arff", validation=0)
    assert mulan.class_names == ("black bird", "owl")
    np.testing.assert_array_equal(mulan.train.true, [[0, 1], [1, 0], [0, 1]])
    (tmp_path / "m-train.arff").write_text(ARFF.replace(" -C 2", "").replace("?", "1"))
    assert load_dataset(tmp_path / "m-train.arff", validation=0).test is None
    (tmp_path / "m-test.arff").write_text(ARFF.replace(" -C 2", "").replace("?", "7"))
    parts = load_dataset(tmp_path / "m-train.arff", validation=0)  # as Mulan's sets come: m.xml is of both
    assert parts.class_names == ("black bird", "owl")
    np.testing.assert_array_equal(parts.train.X[:, 0], [2.5, 1, -1000])
    np.testing.assert_array_equal(parts.test.X[:, 0], [2.5, 7, -1000])
    np.testing.assert_array_equal(parts.test.true, mulan.train.true)
    (tmp_path / "m-test.arff").write_text(ARFF.replace("@attribute tame {no,yes}\n", "").replace(",no\n", "\n"))
    with pytest.raises(DataError, match=r"m-test\.arff"):
        load_dataset(tmp_path / "m-train.arff")
    (tmp_path / "q.arff").write_text(ARFF.replace("'black bird'", "'o\\'clock'"))
    (tmp_path / "q.xml").write_text('<labels><label name="o\\\'clock"/></labels>')  # as delicious.xml has it
    assert load_dataset(tmp_path / "q.arff", validation=0).class_names == ("o'clock",)
    (tmp_path / "n.arff").write_text(ARFF.replace(" -C 2", ""))
    with pytest.raises(DataError, match="which attributes are labels"):
        load_dataset(tmp_path / "n.arff")
    for bad in ("1,0,2.5,red", "1,0,x,red,no", "1,0,1,pink,no", "{9 1}"):
        (tmp_path / "b.arff").write_text(ARFF + bad + "\n")
        with pytest.raises(DataError, match=r"b\.arff:12"):
            load_dataset(tmp_path / "b.arff")


def test_matrices_that_cannot_work(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros((3, 2)))
    with pytest.raises(DataError, match="expected X and one of"):
        load_dataset(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=np.zeros((3, 2)), y=np.zeros((2, 2)))
    with pytest.raises(DataError, match="labels of shape"):
        load_dataset(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", X=np.zeros((3, 2)), y=np.full((3, 2), 5))
    with pytest.raises(DataError, match="labels hold 5"):
        load_dataset(tmp_path / "c.npz")
    np.savez(tmp_path / "n.npz", X=np.zeros((3, 2)), y=np.eye(3, 2), class_names="cat")
    with pytest.raises(DataError, match=r"class names of shape \(\); expected one name a class"):
        load_dataset(tmp_path / "n.npz")
    np.savez(tmp_path / "w.npz", X=np.zeros((3, 2)), y=np.eye(3, 2), X_test=np.zeros((3, 4)), y_test=np.eye(3, 2))
    with pytest.raises(DataError, match=r"w\.npz: the test part has 4 features, expected 2 as in training"):
        load_dataset(tmp_path / "w.npz")
    np.savez(tmp_path / "d.npz", X=np.array([{}, {}], dtype=object), y=np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"d\.npz"):
        load_dataset(tmp_path / "d.npz")  # a pickle is never loaded
    (tmp_path / "e.npy").write_bytes(b"")
    with pytest.raises(DataError, match="labels"):
        load_dataset(tmp_path / "e.npy")


def test_an_empty_folder_names_the_remedy_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as told:
        load_dataset(tmp_path / "empty")
    assert str(told.value) == (
        "empty: no pictures found; give a folder with a folder of pictures per class, or a table"
    )  # and not "no problems"
    (tmp_path / "empty" / "notes.txt").write_text("nothing")
    with pytest.raises(DataError, match=r"no pictures found; 1 not-a-picture.*notes\.txt; give a folder with a folder"):
        load_dataset(tmp_path / "empty")


def test_phones_pictures_are_left_out_aloud_and_what_systems_leave_is_no_loss(
    tmp_path: Path, picture: Callable[..., bytes]
) -> None:
    for name in ("cat/1.jpg", "dog/2.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(picture())
    for junk in ("Thumbs.db", "desktop.ini", ".DS_Store", "cat/Thumbs.db", "cat/._1.jpg"):
        (tmp_path / junk).write_bytes(b"junk")
    found = load_dataset(tmp_path, validation=0).report
    assert (found.lost, found.names("no-class")) == (0, [])
    phone = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99)
    for name in ("cat/3.HEIC", "dog/4.jpg"):
        (tmp_path / name).write_bytes(phone)
    found = load_dataset(tmp_path, validation=0).report
    assert (found.lost, found.names("other-format"), found.names("broken")) == (2, ["cat/3.HEIC"], ["dog/4.jpg"])
    assert found.text().count("convert it to JPEG") == 2


def test_a_single_class_that_every_row_has(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    from onelabel.data.own import only_class

    (tmp_path / "one" / "cat").mkdir(parents=True)
    for number in range(4):
        (tmp_path / "one" / "cat" / f"{number}.jpg").write_bytes(picture(number))
    told = only_class(load_dataset(tmp_path / "one"))
    assert told == "one: only the class 'cat' was found, and every row has it; a folder per class is needed"
    table = tmp_path / "one" / "rows.csv"
    table.write_text("path,label\ncat/0.jpg,cat\ncat/1.jpg,\ncat/2.jpg,cat\n")
    assert load_dataset(table, validation=0).class_names == ("cat",)
    assert only_class(load_dataset(table, validation=0)) == ""  # rows without it are something to learn
