"""Readers of the benchmarks' official files: VOC, COCO, NUS-WIDE, CUB, and the packed features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from fuzz_readers import load, picture, reader

from onelabel.data.voc import CLASS_NAMES


def _voc(folder: Path) -> None:
    tree = folder / "VOCdevkit" / "VOC2012"
    for name in ("ImageSets/Main", "JPEGImages", "Annotations"):
        (tree / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    codes = rng.choice([-1, 0, 1], size=(8, 20), p=[0.8, 0.05, 0.15])
    codes[:, 3] = 1
    ids = [f"2008_{i:06d}" for i in range(8)]
    for name, part in (("train", slice(0, 5)), ("val", slice(5, None))):
        (tree / f"ImageSets/Main/{name}.txt").write_text("\n".join(ids[part]) + "\n")
        for c, label in enumerate(CLASS_NAMES):
            lines = [f"{i} {v:2d}" for i, v in zip(ids[part], codes[part, c], strict=True)]
            (tree / f"ImageSets/Main/{label}_{name}.txt").write_text("\n".join(lines) + "\n")
    for i, identifier in enumerate(ids):
        (tree / f"JPEGImages/{identifier}.jpg").write_bytes(picture(i))
        boxes = "".join(
            f"<object><name>{CLASS_NAMES[c]}</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>1</ymin>"
            f"<xmax>{c + 1}</xmax><ymax>7</ymax></bndbox></object>"
            for c in np.flatnonzero(codes[i] == 1)
        )
        size = "<size><width>20</width><height>14</height></size>"
        (tree / f"Annotations/{identifier}.xml").write_text(f"<annotation>{size}{boxes}</annotation>")


VOC = ("**/Main/train.txt", "**/Main/boat_train.txt", "**/Main/cat_val.txt", "**/2008_000001.xml", "**/2008_000002.xml")


@reader("voc", *VOC, make=_voc)
def _(folder: Path) -> None:
    load("voc2012", root=folder, drop="size")


def _coco(folder: Path) -> None:
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}, {"id": 90, "name": "toothbrush"}]
    (folder / "annotations").mkdir()
    for name, ids in (("train2014", [9, 10, 100, 25]), ("val2014", [42, 5])):
        (folder / name).mkdir()
        images = [{"id": i, "file_name": f"{i}.jpg", "width": 20, "height": 14} for i in ids]
        found = [
            {"id": n, "image_id": i, "category_id": (1, 18, 90)[n % 3], "area": 14.0 * n, "segmentation": [[1, 2]]}
            for n, i in enumerate(ids * 2)
        ]
        content = {"images": images, "annotations": found, "categories": categories}
        (folder / "annotations" / f"instances_{name}.json").write_text(json.dumps(content))
        for i in ids:
            (folder / name / f"{i}.jpg").write_bytes(picture(i))


@reader("coco", "annotations/*.json", make=_coco)
def _(folder: Path) -> None:
    load("coco2014", root=folder, drop="size")


def _nuswide(folder: Path) -> None:
    for name in ("ConceptsList", "ImageList", "Groundtruth/TrainTestLabels", "Flickr/actor"):
        (folder / name).mkdir(parents=True)
    (folder / "ConceptsList/Concepts81.txt").write_text("airport\r\nanimal\r\nsky\r\n")
    paths = [f"actor\\{i:04d}.jpg" for i in range(12)]
    for name, part in (("Train", slice(0, 8)), ("Test", slice(8, None))):
        (folder / f"ImageList/{name}Imagelist.txt").write_text("\n".join(paths[part]) + "\n")
        for c, concept in enumerate(("airport", "animal", "sky")):
            lines = "\n".join(str(int(i % 3 == c)) for i in range(12)[part])
            (folder / f"Groundtruth/TrainTestLabels/Labels_{concept}_{name}.txt").write_text(lines + "\n")
    for i, path in enumerate(paths):
        (folder / "Flickr" / path.replace("\\", "/")).write_bytes(picture(i))


@reader("nuswide", "**/*.txt", make=_nuswide)
def _(folder: Path) -> None:
    load("nuswide", root=folder, validation=0.25)


def _cub(folder: Path) -> None:
    tree = folder / "CUB_200_2011"
    (tree / "attributes").mkdir(parents=True)
    (tree / "images" / "001.A").mkdir(parents=True)
    (folder / "attributes.txt").write_text("".join(f"{a + 1} has_x::{a}\n" for a in range(4)))
    (tree / "images.txt").write_text("".join(f"{i + 1} 001.A/{i}.jpg\n" for i in range(6)))
    (tree / "train_test_split.txt").write_text("".join(f"{i + 1} {int(i < 4)}\n" for i in range(6)))
    lines = [f"{i + 1} {a + 1} {int(a in (i % 4, i % 3))} 3 27.7" for i in range(6) for a in range(4)]
    (tree / "attributes" / "image_attribute_labels.txt").write_text("\n".join(lines) + "\n")
    for i in range(6):
        (tree / "images" / "001.A" / f"{i}.jpg").write_bytes(picture(i))


@reader("cub", "**/*.txt", make=_cub)
def _(folder: Path) -> None:
    load("cub", root=folder)


def _packed(folder: Path) -> None:
    rng = np.random.default_rng(0)
    true = (rng.random((30, 3)) < 0.4).astype(np.uint8)
    true[:, 0] |= ~true.any(1)
    observed = np.zeros((20, 3), np.int8)
    observed[np.arange(20), true[:20].argmax(1)] = 1
    names, images = np.array(["a", "b", "c"]), np.array([f"{i:03d}" for i in range(20)])
    np.savez(
        folder / "labels.npz", train_true=true[:20], test_true=true[20:], train_observed_uniform1200=observed,
        classes=names, train_images=images,
    )  # fmt: skip
    q = rng.integers(0, 256, (30, 5), dtype=np.uint8)
    np.savez(folder / "features-resnet50-448.npz", train=q[:20], test=q[20:], peak=np.float32(3))


@reader("packed features", "*.npz", make=_packed)
def _(folder: Path) -> None:
    from onelabel.probes.role_table import load_voc_features

    load_voc_features(folder)


@reader("packed features to recover", "*.npz", make=_packed)
def _(folder: Path) -> None:
    from onelabel.recovery.inputs import load_inputs

    load_inputs(folder)
