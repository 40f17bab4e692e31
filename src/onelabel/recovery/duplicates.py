"""Near-duplicate pictures, by their features, and where their labels disagree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.labels import Labels
from onelabel.system import progress

#: Rows up to which every pair is compared.
EXACT_ROWS = 50_000
BLOCK = 1024


@dataclass(frozen=True)
class DuplicateGroup:
    """Rows whose features nearly agree, and the observed positives among them."""

    rows: tuple[int, ...]
    classes: tuple[int, ...]

    @property
    def disagrees(self) -> bool:
        """Different labels were given to what is nearly one picture: each is probably missing the others'."""
        return len(self.classes) > 1


def near_duplicates(
    features: Any,
    labels: Labels,
    *,
    cosine: float = 0.98,
    disagreeing: bool = True,
    exact_rows: int = EXACT_ROWS,
    tables: int = 8,
    seed: int = 0,
) -> list[DuplicateGroup]:
    """Groups of rows linked by a cosine similarity of at least `cosine`, largest first.

    Up to `exact_rows` rows all pairs are compared, block by block, in memory of two blocks. Beyond, only rows that
    share a bucket of one of `tables` random hyperplane hashes are, which misses few pairs at similarities near 1.
    Rows whose features are all zero are nobody's duplicate. With `disagreeing` only groups with several labels.
    """
    if not 0 < cosine <= 1:
        raise ValueError(f"cosine must lie in (0, 1], got {cosine!r}")
    rows = len(features)
    if labels.num_examples != rows:
        raise ValueError(f"labels have {labels.num_examples} rows, features {rows}: they must be equal")
    parent = np.arange(rows)
    with progress("comparing pictures", None) as advance:
        for bucket in _buckets(features, rows, exact_rows, tables, seed):
            for a in range(0, len(bucket), BLOCK):
                left = bucket[a : a + BLOCK]
                U = _unit(features, left)
                for b in range(a, len(bucket), BLOCK):
                    right = bucket[b : b + BLOCK]
                    V = U if b == a else _unit(features, right)
                    near = np.greater_equal(U @ V.T, cosine - 1e-6)
                    _link(parent, left, right, near)
                advance(len(left))
    root = np.array([_find(parent, i) for i in range(rows)])
    order = np.argsort(root, kind="stable")
    edges = np.flatnonzero(np.diff(root[order], prepend=-1))
    groups = []
    for start, stop in zip(edges, [*edges[1:], rows], strict=True):
        if stop - start < 2:
            continue
        members = np.sort(order[start:stop])
        some = labels.take(members)
        group = DuplicateGroup(tuple(members.tolist()), tuple(np.unique(some.positive_index()[1]).tolist()))
        if group.disagrees or not disagreeing:
            groups.append(group)
    return sorted(groups, key=lambda g: (-len(g.rows), g.rows))


def _unit(features: Any, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    X = np.asarray(features[rows], np.float32)
    norm = np.linalg.norm(X, axis=1, keepdims=True)
    out: NDArray[np.float32] = np.divide(X, norm, out=np.zeros_like(X), where=norm > 0)
    return out


def _buckets(features: Any, rows: int, exact: int, tables: int, seed: int) -> Iterator[NDArray[np.int64]]:
    if rows <= exact:
        yield np.arange(rows)
        return
    rng = np.random.default_rng(seed)
    bits = min(30, max(8, int(np.log2(rows / 32))))
    step = max(1, 16_000_000 // features.shape[1])
    centre = np.asarray(features[np.sort(rng.choice(rows, min(rows, 10_000), replace=False))], np.float32).mean(0)
    for _ in range(tables):
        planes = rng.standard_normal((features.shape[1], bits)).astype(np.float32)
        key = np.zeros(rows, np.int64)
        for start in range(0, rows, step):
            part = np.asarray(features[start : start + step], np.float32) - centre
            key[start : start + step] = (part @ planes > 0) @ (1 << np.arange(bits))
        order = np.argsort(key, kind="stable")
        edges = np.flatnonzero(np.diff(key[order], prepend=-1))
        for a, b in zip(edges, [*edges[1:], rows], strict=True):
            if b - a > 1:
                yield order[a:b]


def _link(
    parent: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64], near: NDArray[np.bool_]
) -> None:
    """Join what is near; labels flow over the whole block at once, so that identical pictures cost no more."""
    near = near & (left[:, None] != right[None, :])
    i, j = np.flatnonzero(near.any(1)), np.flatnonzero(near.any(0))
    if not len(i):
        return
    near = near[np.ix_(i, j)]
    a = np.array([_find(parent, r) for r in left[i]])
    b = np.array([_find(parent, r) for r in right[j]])
    first_a, first_b, big = a.copy(), b.copy(), len(parent)
    while True:
        new_a = np.minimum(a, np.where(near, b[None, :], big).min(1))
        new_b = np.minimum(b, np.where(near, new_a[:, None], big).min(0))
        if (new_a == a).all() and (new_b == b).all():
            break
        a, b = new_a, new_b
    for old, new in zip(np.concatenate([first_a, first_b]), np.concatenate([a, b]), strict=True):
        x, y = _find(parent, int(old)), _find(parent, int(new))
        parent[max(x, y)] = min(x, y)


def _find(parent: NDArray[np.int64], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = int(parent[i])
    return int(i)
