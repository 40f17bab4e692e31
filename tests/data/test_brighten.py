"""12-bit pictures in files of 16: they are noticed, and the command that is named makes them bright."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onelabel.cli import main
from onelabel.data import DataError, load_dataset, read_image, verify_splits
from onelabel.data.brighten import brighten
from onelabel.data.images import inspect_image
from onelabel.data.manifest import build_manifest
from onelabel.data.report import Report

Call = Callable[..., tuple[int, str, str]]


def grey(path: Path, most: int, *, seed: int = 0, **options: Any) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """A 16-bit picture whose values go from 0 to `most`."""
    values = np.random.default_rng(seed).integers(0, most + 1, (9, 12)).astype(np.uint16)
    values[0, :2] = 0, most
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, **options)
    return values


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight pictures of two classes, of 12 bits in 16, as PNG and TIFF."""
    monkeypatch.delenv("ONELABEL_QUIET")
    root = tmp_path / "my scans"
    for i in range(8):
        grey(root / ("crack", "sound")[i % 2] / f"{i}.{('png', 'tif')[i // 4]}", 4095 - i, seed=i)
    return root


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([*words])
        out = capsys.readouterr()
        return int(stop.value.code or 0), out.out, out.err

    return run


@pytest.mark.parametrize(("most", "dim"), [(0, True), (255, True), (4095, True), (4096, False), (65535, False)])
def test_a_picture_is_dim_where_no_value_needs_over_12_bits(tmp_path: Path, most: int, dim: bool) -> None:
    for name in ("a.png", "a.tif"):
        grey(tmp_path / name, most)
        assert ("dim" in inspect_image(str(tmp_path / name), decode=True).notes) is dim
        assert "dim" not in inspect_image(str(tmp_path / name)).notes  # a header does not tell


def test_pictures_that_are_not_scaled_as_16_bits_are_not_dim(tmp_path: Path) -> None:
    Image.fromarray(np.full((9, 9), 3, np.uint8)).save(tmp_path / "eight.png")
    Image.fromarray(np.full((9, 9), 0.5, np.float32)).save(tmp_path / "share.tif")
    Image.fromarray(np.arange(-40, 41, dtype=np.int32).reshape(9, 9)).save(tmp_path / "signed.tif")
    (tmp_path / "declared.pgm").write_bytes(b"P5 2 1 4095\n" + bytes([0, 0, 15, 255]))  # says that 4095 is white
    for name in ("eight.png", "share.tif", "signed.tif", "declared.pgm"):
        assert "dim" not in inspect_image(str(tmp_path / name), decode=True).notes, name
    assert read_image(str(tmp_path / "declared.pgm")).max() == 255


def test_they_are_said_once_and_the_command_makes_them_bright(scans: Path, call: Call, tmp_path: Path) -> None:
    splits = load_dataset(scans)
    line = splits.left_out
    assert "my scans: 8 16-bit pictures hold no value above 4095 (12 bits) and are read nearly black" in line
    command = shlex.split(line.partition("(onelabel ")[2].partition(" multiplies")[0])
    assert command == ["data", "brighten", str(scans), "OUT"]
    code, out, _ = call("data", "check", str(scans))
    assert code == 0
    assert "8 dim: 16-bit greys of which no value in all the data is above 4095" in out
    bright = tmp_path / "bright"
    code, out, errors = call(*command[:-1], str(bright))
    assert (code, errors) == (0, "")
    assert out == f"{bright}: 8 pictures, 8 of them brightened; do the same with what predict is given\n"
    again = load_dataset(bright)
    assert again.train.source.paths == splits.train.source.paths
    assert not again.left_out
    assert "dim" not in verify_splits(again).report.counts
    for name in splits.train.source.paths:
        before, after = (np.asarray(Image.open(root / name)) for root in (scans, bright))
        np.testing.assert_array_equal(after, before * 16)
        eight = before.astype(float) * 255 / 4095
        assert np.abs(read_image(str(bright / name))[:, :, 1] - eight).max() <= 1


