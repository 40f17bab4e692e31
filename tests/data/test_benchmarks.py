"""The four benchmarks' loaders on hand-made archives in the official layouts, and VOC on the real lists."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onelabel.data import DataError, coco_object_sizes, load_dataset, split_rows, statistics, voc_object_sizes
from onelabel.data.archives import extract
from onelabel.data.check import check
from onelabel.data.voc import CLASS_NAMES as VOC_NAMES

# --- VOC ---------------------------------------------------------------------------------------------------------


def _voc_tree(root: Path, picture: Callable[..., bytes], train: int = 10, val: int = 6) -> np.ndarray:
    """An official tree; returns the 0/1 labels of train then val."""
    tree = root / "VOCdevkit" / "VOC2012"
    for folder in ("ImageSets/Main", "JPEGImages", "Annotations"):
        (tree / folder).mkdir(parents=True)
    rng = np.random.default_rng(0)
    codes = rng.choice([-1, 0, 1], size=(train + val, 20), p=[0.8, 0.05, 0.15])
    codes[:, 3] = 1
    ids = [f"2008_{i:06d}" for i in range(train + val)]
    for name, part in (("train", slice(0, train)), ("val", slice(train, None))):
        (tree / f"ImageSets/Main/{name}.txt").write_text("\n".join(ids[part]) + "\n")
        for c, label in enumerate(VOC_NAMES):
            lines = [f"{i} {v:2d}" for i, v in zip(ids[part], codes[part, c], strict=True)]
            (tree / f"ImageSets/Main/{label}_{name}.txt").write_text("\n".join(lines) + "\n")
    for i, identifier in enumerate(ids):
        (tree / f"JPEGImages/{identifier}.jpg").write_bytes(picture(i))
        boxes = "".join(
            f"<object><name>{VOC_NAMES[c]}</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>1</ymin>"
            f"<xmax>{c + 1}</xmax><ymax>7</ymax></bndbox></object>"
            for c in np.flatnonzero(codes[i] == 1)
        )
        (tree / f"Annotations/{identifier}.xml").write_text(
            f"<annotation><size><width>20</width><height>14</height></size>{boxes}</annotation>"
        )
    return (codes == 1).astype(np.uint8)


def test_voc_from_an_official_archive(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    true = _voc_tree(tmp_path / "made", picture)
    with tarfile.open(tmp_path / "VOCtrainval_11-May-2012.tar", "w") as archive:
        archive.add(tmp_path / "made" / "VOCdevkit", "VOCdevkit")
    extract(tmp_path / "VOCtrainval_11-May-2012.tar", tmp_path / "data" / "voc2012")
    splits = load_dataset("voc2012", root=tmp_path / "data")
    assert splits.class_names == VOC_NAMES
    first, held = split_rows(10, 0.2)
    np.testing.assert_array_equal(splits.train.true, true[first])
    np.testing.assert_array_equal(splits.validation.true, true[held])
    np.testing.assert_array_equal(splits.test.true, true[10:])
    assert splits.train.source.read(0).shape == (14, 20, 3)
    assert len(splits.report) == 0
    assert (splits.train.observed.positives_per_row() == 1).all()
    dense = splits.train.observed.to_dense()
    assert (splits.train.true[dense == 1] == 1).all()


def test_voc_malformed_lines_missing_pictures_and_lists(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    _voc_tree(tmp_path, picture)
    whole = load_dataset("voc2012", root=tmp_path)
    main = tmp_path / "VOCdevkit/VOC2012/ImageSets/Main"
    (tmp_path / "VOCdevkit/VOC2012/JPEGImages/2008_000004.jpg").unlink()
    lines = (main / "cat_train.txt").read_text().splitlines()
    (main / "cat_train.txt").write_text("\n".join([*lines[:-1], "nonsense", "9999_000000 1", "2008_000001 7"]))
    splits = load_dataset("voc2012", root=tmp_path)
    assert splits.report.names("missing") == ["JPEGImages/2008_000004.jpg"]
    assert splits.report.counts["malformed"] == 4  # three bad lines, one picture without a line
    assert "cat_train.txt:10" in splits.report.names("malformed")
    # What is missing from the disk changes neither the draw nor the split.
    kept = [path in splits.train.source.paths for path in whole.train.source.paths]
    assert splits.train.source.paths == [p for p, k in zip(whole.train.source.paths, kept, strict=True) if k]
    with pytest.raises(DataError, match=r"cat_train.txt:10"):
        load_dataset("voc2012", root=tmp_path, strict=True)
    (main / "dog_val.txt").unlink()
    with pytest.raises(DataError, match=r"dog_val\.txt.*extract"):
        load_dataset("voc2012", root=tmp_path)
    with pytest.raises(DataError, match=r"ImageSets/Main; `onelabel data download voc2012 --root .*` fetches voc2012"):
        load_dataset("voc2012", root=tmp_path / "elsewhere")


def test_voc_without_any_picture_says_so(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    _voc_tree(tmp_path, picture)
    for file in (tmp_path / "VOCdevkit/VOC2012/JPEGImages").iterdir():
        file.unlink()
    with pytest.raises(DataError, match="none of the 10 listed pictures is there"):
        load_dataset("voc2012", root=tmp_path)
    assert len(load_dataset("voc2012", root=tmp_path, pictures=False).train) == 8


def test_voc_object_sizes(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    true = _voc_tree(tmp_path, picture)
    sizes = voc_object_sizes(tmp_path, [f"2008_{i:06d}" for i in range(16)])
    expected = true * (np.arange(1, 21) * 7 / (20 * 14))
    np.testing.assert_allclose(sizes, expected, rtol=1e-6)
    splits = load_dataset("voc2012", root=tmp_path, drop="size")
    assert (splits.train.observed.positives_per_row() == 1).all()
    biggest = load_dataset("voc2012", root=tmp_path, drop="size", drop_options={"power": 500.0}, validation=0)
    _, cols = biggest.train.observed.positive_index()
    np.testing.assert_array_equal(cols, expected[:10].argmax(1))
    bad = tmp_path / "VOCdevkit/VOC2012/Annotations/2008_000000.xml"
    bad.write_text("<!DOCTYPE x [<!ENTITY a 'b'>]><annotation/>")
    from onelabel.data import Report

    report = Report()
    voc_object_sizes(tmp_path, ["2008_000000", "none"], report=report)
    assert report.counts == {"malformed": 2}


@pytest.fixture(scope="module")
def voc_lists(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real label lists, with empty files for pictures: labels need no pixels."""
    root = tmp_path_factory.mktemp("voc")
    tree = root / "VOCdevkit" / "VOC2012"
    with zipfile.ZipFile(shared_data / "voc2012" / "ImageSets-Main.zip") as archive:
        archive.extractall(tree)
    (tree / "JPEGImages").mkdir()
    labels = np.load(shared_data / "voc2012" / "labels.npz")
    for name in [*labels["train_images"], *labels["test_images"]]:
        (tree / "JPEGImages" / str(name)).touch()
    return root


