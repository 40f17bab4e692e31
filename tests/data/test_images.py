from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onelabel.data import ArraySource, DataError, FileSource, ImageError, load_dataset, read_image, square_image
from onelabel.data.images import inspect_image

# What each hostile file must come to: an error kind, or the kinds noted.
FATAL = {
    "broken.jpg": "broken",
    "truncated.jpg": "truncated",
    "truncated.png": "truncated",
    "empty.jpg": "empty-file",
    "bomb.png": "bomb",
}
NOTED = {
    "cmyk.jpg": "cmyk",
    "grey.png": "grey",
    "deep.png": "deep",
    "deep.tif": "deep",
    "animated.gif": "animated",
    "rotated.jpg": "rotated",
    "one.png": "tiny",
    "wide.png": "long",
}


@pytest.fixture
def folder(tmp_path: Path, hostile: dict[str, bytes]) -> Path:
    root = tmp_path / "pictures"
    (root / "thing").mkdir(parents=True)
    (root / "nothing here").mkdir()
    for name, data in hostile.items():
        (root / "thing" / name).write_bytes(data)
    (root / "thing" / "notes.txt").write_text("not a picture")
    (root / "stray.jpg").write_bytes(hostile["good.jpg"])
    (root / "thing" / "folder.jpg").mkdir()
    os.mkfifo(root / "thing" / "pipe.jpg")
    return root


def test_every_hostile_picture_is_read_or_named(hostile: dict[str, bytes]) -> None:
    for name, data in hostile.items():
        if name in FATAL:
            with pytest.raises(ImageError) as caught:
                read_image(data, name=name)
            assert caught.value.kind == FATAL[name], name
            with pytest.raises(ImageError) as caught:
                square_image(data, 8, name=name, exact=False)
            assert caught.value.kind == FATAL[name], name
            assert name in str(caught.value)
        else:
            image = read_image(data, name=name)
            assert image.dtype == np.uint8
            assert image.ndim == 3
            assert image.shape[2] == 3
            noted = inspect_image(data).notes
            assert (NOTED[name] in noted) if name in NOTED else not set(noted) - {"long", "tiny"}, name
            plain, fast = square_image(data, 16), square_image(data, 16, exact=False)
            assert plain.shape == fast.shape == (16, 16, 3)
            assert np.abs(plain.astype(int) - fast).max() <= 1, name


def test_16_bits_are_scaled_not_clipped(hostile: dict[str, bytes]) -> None:
    expected = np.rint(np.arange(64 * 48).reshape(48, 64) * 21 * 255 / 65535)
    for name in ("deep.png", "deep.tif"):
        image = read_image(hostile[name])
        assert np.abs(image[:, :, 0].astype(float) - expected).max() <= 1, name


def test_a_picture_s_mark_is_that_of_its_bytes_and_how_they_are_turned(folder: Path, hostile: dict[str, bytes]) -> None:
    names = ["thing/good.jpg", "thing/copy.jpg", "thing/grey.png", "thing/empty.jpg", "thing/pipe.jpg", "thing/none"]
    (folder / "thing" / "copy.jpg").write_bytes(hostile["good.jpg"])
    marks = [FileSource(folder, names).mark(row) for row in range(len(names))]
    assert marks[0] == marks[1] != marks[2]
    assert marks[3:] == ["", "", ""]
    assert FileSource(folder, names, upright=False).mark(0) != marks[0]
    arrays = np.arange(96, dtype=np.uint8).reshape(2, 4, 4, 3)
    assert ArraySource(arrays).mark(0) != ArraySource(arrays).mark(1) == ArraySource(arrays[1:]).mark(0)
    assert ArraySource(arrays).mark(0) != ArraySource(arrays.reshape(2, 2, 8, 3)).mark(0)


def test_exif_turns_upright_only_when_asked(hostile: dict[str, bytes]) -> None:
    turned, stored = read_image(hostile["rotated.jpg"]), read_image(hostile["rotated.jpg"], upright=False)
    assert turned.shape == (10, 30, 3)
    assert stored.shape == (30, 10, 3)
    assert turned[:, -3:, 0].mean() > 200  # the red top is now at the right


def test_animation_gives_the_first_frame(hostile: dict[str, bytes]) -> None:
    assert read_image(hostile["animated.gif"])[0, 0].tolist() == [255, 0, 0]


