"""Pictures found again by name: a row's number is another in every split and every version of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


def rows_by_name(
    rows: Sequence[int] | NDArray[np.int64], examples: Sequence[str], there: Iterable[tuple[int, str]]
) -> NDArray[np.int64]:
    """Where the pictures `examples`, once in `rows`, are among `there` (row, name); −1 where they are not.

    A picture that is where it was stays, so that names which occur twice keep their rows. `#3` is no name but what a
    row 3 without one is called: it is the same row where every picture that has a name is where it was.
    """
    names = dict(there)
    place = {name: row for row, name in names.items()}
    before = np.asarray(rows, np.int64)
    pairs = list(zip(before.tolist(), examples, strict=True))
    found = np.array([row if names.get(row) == name else place.get(name, -1) for row, name in pairs], np.int64)
    nameless = np.array([name == f"#{row}" for row, name in pairs], np.bool_)
    same = bool((found == before)[~nameless].all())
    return np.where(nameless & (found < 0), before if same else -1, found)
