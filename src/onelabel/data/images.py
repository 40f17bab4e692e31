"""Decoding pictures that nobody vouches for: RGB uint8 or one `ImageError` with a kind."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.system import need

from .report import DataError

Raw = bytes | str | NDArray[np.uint8]

# EPS, PDF and WMF start other programs or are no pictures; everything here decodes inside Pillow.
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF", "PPM", "JPEG2000")
_SUFFIXES = "jpg jpeg jpe jfif mpo png apng gif bmp dib webp tif tiff avif ppm pgm pbm pnm jp2 j2k"
SUFFIXES = frozenset(f".{suffix}" for suffix in _SUFFIXES.split())
#: Of photographs that Pillow does not read.
FOREIGN = frozenset({".heic", ".heif", ".hif", ".jxl"})
MAX_PIXELS = 89_478_485  # where Pillow starts to warn: a quarter of a gigabyte decoded
TWELVE_BITS = 4095  # the most that cameras of medicine and industry write, into files of 16 bits


class ImageError(DataError):
    """A picture that cannot be used; `kind` is one of the report's kinds."""

    def __init__(self, kind: str, name: str, detail: object = "") -> None:
        super().__init__(f"{name}: {kind} picture ({detail})" if str(detail) else f"{name}: {kind} picture")
        self.kind, self.name, self.detail = kind, name, str(detail)

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageError, (self.kind, self.name, self.detail)


@dataclass(frozen=True)
class ImageInfo:
    """What a picture's header says, and the kinds worth a note (grey, cmyk, deep, animated, rotated, tiny, long).

    And, where all of it was read, dim.
    """

    width: int
    height: int
    format: str
    mode: str
    notes: tuple[str, ...] = ()


@cache
def _pil() -> tuple[Any, Any]:
    image = need("PIL.Image", "vision")
    image.init()  # `open` knows only the formats whose plugins are loaded
    return image, need("PIL.ImageOps", "vision")


@cache
def _formats() -> tuple[str, ...]:
    return tuple(name for name in FORMATS if name in _pil()[0].OPEN)  # AVIF needs Pillow 11.3