def test_cmyk_equals_pillow(hostile: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(hostile["cmyk.jpg"])
    with Image.open(tmp_path / "a.jpg") as image:
        np.testing.assert_array_equal(read_image(hostile["cmyk.jpg"]), np.asarray(image.convert("RGB")))


def test_bomb_is_refused_before_memory_is_taken(hostile: dict[str, bytes]) -> None:
    with pytest.raises(ImageError, match="bomb"):
        read_image(hostile["bomb.png"])
    with pytest.raises(ImageError, match="at most 279"):
        read_image(hostile["good.jpg"], max_pixels=279)


def test_folder_report_names_everything_and_work_goes_on(folder: Path, hostile: dict[str, bytes]) -> None:
    splits = load_dataset(folder, verify="decode", validation=0)
    report = splits.report
    lost = {os.path.basename(name) for kind in set(FATAL.values()) for name in report.names(kind)}
    assert lost == set(FATAL)
    for name, kind in {**FATAL, **NOTED}.items():
        assert os.path.join("thing", name) in report.names(kind), name
    assert report.names("empty-folder") == ["nothing here", "thing/folder.jpg"][:1]
    assert report.names("no-class") == ["stray.jpg"]
    assert report.names("not-a-picture") == ["thing/notes.txt"]
    assert report.names("unreadable") == ["thing/pipe.jpg"]
    kept = {os.path.basename(path) for path in splits.train.source.paths}
    assert kept == set(hostile) - set(FATAL)
    assert report.lost == len(FATAL) + 2
    text = report.text()
    assert all(f"{count} {kind}" in text for kind, count in report.counts.items())
    for row in range(len(splits.train)):
        assert splits.train.source.read(row).dtype == np.uint8


def test_header_check_finds_all_but_truncation(folder: Path) -> None:
    splits = load_dataset(folder, validation=0)
    assert splits.report.names("broken") == ["thing/broken.jpg"]
    assert splits.report.names("truncated") == []
    assert "thing/truncated.jpg" in splits.train.source.paths


def test_strict_stops(folder: Path) -> None:
    with pytest.raises(DataError, match=r"nothing here.*without pictures"):
        load_dataset(folder, strict=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_by_permission(class_folder: Path) -> None:  # pragma: no cover - depends on the user
    (class_folder / "cat" / "cat0.jpg").chmod(0)
    assert load_dataset(class_folder).report.names("unreadable") == ["cat/cat0.jpg"]


def test_unreadable_file_by_error(class_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: object, *rest: object, **options: object) -> int:
        if str(path).endswith("cat0.jpg"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    splits = load_dataset(class_folder, validation=0)
    assert splits.report.names("unreadable") == ["cat/cat0.jpg"]
    assert len(splits.train) == 11


def test_name_that_is_no_text(class_folder: Path, picture: object) -> None:
    raw = os.fsencode(class_folder / "cat") + b"/bad\xff.jpg"
    with open(raw, "wb") as file:
        file.write(b"x")
    splits = load_dataset(class_folder, validation=0)
    assert len(splits.report.names("unreadable")) == 1
    assert "UTF-8" in splits.report.text()
    splits.report.save(class_folder / "report.json")


@pytest.mark.parametrize("size", [(20, 14), (448, 448), (500, 375), (7, 900)])
def test_squash_equals_torchvision(size: tuple[int, int], picture: object) -> None:
    from torchvision.transforms import Resize

    data = picture(3, size)  # type: ignore[operator]
    import io

    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(Resize((64, 64))(image.convert("RGB")))
    np.testing.assert_array_equal(square_image(data, 64), expected)
    fast = square_image(data, 64, exact=False)
    assert np.abs(fast.astype(int) - expected).max() <= 1
    assert square_image(data, size[0]).shape == (size[0], size[0], 3)


def test_draft_keeps_small_pictures_and_stays_close(picture: object) -> None:
    import io

    smooth = np.add.outer(np.arange(1200), np.arange(1600)) % 256
    stream = io.BytesIO()
    wave = (127 + 120 * np.sin(smooth / 255 * 2 * np.pi)).astype(np.uint8)
    Image.fromarray(np.stack([wave] * 3, 2)).save(stream, "JPEG", quality=95)
    data = stream.getvalue()
    near = np.abs(square_image(data, 64, draft=True).astype(int) - square_image(data, 64).astype(int))
    assert near.mean() < 3
    small = picture(1, (100, 100))  # type: ignore[operator]
    np.testing.assert_array_equal(square_image(small, 64, draft=True), square_image(small, 64))


def test_arrays_are_pictures_too() -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert read_image(grey).shape == (3, 4, 3)
    with pytest.raises(ImageError, match="float64"):
        read_image(np.zeros((3, 3, 3)))  # type: ignore[arg-type]
    with pytest.raises(ImageError, match="shape"):
        read_image(np.zeros((3, 3, 4), np.uint8))
    assert square_image(np.zeros((5, 6, 3), np.uint8), 8).shape == (8, 8, 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP", "PPM"])
def test_damaged_bytes_never_raise_anything_else(form: str, picture: Callable[..., bytes]) -> None:
    whole = picture(0, (24, 18), form)
    rng = np.random.default_rng(len(form))
    for _ in range(60):
        data = bytearray(whole)
        for place in rng.integers(len(data), size=rng.integers(1, 6)):
            data[place] = rng.integers(256)
        if rng.random() < 0.3:
            del data[rng.integers(len(data)) :]
        with contextlib.suppress(ImageError):
            assert read_image(bytes(data), max_pixels=1_000_000).dtype == np.uint8