@pytest.mark.shared
def test_voc_is_as_published_cell_by_cell(voc_lists: Path, shared_data: Path) -> None:
    labels = np.load(shared_data / "voc2012" / "labels.npz")
    assert list(labels["classes"]) == list(VOC_NAMES)
    whole = load_dataset("voc2012", root=voc_lists, validation=0)
    np.testing.assert_array_equal(whole.train.true, labels["train_true"])
    np.testing.assert_array_equal(whole.test.true, labels["test_true"])
    np.testing.assert_array_equal(whole.train.observed.to_dense(), labels["train_observed_uniform1200"])
    assert [path.split("/")[1] for path in whole.train.source.paths] == list(labels["train_images"])
    assert [path.split("/")[1] for path in whole.test.source.paths] == list(labels["test_images"])
    splits = load_dataset("voc2012", root=voc_lists)
    assert {name: len(part) for name, part in splits.parts.items()} == {"train": 4574, "validation": 1143, "test": 5823}
    order = np.random.RandomState(1200).permutation(5717)
    held = np.sort(order[-1143:])
    np.testing.assert_array_equal(splits.validation.true, labels["train_true"][held])
    np.testing.assert_array_equal(
        splits.train.observed.to_dense(), labels["train_observed_uniform1200"][np.sort(order[:-1143])]
    )
    numbers = statistics(splits)
    assert f"{numbers.mean:.2f} / {numbers.mean_negative:.2f}" == "1.46 / 18.54"
    assert (numbers.lowest, numbers.highest) == (1, 5)
    printed = {5: (1.0, 2.0), 10: (1.1, 1.9), 25: (1.2, 1.7)}
    assert {m: (round(a, 1), round(b, 1)) for m, (a, b) in numbers.intervals.items()} == printed
    other = load_dataset("voc2012", root=voc_lists, seed=7)
    assert other.train.source.paths != splits.train.source.paths
    assert len(other.train) == 4574


