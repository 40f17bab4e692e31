"""The feature cache: keys, interruption, flips, failures."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from onelabel.data import Dataset, features, load_dataset
from onelabel.data.augment import Augment
from onelabel.data.cache import weights_hash
from onelabel.data.journal import ChunkedArray


class Net(nn.Module):
    """A small backbone that counts the pictures it sees and can be interrupted."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, stride=2)
        self.seen, self.stop_after = 0, 10**9

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.seen > self.stop_after:
            raise KeyboardInterrupt
        self.seen += len(images)
        return torch.relu(self.conv(images))


@pytest.fixture(scope="module")
def scenes() -> Dataset:
    return load_dataset("digits-scenes", size=32, n_train=600, n_validation=0, n_test=0).train


def _expected(data: Dataset, size: int = 32, mirrored: bool = False) -> np.ndarray:
    net = Net().eval()
    images = torch.from_numpy(np.stack([data.source.square(i, size) for i in range(len(data))])).permute(0, 3, 1, 2)
    with torch.no_grad():
        return net(Augment()(images.flip(3) if mirrored else images)).mean((2, 3)).numpy()


def test_large_pictures_go_through_a_cpu_few_at_a_time(tmp_path: Path) -> None:
    class Batches(Net):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            sizes.append(len(images))
            return super().forward(images)

    few = load_dataset("digits-scenes", size=32, n_train=70, n_validation=0, n_test=0).train
    for size, most in ((32, 64), (224, 16), (448, 4)):
        sizes: list[int] = []
        features(few, Batches(), size=size, cache=tmp_path, device="cpu")
        assert max(sizes) == most
    features(few, Batches(), size=448, cache=tmp_path / "own", device="cpu", batch_size=7)
    assert max(sizes) == 7


def test_computed_once_and_right(scenes: Dataset, tmp_path: Path) -> None:
    net = Net()
    first = features(scenes, net, size=32, cache=tmp_path)
    assert first.computed == 600
    assert isinstance(first.array, np.memmap)
    np.testing.assert_allclose(first.array, _expected(scenes), atol=1e-5)
    net.seen = 0
    again = features(scenes, net, size=32, cache=tmp_path, batch_size=7)
    assert (again.computed, net.seen) == (0, 1)  # the one picture of zeros that tells the width
    np.testing.assert_array_equal(again.array, first.array)
    with pytest.raises(ValueError, match="read-only"):
        again.array[0] = 0


def test_flips(scenes: Dataset, tmp_path: Path) -> None:
    both = features(scenes, Net(), size=32, cache=tmp_path, flips=True)
    assert both.array.shape == (600, 2, 4)
    np.testing.assert_allclose(both.array[:, 0], _expected(scenes), atol=1e-5)
    np.testing.assert_allclose(both.array[:, 1], _expected(scenes, mirrored=True), atol=1e-5)


def test_every_part_of_the_key_counts(scenes: Dataset, tmp_path: Path) -> None:
    other = Net()
    with torch.no_grad():
        other.conv.bias += 1e-3
    strided = Net()
    strided.conv.stride = (1, 1)
    small = scenes.take(range(40))
    calls: list[tuple[Dataset, nn.Module, dict[str, object]]] = [
        (small, Net(), {}),
        (small, other, {}),
        (small, strided, {}),
        (small, Net(), {"size": 16}),
        (small, Net(), {"flips": True}),
        (small, Net(), {"mean": (0.5, 0.5, 0.5)}),
        (small, Net(), {"dtype": "float16"}),
        (small, Net(), {"precision": "bfloat16"}),
        (scenes.take(range(1, 41)), Net(), {}),
    ]
    for data, net, options in calls:
        new = 1 if data.source.paths[0] != small.source.paths[0] else 40  # of pictures moved on by one, the last
        assert features(data, net, cache=tmp_path, **{"size": 32, **options}).computed == new  # type: ignore[arg-type]
    for data, net, options in calls:
        assert features(data, net, cache=tmp_path, **{"size": 32, **options}).computed == 0  # type: ignore[arg-type]
    assert len(list(tmp_path.glob("*.npy"))) == len(calls)
    assert weights_hash(Net()) == weights_hash(Net()) != weights_hash(other)


