"""Where pictures come from: files, memory, or rows of either. A picture is addressed by its row."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .images import MAX_PIXELS, ImageError, ImageInfo, Raw, hash_image, inspect_image, read_image, square_image

Rows = Sequence[int] | NDArray[np.integer[Any]]


class ImageSource(ABC):
    """Pictures by row. Subclasses give `paths`, `raw`, `take` and `fingerprint`; they pickle to worker processes."""

    paths: Sequence[str]  # a name per row: relative paths, or member names
    upright: bool = True  # turn pictures by their EXIF orientation
    max_pixels: int = MAX_PIXELS

    @abstractmethod
    def raw(self, row: int) -> Raw:
        """A path, encoded bytes, or an array: whatever is cheapest."""

    @abstractmethod
    def take(self, rows: Rows) -> ImageSource:
        """The source restricted to these rows, in this order."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the pictures do; keys the caches."""

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> NDArray[np.uint8]:
        """The picture as H×W×3 uint8 RGB; raises `ImageError`."""
        return read_image(self.raw(row), name=self.paths[row], upright=self.upright, max_pixels=self.max_pixels)

    def square(self, row: int, size: int, *, exact: bool = True, draft: bool = False) -> NDArray[np.uint8]:
        """The picture squashed to size×size; raises `ImageError`. See `square_image`."""
        return square_image(
            self.raw(row),
            size,
            name=self.paths[row],
            upright=self.upright,
            exact=exact,
            draft=draft,
            max_pixels=self.max_pixels,
        )

    def mark(self, row: int) -> str:
        """What tells a picture apart by its content: of equal marks the pixels are equal. Empty if it cannot be had."""
        try:
            return f"{hash_image(self.raw(row), name=self.paths[row])}{'' if self.upright else '-stored'}"
        except ImageError:
            return ""

    def inspect(self, row: int, *, decode: bool = False) -> ImageInfo:
        """The picture's header; raises `ImageError`."""
        return inspect_image(
            self.raw(row), name=self.paths[row], upright=self.upright, max_pixels=self.max_pixels, decode=decode
        )


class FileSource(ImageSource):
    """Picture files below a root.

    Args:
        root: the folder that `paths` are relative to.
        paths: a path per row; absolute ones are taken as they are.
        hashes: a content hash per row, from a manifest; without them the fingerprint uses size and modification time.
    """

    def __init__(
        self,
        root: str | Path,
        paths: Sequence[str],
        *,
        upright: bool = True,
        max_pixels: int = MAX_PIXELS,
        hashes: Sequence[str] | None = None,
    ) -> None:
        self.root, self.paths, self.hashes = str(root), list(paths), None if hashes is None else list(hashes)
        self.upright, self.max_pixels = upright, max_pixels

    def raw(self, row: int) -> Raw:
        return os.path.join(self.root, self.paths[row])

    def take(self, rows: Rows) -> FileSource:
        hashes = None if self.hashes is None else [self.hashes[i] for i in rows]
        paths = [self.paths[i] for i in rows]
        return FileSource(self.root, paths, upright=self.upright, max_pixels=self.max_pixels, hashes=hashes)

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(f"files upright={self.upright}\n".encode(), digest_size=16)
        for row, path in enumerate(self.paths):
            if self.hashes is not None:
                mark = self.hashes[row]
            else:
                try:
                    status = os.stat(os.path.join(self.root, path))
                    mark = f"{status.st_size} {status.st_mtime_ns}"
                except OSError:
                    mark = "missing"
            digest.update(os.fsencode(path) + b"\0" + mark.encode() + b"\n")
        return digest.hexdigest()


class ArraySource(ImageSource):
    """Pictures in memory: uint8 N×H×W×3 (or a memory map of it)."""

    def __init__(self, images: NDArray[np.uint8], paths: Sequence[str] | None = None) -> None:
        if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
            raise ValueError(f"images: {images.dtype} {images.shape}, expected uint8 N×H×W×3")
        self.images = images
        self.paths = [f"{row:06d}" for row in range(len(images))] if paths is None else list(paths)
        if len(self.paths) != len(images):
            raise ValueError(f"paths: {len(self.paths)} names for {len(images)} pictures, expected one each")

    def raw(self, row: int) -> Raw:
        image: NDArray[np.uint8] = self.images[row]
        return image

    def take(self, rows: Rows) -> ArraySource:
        index = np.asarray(rows, dtype=np.int64)
        return ArraySource(self.images[index], [self.paths[i] for i in index])

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(repr(self.images.shape).encode(), digest_size=16)
        for image in self.images:
            digest.update(np.ascontiguousarray(image).data)
        return digest.hexdigest()