@pytest.mark.shared
def test_voc_check_says_as_published(voc_lists: Path) -> None:
    outcome = check("voc2012", voc_lists)
    assert outcome.ok, outcome.text()
    (voc_lists / "VOCdevkit/VOC2012/JPEGImages/2008_000008.jpg").rename(voc_lists / "aside.jpg")
    try:
        worse = check("voc2012", voc_lists)
    finally:
        (voc_lists / "aside.jpg").rename(voc_lists / "VOCdevkit/VOC2012/JPEGImages/2008_000008.jpg")
    assert not worse.ok
    assert "2008_000008.jpg" in worse.text()
    assert "expected 4574" in worse.text() or "expected 1143" in worse.text()
    assert "VOCtrainval_11-May-2012.tar" in worse.text()


@pytest.mark.shared
def test_voc_tree_of_unpack_voc(shared_data: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(shared_data / "unpack_voc.py"), str(tmp_path), "--limit", "12"]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(DataError, match="none of the 5,823 listed pictures"):
        load_dataset("voc2012", root=tmp_path)
    (tmp_path / "VOCdevkit/VOC2012/JPEGImages/2008_000002.jpg").write_bytes(b"")  # one of the val list
    loaded = load_dataset("voc2012", root=tmp_path, validation=0)
    assert (len(loaded.train), len(loaded.test)) == (12, 1)
    assert loaded.report.counts == {"missing": 5717 - 12 + 5823 - 1}
    assert loaded.train.source.square(0, 448).shape == (448, 448, 3)


# --- COCO --------------------------------------------------------------------------------------------------------


def _coco_tree(root: Path, picture: Callable[..., bytes]) -> None:
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}, {"id": 90, "name": "toothbrush"}]
    rng = np.random.default_rng(1)
    (root / "annotations").mkdir(parents=True)
    for folder, ids in (("train2014", [9, 10, 100, 25, 1000, 7]), ("val2014", [42, 5, 300])):
        (root / folder).mkdir()
        images = [
            {"id": i, "file_name": f"COCO_{folder}_{i:012d}.jpg", "width": 20, "height": 14, "coco_url": "x"}
            for i in ids
        ]
        annotations = [
            {
                "id": n,
                "image_id": i,
                "category_id": int(c),
                "area": 14.0 * (n + 1),
                "iscrowd": 0,
                "segmentation": [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]],
            }
            for n, (i, c) in enumerate((i, c) for i in ids if i != 7 for c in rng.choice([1, 18, 90], 2))
        ]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (root / "annotations" / f"instances_{folder}.json").write_text(json.dumps(content))
        for i in ids:
            (root / folder / f"COCO_{folder}_{i:012d}.jpg").write_bytes(picture(i))