def _stream(raw: bytes | str, name: str) -> io.BytesIO | io.BufferedReader:
    if isinstance(raw, bytes):
        if not raw:
            raise ImageError("empty-file", name)
        return io.BytesIO(raw)
    try:
        # O_NONBLOCK: a named pipe in a picture folder must not hang the reader.
        handle = os.open(raw, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise ImageError("missing", name) from None
    except (OSError, ValueError) as error:
        raise ImageError("unreadable", name, error) from None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        os.close(handle)
        kind = "empty-file" if stat.S_ISREG(status.st_mode) else "unreadable"
        raise ImageError(kind, name, "" if kind == "empty-file" else "not a regular file")
    return os.fdopen(handle, "rb")


@contextlib.contextmanager
def opened(raw: bytes | str, name: str, max_pixels: int = MAX_PIXELS) -> Iterator[Any]:
    """The opened picture, its size checked before any decoding; whatever Pillow raises becomes an `ImageError`."""
    image_module, _ = _pil()
    bombs = (image_module.DecompressionBombError, image_module.DecompressionBombWarning)
    with _stream(raw, name) as stream:
        try:
            with image_module.open(stream, formats=_formats()) as image:
                width, height = image.size
                if width * height > max_pixels:
                    raise ImageError("bomb", name, f"{width}×{height} pixels, at most {max_pixels:,}")
                yield image
        except ImageError:
            raise
        except bombs as error:
            raise ImageError("bomb", name, error) from None
        except image_module.UnidentifiedImageError:
            stream.seek(4)
            phone = stream.read(4) == b"ftyp"
            known = "HEIC, or a film: convert it to JPEG" if phone else "not a known picture format"
            raise ImageError("broken", name, known) from None
        except MemoryError:
            raise ImageError("bomb", name, "not enough memory to decode it") from None
        except Exception as error:  # Pillow's plugins raise almost anything on hostile bytes
            words = str(error).lower()
            early = isinstance(error, EOFError) or "truncated" in words or "unexpected end" in words
            raise ImageError("truncated" if early else "broken", name, error) from None


def _turned(image: Any) -> bool:
    try:
        return int(image.getexif().get(0x0112, 1)) in range(2, 9)
    except Exception:  # damaged EXIF is not a damaged picture
        return False


def _notes(image: Any, upright: bool) -> tuple[str, ...]:
    width, height = image.size
    mode = image.mode
    raw_mode = str(image.tile[0][3]) if getattr(image, "tile", None) else ""
    found = {
        "grey": mode in ("1", "L", "LA", "La"),
        "cmyk": mode in ("CMYK", "YCCK"),
        "deep": mode.startswith("I") or mode == "F" or ";16" in raw_mode,
        "animated": bool(getattr(image, "is_animated", False)) and image.format != "MPO",
        "rotated": upright and _turned(image),
        "tiny": min(width, height) < 8,
        "long": max(width, height) > 20 * min(width, height) and min(width, height) > 0,
    }
    return tuple(kind for kind, present in found.items() if present)


def inspect_image(
    raw: Raw, *, name: str = "", upright: bool = True, max_pixels: int = MAX_PIXELS, decode: bool = False
) -> ImageInfo:
    """Read a picture's header (and, with `decode`, all of it); raises `ImageError`."""
    if isinstance(raw, np.ndarray):
        return ImageInfo(raw.shape[1], raw.shape[0], "array", "RGB")
    with opened(raw, name or _name(raw), max_pixels) as image:
        width, height = image.size
        notes = _notes(image, upright)
        if decode:
            _rgb(image, upright)
            notes += ("dim",) if is_dim(image) else ()
        return ImageInfo(width, height, str(image.format), str(image.mode), notes)


def read_image(raw: Raw, *, name: str = "", upright: bool = True, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode to H×W×3 uint8 RGB: first frame, turned upright, 16 bits scaled to 8; raises `ImageError`."""
    if isinstance(raw, np.ndarray):
        return _as_rgb(raw)
    with opened(raw, name or _name(raw), max_pixels) as image:
        return np.asarray(_rgb(image, upright))


def hash_image(raw: Raw, *, name: str = "") -> str:
    """A hash of a picture as it is kept, file or array, nothing decoded; raises `ImageError`."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(raw, np.ndarray):
        digest.update(f"{raw.dtype} {raw.shape}\n".encode())
        digest.update(np.ascontiguousarray(raw).data)
        return digest.hexdigest()
    with _stream(raw, name or _name(raw)) as stream:
        try:
            while block := stream.read(1 << 20):
                digest.update(block)
        except OSError as error:
            raise ImageError("unreadable", name or _name(raw), error) from None
    return digest.hexdigest()


def square_image(
    raw: Raw,
    size: int,
    *,
    name: str = "",
    upright: bool = True,
    exact: bool = True,
    draft: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> NDArray[np.uint8]:
    """Decode and squash to size×size, as published: Pillow's antialiased bilinear resize, both sides independently.

    Args:
        exact: False resizes with torch's vectorised kernel instead: about three times faster, at most 1 of 255 away.
        draft: let the JPEG decoder shrink pictures over four times `size` while decoding (never below twice `size`).
    """
    if isinstance(raw, np.ndarray):
        array = _as_rgb(raw)
        if array.shape[:2] == (size, size):
            return array
        return _fast_resize(np.array(array), size) if not exact else _exact_resize(_pil()[0].fromarray(array), size)
    with opened(raw, name or _name(raw), max_pixels) as image:
        if draft and image.format == "JPEG":
            image.draft(None, (2 * size, 2 * size))
        picture = _rgb(image, upright)
        return _exact_resize(picture, size) if exact else _fast_resize(np.array(picture), size)


def _exact_resize(picture: Any, size: int) -> NDArray[np.uint8]:
    if picture.size != (size, size):
        picture = picture.resize((size, size), _pil()[0].Resampling.BILINEAR)
    return np.asarray(picture)


def _fast_resize(array: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    import torch
    from torch.nn.functional import interpolate

    image = torch.from_numpy(array).permute(2, 0, 1)
    if tuple(image.shape[1:]) != (size, size):
        image = interpolate(image[None], (size, size), mode="bilinear", antialias=True)[0]
    result: NDArray[np.uint8] = image.permute(1, 2, 0).contiguous().numpy()
    return result


def _rgb(image: Any, upright: bool) -> Any:
    image_module, operations = _pil()
    image.load()
    if upright and _turned(image):
        image = operations.exif_transpose(image)
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I") or image.mode == "F":
        return image_module.fromarray(_to_8_bit(np.asarray(image))).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def is_dim(image: Any) -> bool:
    """Whether a grey picture is scaled to 8 bits as one of 16 (`_to_8_bit`) and none of its values needs over 12."""
    if not image.mode.startswith("I"):
        return False
    values = np.asarray(image)
    return bool(values.min() >= 0 and values.max() <= TWELVE_BITS)


def _to_8_bit(values: NDArray[Any]) -> NDArray[np.uint8]:
    """16-bit values by 65535; fractions by 1; anything else from its minimum to its maximum."""
    real = np.nan_to_num(values.astype(np.float64))
    low, high = float(real.min()), float(real.max())
    if np.issubdtype(values.dtype, np.integer) and low >= 0 and high <= 65535:
        low, high = 0.0, 65535.0
    elif low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    scaled = (real - low) * (255.0 / max(high - low, 1e-12))
    return np.rint(scaled).astype(np.uint8)


def _as_rgb(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype != np.uint8:
        raise ImageError("broken", "array", f"dtype {array.dtype}, expected uint8")
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    if array.ndim != 3 or array.shape[2] != 3:
        raise ImageError("broken", "array", f"shape {array.shape}, expected H×W×3 or H×W")
    return array


def _name(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else f"{len(raw):,} bytes"