def test_goes_on_after_an_interruption(scenes: Dataset, tmp_path: Path) -> None:
    net = Net()
    net.stop_after = 400
    with pytest.raises(KeyboardInterrupt):
        features(scenes, net, size=32, cache=tmp_path, batch_size=50)
    assert list(tmp_path.glob("*.partial.npy"))
    assert not [p for p in tmp_path.glob("*.npy") if "partial" not in p.name]
    journal = next(tmp_path.glob("*.jsonl"))
    assert len(journal.read_text().splitlines()) == 2  # the key, and one chunk of 256
    with journal.open("a") as file:
        file.write('{"chunk": 1, "no')  # the power went while a line was written
    net = Net()
    rest = features(scenes, net, size=32, cache=tmp_path)
    assert rest.computed == 600 - 256
    np.testing.assert_allclose(rest.array, _expected(scenes), atol=1e-5)
    assert not list(tmp_path.glob("*partial*"))
    assert features(scenes.take(range(200, 300)), net, size=32, cache=tmp_path).computed == 0  # of both chunks


def test_pictures_of_another_split_are_taken_from_it(
    class_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `compare` made of training and validation rows is all that `recover` needs of the whole folder."""
    monkeypatch.delenv("ONELABEL_QUIET")
    parts = load_dataset(class_folder, validation=0.25).parts
    made = {name: features(part, Net(), size=32, cache=tmp_path) for name, part in parts.items()}
    assert [each.computed for each in made.values()] == [9, 3]
    whole, net = load_dataset(class_folder, validation=0).train, Net()
    found = features(whole, net, size=32, cache=tmp_path)
    assert (found.computed, net.seen) == (0, 1)  # the one picture of zeros that tells the width
    assert "own/train: going on with 12 of 12 features already there" in capsys.readouterr().err
    for name, part in parts.items():
        rows = [whole.source.paths.index(path) for path in part.source.paths]
        np.testing.assert_array_equal(found.array[rows], made[name].array)
    np.testing.assert_allclose(found.array, _expected(whole), atol=1e-5)
    assert features(parts["train"], Net(), size=32, cache=tmp_path / "other").computed == 9


def test_a_picture_is_known_by_its_content(class_folder: Path, tmp_path: Path, picture: Callable[..., bytes]) -> None:
    features(load_dataset(class_folder, validation=0).train, Net(), size=32, cache=tmp_path)
    (class_folder / "cat" / "cat0.jpg").rename(class_folder / "cat" / "renamed.jpg")
    changed = class_folder / "dog" / "dog2.jpg"
    before = changed.stat()
    changed.write_bytes(picture(99, (9, 9)).ljust(before.st_size, b"\0"))
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))  # by its name, size and time it is as it was
    assert changed.stat().st_size == before.st_size
    now = load_dataset(class_folder, validation=0).train
    found = features(now, Net(), size=32, cache=tmp_path)
    assert found.computed == 1
    np.testing.assert_allclose(found.array, _expected(now), atol=1e-5)


@pytest.mark.parametrize("harm", ["no JSON", "another key", "fewer marks", "shorter array", "no array"])
def test_features_that_are_damaged_are_not_taken(class_folder: Path, tmp_path: Path, harm: str) -> None:
    parts = load_dataset(class_folder, validation=0.25).parts
    made = features(parts["train"], Net(), size=32, cache=tmp_path).path
    side = made.with_suffix(".json")
    saved = json.loads(side.read_text())
    if harm == "no JSON":
        side.write_text("{")
    elif harm == "another key":
        side.write_text(json.dumps({**saved, "key": {**saved["key"], "weights": "others"}}))
    elif harm == "fewer marks":
        saved["notes"][0]["marks"].pop()
        side.write_text(json.dumps(saved))
    elif harm == "shorter array":
        np.save(made, np.load(made)[:-1])
    else:
        made.unlink()
    whole = load_dataset(class_folder, validation=0).train
    found = features(whole, Net(), size=32, cache=tmp_path)
    assert found.computed == 12
    np.testing.assert_allclose(found.array, _expected(whole), atol=1e-5)


def test_pictures_that_cannot_be_read(class_folder: Path, tmp_path: Path) -> None:
    bad = class_folder / "dog" / "dog1.jpg"
    bad.write_bytes(bad.read_bytes()[:-150])
    data = load_dataset(class_folder, validation=0).train
    found = features(data, Net(), size=32, cache=tmp_path)
    row = data.source.paths.index("dog/dog1.jpg")
    assert list(found.failed) == [row]
    assert list(features(data, Net(), size=32, cache=tmp_path).failed) == [row]  # remembered
    table = found.dataset(data)
    assert len(table) == 11
    assert data.report.names("truncated") == ["dog/dog1.jpg"]
    np.testing.assert_array_equal(table.X, np.delete(found.array, row, 0))
    assert table.observed == data.observed.take(np.delete(np.arange(12), row))


def test_timm_by_name_with_a_weights_file(scenes: Dataset, tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=5)  # with a head, which features leave out
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    small = scenes.take(range(6))
    found = features(small, "test_resnet", weights=tmp_path / "w.safetensors", size=32, cache=tmp_path)
    images = torch.from_numpy(small.source.images).permute(0, 3, 1, 2)  # type: ignore[attr-defined]
    with torch.no_grad():
        expected = model.eval().forward_features(Augment()(images)).mean((2, 3))
    np.testing.assert_allclose(found.array, expected, atol=1e-4)
    save_file({"conv1.weight": torch.zeros(1)}, tmp_path / "bad.safetensors")
    with pytest.raises((ValueError, RuntimeError)):
        features(small, "test_resnet", weights=tmp_path / "bad.safetensors", size=32, cache=tmp_path)


def test_wrong_outputs_are_named(scenes: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected B×D or B×D×H×W"):
        features(scenes, nn.Flatten(2), size=32, cache=tmp_path)
    with pytest.raises(ValueError, match="only with a timm name"):
        features(scenes, Net(), weights="x.pth", cache=tmp_path)


def test_journal_never_promises_too_much(tmp_path: Path) -> None:
    def make(key: int = 1, rows: int = 10) -> ChunkedArray:
        return ChunkedArray(tmp_path, "a", (rows, 2), np.float32, {"k": key}, chunk=4)

    with make().filling() as filling:
        assert [rows for _, rows in filling.todo] == [slice(0, 4), slice(4, 8), slice(8, 10)]
        filling.array[4:8] = 7
        filling.done(1, ["note"])
    assert make().finished() is None
    with make().filling() as filling:
        assert [number for number, _ in filling.todo] == [0, 2]
        assert (filling.array[4:8] == 7).all()
    for other in (make(key=2), make(rows=11)):  # another key or shape starts anew
        with other.filling() as filling:
            assert len(filling.todo) == 3
    with make().filling() as filling:
        for number, rows in filling.todo:
            filling.array[rows] = number
            filling.done(number)
        array, notes = filling.finish()
    np.testing.assert_array_equal(array[:, 0], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    assert notes == [None, None, None]
    assert make(key=3).finished() is None
    assert json.loads((tmp_path / "a.json").read_text())["key"] == {"k": 1}


def test_a_disk_without_room_is_said_before_the_work(
    scenes: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mapping that meets a full disk ends the process, so the room is taken first."""
    net = Net()

    def full(handle: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full, raising=False)
        with pytest.raises(OSError, match=r"No space left on device; 0\.0 MiB are needed there, or set ONELABEL_CACHE"):
            features(scenes, net, size=32, cache=tmp_path)
    assert net.seen == 1  # the one picture of zeros that tells the width
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert features(scenes, net, size=32, cache=tmp_path).computed == 600


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_cannot_reserve_is_written_to_all_the_same(
    scenes: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unknown(handle: int, offset: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", unknown, raising=False)
    assert features(scenes, Net(), size=32, cache=tmp_path).computed == 600


def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ChunkedArray(tmp_path, "x", (4, 2), np.dtype(np.float32), {}, chunk=2).filling() as filling:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            filling.done(0)
    assert caught.value.filename == str(filling.owner.journal)