def test_coco_order_and_labels(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    _coco_tree(tmp_path / "coco2014", picture)
    splits = load_dataset("coco2014", root=tmp_path, validation=0)
    ids = [int(path[-16:-4]) for path in splits.train.source.paths]
    assert ids == [10, 100, 1000, 25, 9]  # as strings; 7 has no annotation
    assert splits.class_names == ("person", "dog", "toothbrush")
    content = json.loads((tmp_path / "coco2014/annotations/instances_train2014.json").read_text())
    expected = {(a["image_id"], {1: 0, 18: 1, 90: 2}[a["category_id"]]) for a in content["annotations"]}
    found = {(ids[r], int(c)) for r, c in zip(*np.nonzero(splits.train.true), strict=True)}
    assert found == expected
    assert [int(path[-16:-4]) for path in splits.test.source.paths] == [300, 42, 5]
    assert splits.test.source.read(0).shape == (14, 20, 3)
    sizes = coco_object_sizes(tmp_path / "coco2014/annotations/instances_train2014.json")
    for row, identifier in enumerate(ids):
        for c, category in enumerate((1, 18, 90)):
            areas = [
                a["area"] for a in content["annotations"] if (a["image_id"], a["category_id"]) == (identifier, category)
            ]
            assert sizes[row, c] == pytest.approx(min(1.0, max(areas, default=0) / 280))
    assert len(load_dataset("coco2014", root=tmp_path, drop="size").train) == 4


def test_coco_malformed(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    _coco_tree(tmp_path, picture)
    file = tmp_path / "annotations/instances_train2014.json"
    content = json.loads(file.read_text())
    good = len(content["annotations"])
    content["annotations"] += [
        {"image_id": 9},
        {"image_id": 9, "category_id": 777},
        {"image_id": 31337, "category_id": 1},
    ]
    content["images"][0]["file_name"] = "../../etc/passwd"
    file.write_text(json.dumps(content))
    splits = load_dataset("coco2014", root=tmp_path, validation=0)
    assert splits.report.counts == {"malformed": 3, "outside": 1}
    assert good
    assert len(splits.train) == 4
    file.write_text(file.read_text()[:-50])
    with pytest.raises(DataError, match="not an instances file"):
        load_dataset("coco2014", root=tmp_path)
    file.write_text("{}")
    with pytest.raises(DataError, match="categories"):
        load_dataset("coco2014", root=tmp_path)
    outcome = check("coco2014", tmp_path)
    assert not outcome.ok
    assert "annotations_trainval2014.zip" in outcome.text()


# --- NUS-WIDE ----------------------------------------------------------------------------------------------------


def _nus_tree(
    root: Path, picture: Callable[..., bytes], train: int = 14, test: int = 7
) -> tuple[list[str], np.ndarray]:
    names = ["airport", "animal", "sky"]
    (root / "ConceptsList").mkdir(parents=True)
    (root / "ConceptsList/Concepts81.txt").write_text("\r\n".join(names) + "\r\n")
    (root / "ImageList").mkdir()
    (root / "Groundtruth/TrainTestLabels").mkdir(parents=True)
    rng = np.random.default_rng(2)
    true = (rng.random((train + test, 3)) < 0.4).astype(np.uint8)
    true[0] = 0  # a picture without any concept
    paths = [f"actor\\{i:04d}_{i * 7}.jpg" for i in range(train + test)]
    for name, part in (("Train", slice(0, train)), ("Test", slice(train, None))):
        (root / f"ImageList/{name}Imagelist.txt").write_text("\n".join(paths[part]) + "\n")
        for c, concept in enumerate(names):
            file = root / f"Groundtruth/TrainTestLabels/Labels_{concept}_{name}.txt"
            file.write_text("\n".join(map(str, true[part, c])) + "\n")
    (root / "Flickr/actor").mkdir(parents=True)
    for i, path in enumerate(paths):
        (root / "Flickr" / path.replace("\\", "/")).write_bytes(picture(i))
    return [path.replace("\\", "/") for path in paths], true


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_nuswide_published_and_official(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    paths, true = _nus_tree(tmp_path / "nuswide", picture)
    official = load_dataset("nuswide", root=tmp_path, split="official", validation=0)
    assert [p.removeprefix("Flickr/") for p in official.train.source.paths] == paths[:14]
    np.testing.assert_array_equal(official.test.true, true[14:])
    assert official.train.observed.positives_per_row()[0] == 0  # legal, and unknown
    published = load_dataset("nuswide", root=tmp_path, validation=0)
    assert (len(published.train), len(published.test)) == (15, 6)  # 150,000 of 210,260
    everything = {*published.train.source.paths, *published.test.source.paths}
    assert everything == {f"Flickr/{path}" for path in paths}
    for part in published.parts.values():
        rows = [paths.index(p.removeprefix("Flickr/")) for p in part.source.paths]
        assert rows == sorted(rows)
        np.testing.assert_array_equal(part.true, true[rows])
    (tmp_path / "nuswide/Flickr" / paths[3]).unlink()
    scraped = load_dataset("nuswide", root=tmp_path, validation=0)
    assert len(scraped.train) + len(scraped.test) == 20
    assert scraped.report.names("missing") == [f"Flickr/{paths[3]}"]


def test_nuswide_full_size_split() -> None:
    from onelabel.data import Draw
    from onelabel.data.nuswide import _published

    train, test = _published(210_260, Draw())
    assert (len(train), len(test)) == (150_000, 60_260)
    assert len(np.union1d(train, test)) == 210_260
    train, test = _published(269_648, Draw())
    assert (len(train), len(test), len(np.intersect1d(train, test))) == (150_000, 60_260, 0)


def test_nuswide_malformed(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    _nus_tree(tmp_path, picture)
    labels = tmp_path / "Groundtruth/TrainTestLabels/Labels_sky_Train.txt"
    kept = labels.read_text()
    for bad in (kept + "1\n", kept.replace("1", "2", 1)):
        labels.write_text(bad)
        with pytest.raises(DataError, match=r"Labels_sky_Train.txt: expected 14 lines of 0 or 1"):
            load_dataset("nuswide", root=tmp_path)
    labels.unlink()
    with pytest.raises(DataError, match="data download nuswide"):
        load_dataset("nuswide", root=tmp_path)
    with pytest.raises(ValueError, match="split"):
        load_dataset("nuswide", root=tmp_path, split="mine")
    with pytest.raises(TypeError, match="no option 'splt'"):
        load_dataset("nuswide", root=tmp_path, splt="official")


# --- CUB ---------------------------------------------------------------------------------------------------------


def _cub_tree(root: Path, picture: Callable[..., bytes], count: int = 15, attributes: int = 6) -> np.ndarray:
    tree = root / "CUB_200_2011"
    (tree / "attributes").mkdir(parents=True)
    (tree / "images/001.Black_footed_Albatross").mkdir(parents=True)
    rng = np.random.default_rng(3)
    true = (rng.random((count, attributes)) < 0.5).astype(np.uint8)
    true[:, 0] = 1
    names = [f"001.Black_footed_Albatross/bird_{i}.jpg" for i in range(count)]
    (tree / "images.txt").write_text("".join(f"{i + 1} {name}\n" for i, name in enumerate(names)))
    (tree / "train_test_split.txt").write_text("".join(f"{i + 1} {int(i % 3 > 0)}\n" for i in range(count)))
    (root / "attributes.txt").write_text("".join(f"{a + 1} has_part::{a}\n" for a in range(attributes)))
    lines = []
    for i in range(count):
        for a in range(attributes):
            extra = " 0" if (i, a) == (4, 2) else ""  # the official file has such lines
            lines.append(f"{i + 1} {a + 1} {true[i, a]} {rng.integers(1, 5)}{extra} 12.5\n")
    (tree / "attributes/image_attribute_labels.txt").write_text("".join(lines))
    for i, name in enumerate(names):
        (tree / "images" / name).write_bytes(picture(i))
    return true


def test_cub(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    true = _cub_tree(tmp_path / "made", picture)
    with tarfile.open(tmp_path / "CUB_200_2011.tgz", "w:gz") as archive:
        for entry in sorted((tmp_path / "made").iterdir()):
            archive.add(entry, entry.name)
    extract(tmp_path / "CUB_200_2011.tgz", tmp_path / "data")
    splits = load_dataset("cub", root=tmp_path / "data", validation=0)
    train = np.arange(15) % 3 > 0
    np.testing.assert_array_equal(splits.train.true, true[train])
    np.testing.assert_array_equal(splits.test.true, true[~train])
    assert splits.class_names[0] == "has_part::0"
    assert len(splits.report) == 0
    assert splits.train.source.read(3).shape == (14, 20, 3)


def test_cub_malformed(tmp_path: Path, picture: Callable[..., bytes]) -> None:
    true = _cub_tree(tmp_path, picture)
    file = tmp_path / "CUB_200_2011/attributes/image_attribute_labels.txt"
    lines = file.read_text().splitlines()
    broken = ["x y z 1 1.0", "999 1 1 1 1.0", "1 99 1 1 1.0", "1 1", *lines[:-1]]
    file.write_text("\n".join(broken) + "\n")
    with (tmp_path / "CUB_200_2011/images.txt").open("a") as stream:
        stream.write("sixteen bird.jpg\n16 ../outside.jpg\n17 001/lost.jpg\n")
    splits = load_dataset("cub", root=tmp_path, validation=0)
    names = splits.report.names("malformed")
    assert "images.txt:16" in names
    assert "image_attribute_labels.txt" in names
    assert "train_test_split.txt: image 17" in names
    assert "image_attribute_labels.txt: image 15" in names
    details = [p.detail for p in splits.report if p.name == "image_attribute_labels.txt"]
    assert details[0].startswith("4 lines")
    assert splits.report.names("outside") == ["../outside.jpg"]
    true[14, 5] = 0  # its line is gone, which the report says
    np.testing.assert_array_equal(splits.train.true, true[np.arange(15) % 3 > 0])
    (tmp_path / "attributes.txt").unlink()
    with pytest.raises(DataError, match=r"attributes\.txt"):
        load_dataset("cub", root=tmp_path)


# --- all of them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "held"), [(5717, 1143), (82081, 16416), (150000, 30000), (5994, 1199)], ids=["voc", "coco", "nus", "cub"]
)
def test_split_sizes_are_the_published_ones(rows: int, held: int) -> None:
    first, last = split_rows(rows, 0.2)
    assert (len(first), len(last)) == (rows - held, held)
    order = np.random.RandomState(1200).permutation(rows)
    np.testing.assert_array_equal(last, np.sort(order[-held:]))
    np.testing.assert_array_equal(np.sort(np.concatenate([first, last])), np.arange(rows))
