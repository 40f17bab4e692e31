"""WebDataset shards: whose samples are whose, and what their labels mean."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from onelabel.data import load_dataset, square_image

Picture = Callable[..., bytes]


def _shard(file: Path, members: Mapping[str, bytes]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_keys_that_begin_anew_in_every_shard_are_other_pictures(tmp_path: Path, picture: Picture) -> None:
    pictures: dict[str, bytes] = {}
    for shard in ("a/train-000", "b/train-000", "b/val-000"):  # the shards' own names repeat too
        members = {}
        for key in range(4):
            data = pictures[f"{shard}.tar:{key:03d}"] = picture(len(pictures))
            members |= {f"{key:03d}.jpg": data, f"{key:03d}.cls": f"{shard} {key}".encode()}
        _shard(tmp_path / f"{shard}.tar", members)
    splits = load_dataset(str(tmp_path / "*" / "*.tar"), kind="shards")
    assert {name: len(part) for name, part in splits.parts.items()} == {"train": 8, "validation": 4}
    assert set(splits.report.counts) == {"untrained"}  # every picture has a class of its own
    for part in splits.parts.values():
        for row, name in enumerate(part.source.paths):
            np.testing.assert_array_equal(part.source.square(row, 16), square_image(pictures[name], 16))
            known = np.flatnonzero(part.observed.to_dense()[row])
            assert [part.class_names[c] for c in known] == [name.replace(".tar:00", " ")]


def test_a_label_of_null_is_no_class(tmp_path: Path, picture: Picture) -> None:
    said = ['{"label": "cat", "negatives": null}', '{"label": null}', '{"labels": null, "label": "dog"}']
    said += ['{"labels": ["cat", null, ""], "negatives": ["dog", null]}', "{}"]
    members = {f"{i}.json": text.encode() for i, text in enumerate(said)}
    _shard(tmp_path / "a.tar", members | {f"{i}.jpg": picture(i) for i in range(7)} | {"5.cls": b"\n"})
    splits = load_dataset(tmp_path / "a.tar", validation=0)
    assert splits.class_names == ("cat", "dog")
    order = [int(name[-1]) for name in splits.train.source.paths]
    expected = np.array([[1, 0], [0, 0], [0, 1], [1, -1], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(splits.train.observed.to_dense(), expected[order])
    assert splits.report.counts == {"no-label": 4}


@pytest.mark.parametrize("kind", ["list", "file"])
def test_class_numbers_count_in_the_class_names_given(tmp_path: Path, picture: Picture, kind: str) -> None:
    members = {f"{i}.jpg": picture(i) for i in range(4)} | {f"{i}.cls": str(i % 2).encode() for i in range(4)}
    _shard(tmp_path / "a.tar", members | {"4.jpg": picture(4), "4.json": json.dumps({"negatives": [1]}).encode()})
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    given = ["cat", "dog"] if kind == "list" else tmp_path / "names.txt"
    splits = load_dataset(tmp_path / "a.tar", validation=0, class_names=given)
    assert splits.class_names == ("cat", "dog")
    order = [int(name[-1]) for name in splits.train.source.paths]
    expected = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [0, -1]])
    np.testing.assert_array_equal(splits.train.observed.to_dense(), expected[order])