def test_dark_pictures_beside_a_bright_one_are_just_dark(scans: Path, tmp_path: Path) -> None:
    """Whichever part the bright one is in, and however closely the pictures are looked at."""
    for name in ("train/crack/bright.png", "validation/sound/bright.png"):
        root = tmp_path / name.partition("/")[0]
        for part in ("train", "validation"):
            for i in range(3):
                for label in ("crack", "sound"):
                    grey(root / part / label / f"{i}.png", 900, seed=i)
        assert load_dataset(root).report.names("dim")
        grey(root / name, 4096)
        assert not load_dataset(root).report.names("dim")
        whole = verify_splits(load_dataset(root, verify="none"))
        assert whole.report.counts["deep"] == 13
        assert "dim" not in whole.report.counts
        assert not whole.left_out


def test_bright_pictures_cost_no_second_look(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onelabel.data import FileSource

    real, read = FileSource.inspect, []

    def inspect(source: Any, row: int, *, decode: bool = False) -> Any:
        read.extend([source.paths[row]] * decode)
        return real(source, row, decode=decode)

    monkeypatch.setattr(FileSource, "inspect", inspect)
    load_dataset(scans)
    assert len(read) == 8
    for path in scans.rglob("*.*"):
        grey(path, 60000)
    read.clear()
    load_dataset(scans)
    assert len(read) == 1


def test_a_manifest_tells_them_by_the_same_rule(scans: Path, tmp_path: Path) -> None:
    made = build_manifest(scans, tmp_path / "m.parquet", decode=True, workers=1)
    assert made.report.counts == {"deep": 8, "dim": 8}
    grey(scans / "crack" / "bright.png", 5000)
    made = build_manifest(scans, tmp_path / "m.parquet", decode=True, workers=1)
    assert made.report.counts == {"deep": 9}


def test_strict_lets_them_pass(scans: Path) -> None:
    assert len(load_dataset(scans, strict=True).report.names("dim")) == 8


def test_other_pictures_are_copied_and_broken_ones_are_named(
    scans: Path, tmp_path: Path, picture: Callable[..., bytes], call: Call
) -> None:
    (scans / "crack" / "colour.jpg").write_bytes(picture(1))
    (scans / "crack" / "broken.png").write_bytes(b"no picture")
    exif = Image.Exif()
    exif[0x0112] = 6
    grey(scans / "sound" / "turned.png", 4000, exif=exif)
    report = Report()
    assert brighten(scans, tmp_path / "out", report) == (9, 10)
    assert (tmp_path / "out" / "crack" / "colour.jpg").read_bytes() == picture(1)
    assert not (tmp_path / "out" / "crack" / "broken.png").exists()
    assert report.names("broken") == ["crack/broken.png"]
    turned = [read_image(str(root / "sound" / "turned.png")) for root in (scans, tmp_path / "out")]
    assert turned[0].shape == turned[1].shape == (12, 9, 3)
    code, out, _ = call("data", "brighten", str(scans), str(tmp_path / "again"))
    assert code == 0
    assert "1 broken (left out): not a picture this program reads" in out


def test_what_cannot_be_brightened_leaves_nothing_behind(scans: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    Image.new("RGB", (9, 9)).save(tmp_path / "kept" / "red.png")
    for source, out, told in (
        (scans, tmp_path / "kept", "kept exists; nothing is overwritten"),
        (scans, scans / "bright", "lies in .*my scans, whose pictures it would become; give a folder beside it"),
        (tmp_path / "none", tmp_path / "out", "none: no such folder"),
        (tmp_path / "kept", tmp_path / "out", "none of its 1 pictures is a grey one of 16 bits, nothing to brighten"),
    ):
        with pytest.raises((DataError, FileExistsError), match=told):
            brighten(source, out)
    grey(scans / "sound" / "bright.png", 5000)
    code, _, errors = call("data", "brighten", str(scans), str(tmp_path / "out"))
    assert (code, errors.count("\n")) == (2, 1)
    assert "sound/bright.png: holds 5000, and 12 bits end at 4095: nothing is brightened" in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "my scans"]
