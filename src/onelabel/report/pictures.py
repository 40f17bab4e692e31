"""Small pictures for a page, as data of the page itself; what cannot be shown is left out, never an error."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 176  #: pixels of a thumbnail's longer side


class Pictures:
    """The pictures of a dataset's parts by row, and of files below a folder by name."""

    def __init__(self, splits: Any = None, root: Path | None = None) -> None:
        parts = {} if splits is None else splits.parts
        self.sources: dict[str, Any] = {n: p.source for n, p in parts.items() if hasattr(p, "source")}
        self.root = root
        self.rows = {
            str(path): (part, row) for part, source in self.sources.items() for row, path in enumerate(source.paths)
        }

    def name(self, part: str, row: int) -> str:
        """What the example is called."""
        return str(self.sources[part].paths[row]) if part in self.sources else f"{part} {row}"

    def read(self, part: str, row: int) -> NDArray[np.uint8] | None:
        """The picture, H×W×3, or None."""
        if part not in self.sources or row >= len(self.sources[part]):
            return None
        return _quietly(lambda: self.sources[part].read(row))

    def find(self, example: str) -> NDArray[np.uint8] | None:
        """The picture of an example's name: a row of the parts, else a file inside the root."""
        if example in self.rows:
            return self.read(*self.rows[example])
        if self.root is None or not example or "\0" in example:
            return None
        inside = os.path.realpath(self.root)
        path = os.path.realpath(os.path.join(inside, example))
        if not path.startswith(inside.rstrip(os.sep) + os.sep) or not os.path.isfile(path):
            return None
        from onelabel.data.images import read_image

        return _quietly(lambda: read_image(path))


def _quietly(read: Any) -> NDArray[np.uint8] | None:
    from onelabel.data.images import ImageError

    try:
        found: NDArray[np.uint8] = read()
    except (ImageError, OSError, ValueError):
        return None
    return found


def data_uri(picture: NDArray[np.uint8] | None, side: int = SIDE) -> str | None:
    """A picture as a JPEG of at most `side` pixels inside a data: address; None stays None."""
    if picture is None:
        return None
    from PIL import Image

    image = Image.fromarray(picture)
    if max(image.size) > side:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def crowded(true: NDArray[np.uint8] | None) -> NDArray[np.intp]:
    """The rows that are known to have at least two true labels."""
    return np.flatnonzero(np.zeros(0) if true is None else true.sum(1) >= 2)


def several(true: NDArray[np.uint8] | None, rows: int, count: int, seed: int = 0) -> Sequence[int]:
    """Some rows drawn by `seed`, of those with at least two true labels where there are any."""
    rng = np.random.default_rng(seed)
    pool = crowded(true)
    pool = pool if len(pool) else np.arange(rows)
    return sorted(rng.permutation(pool)[:count].tolist())
