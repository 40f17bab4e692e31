"""Hand-made pictures and archives in the official layouts."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")


@pytest.fixture(scope="session")
def picture() -> Callable[..., bytes]:
    """A small encoded picture whose pixels depend on `seed`."""

    def make(seed: int = 0, size: tuple[int, int] = (20, 14), form: str = "JPEG", mode: str = "RGB") -> bytes:
        pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(stream, form, quality=90)
        return stream.getvalue()

    return make


def _png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds almost nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="session")
def hostile(picture: Callable[..., bytes]) -> dict[str, bytes]:
    """File name → contents: everything the issue names, and a good picture."""

    def saved(image: Image.Image, form: str, **options: object) -> bytes:
        stream = io.BytesIO()
        image.save(stream, form, **options)
        return stream.getvalue()

    ramp = np.arange(64 * 48, dtype=np.uint16).reshape(48, 64) * 21
    tall = Image.new("RGB", (10, 30))
    tall.paste((255, 0, 0), (0, 0, 10, 5))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "green", "blue")]
    whole = picture(1, (64, 64))
    return {
        "good.jpg": picture(0),
        "broken.jpg": b"this is no picture at all" * 10,
        "truncated.jpg": whole[: len(whole) // 2],
        "truncated.png": picture(2, (64, 64), "PNG")[:2000],
        "cmyk.jpg": picture(3, mode="CMYK"),
        "grey.png": picture(4, form="PNG", mode="L"),
        "deep.png": saved(Image.fromarray(ramp), "PNG"),
        "deep.tif": saved(Image.fromarray(ramp.astype(np.float32) / 65535), "TIFF"),
        "animated.gif": saved(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "empty.jpg": b"",
        "rotated.jpg": saved(tall, "JPEG", exif=exif, quality=95),
        "one.png": picture(5, (1, 1), "PNG"),
        "wide.png": picture(6, (30_000, 2), "PNG"),
        "bomb.png": _png_header(50_000, 50_000),
        "palette.png": saved(Image.new("P", (9, 9), 0), "PNG", transparency=0),
        "name with spaces.jpg": picture(7),
        "žluťoučký 猫.jpg": picture(8),
    }


@pytest.fixture
def class_folder(tmp_path: Path, picture: Callable[..., bytes]) -> Path:
    """Three classes of four pictures."""
    root = tmp_path / "own"
    for c, name in enumerate(("cat", "dog", "owl")):
        (root / name).mkdir(parents=True)
        for i in range(4):
            (root / name / f"{name}{i}.jpg").write_bytes(picture(10 * c + i))
    return root
