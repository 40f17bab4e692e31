"""Serving pictures of the dataset and nothing else: small, cached, decoded by a reader that trusts no file."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

SIZES = {"thumb": 240, "preview": 960, "zoom": 2048}


class NoPicture(Exception):
    """There is no such picture, or it may not be shown; `status` is the HTTP status, the text is for people."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def safe_path(example: str, roots: Sequence[Path]) -> str:
    """The real file of an example: inside one of `roots` after every link is followed, or `NoPicture`."""
    if not roots:
        raise NoPicture(404, "the dataset's folder is not known; start the server with --root")
    if not example or "\0" in example:
        raise NoPicture(404, "the example is not a path")
    real_roots = [os.path.realpath(root) for root in roots]
    path = os.path.realpath(os.path.join(real_roots[0], example))
    if not any(path.startswith(root.rstrip(os.sep) + os.sep) for root in real_roots):
        raise NoPicture(403, "the picture lies outside the dataset's folder")
    if not os.path.isfile(path):
        raise NoPicture(404, "there is no such file")
    return path


class Thumbnails:
    """JPEG copies on disk, at most `max_bytes` of them; the oldest leave first."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        self._written = 0

    def key(self, path: str, size: str) -> str:
        """Changes whenever the file does; serves as the ETag."""
        status = os.stat(path)
        return hashlib.sha256(f"{path}|{status.st_mtime_ns}|{status.st_size}|{SIZES[size]}".encode()).hexdigest()[:40]

    def get(self, path: str, size: str) -> bytes:
        """The picture at most SIZES[size] wide and high."""
        key = self.key(path, size)
        cached = self.folder / key[:2] / f"{key}.jpg"
        with contextlib.suppress(OSError):
            return cached.read_bytes()
        data = shrink(path, SIZES[size])
        with contextlib.suppress(OSError):  # a full disk must not stop the review
            self._store(cached, data)
        return data

    def _store(self, target: Path, data: bytes) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        with self._lock:
            self._written += len(data)
            if self._written > self.max_bytes // 10:
                self._written = 0
                self.prune()

    def prune(self) -> None:
        """Delete the oldest copies until they fit."""
        files = []
        for path in self.folder.rglob("*.jpg"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.max_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def shrink(path: str, size: int) -> bytes:
    """Decode with the guarded reader, shrink to fit a square of `size`, and encode as JPEG."""
    from PIL import Image

    from onelabel.data.images import ImageError, read_image

    try:
        picture = Image.fromarray(read_image(path))
    except ImageError as error:
        raise NoPicture(422, f"the picture cannot be shown: {error.kind}") from None
    picture.thumbnail((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=85, optimize=False)
    return out.getvalue()
