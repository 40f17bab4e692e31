"""Datasets with known truth on which recovery is measured, and cross-fitted scores for many label draws at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from onelabel.labels import Labels, drop_labels
from onelabel.probes import ProbeSpec, fit_probes
from onelabel.probes.folds import assign_folds

Arrays = tuple[np.ndarray, np.ndarray]
VOC = Path(__file__).resolve().parents[2] / "shared/data/voc2012"


def voc(folder: Path = VOC) -> Arrays:
    """VOC 2012's 5,717 training pictures, ResNet-50 features; k = 1.46."""
    with np.load(folder / "labels.npz", allow_pickle=False) as file:
        Y = file["train_true"]
    with np.load(folder / "features-resnet50-448.npz", allow_pickle=False) as file:
        X = ((file["train"].astype(np.float32) / 255) ** 2 * file["peak"]).astype(np.float32)
    return X, Y


def digits() -> Arrays:
    """digits-scenes through random patches (`benchmarks/selection.py`): 4,000 rows, 10 classes, k = 2.1, weak."""
    from selection import digits_case

    from onelabel.data import load_dataset

    return digits_case().X, load_dataset("digits-scenes", size=48).train.true


def latent(rows: int = 4000, classes: int = 12, seed: int = 1) -> Arrays:
    """Labels that hang together: five hidden factors decide them, features are the factors bent, with noise."""
    rng = np.random.default_rng(seed)
    h = rng.standard_normal((2 * rows, 5))
    logits = 1.8 * h @ rng.standard_normal((5, classes)) / 5**0.5 * 1.5 - np.linspace(1.2, 4.0, classes)
    y = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    bent = np.tanh(h @ rng.standard_normal((5, 64)) / 2) + 0.4 * rng.standard_normal((2 * rows, 64))
    keep = np.flatnonzero(y.any(1))[:rows]
    return bent[keep].astype(np.float32), y[keep].astype(np.uint8)


def sklearn(rows: int = 4000, classes: int = 15) -> Arrays:
    """`make_multilabel_classification`: features are counts of words from a mixture of the row's topics; k ≈ 2.3."""
    from sklearn.datasets import make_multilabel_classification

    X, Y = make_multilabel_classification(
        rows, 60, n_classes=classes, n_labels=2, length=60, allow_unlabeled=False, random_state=3
    )
    return np.sqrt(X).astype(np.float32), Y.astype(np.uint8)


def longtail(rows: int = 8000, classes: int = 100, seed: int = 2) -> Arrays:
    """100 classes, the commonest in a third of the rows, the rarest in about one in a thousand."""
    rng = np.random.default_rng(seed)
    share = 0.35 / np.arange(1, classes + 1) ** 1.3
    y = rng.random((rows, classes)) < np.maximum(share, 0.001)
    empty = np.flatnonzero(~y.any(1))
    y[empty, rng.choice(classes, len(empty), p=share / share.sum())] = True
    X = y @ rng.standard_normal((classes, 128)) * 0.5 + 1.2 * rng.standard_normal((rows, 128))
    return X.astype(np.float32), y.astype(np.uint8)


def ink() -> Arrays:
    """scikit-learn's handwritten digits: which of 16 parts of the picture hold much ink, told by blurred pixels."""
    from sklearn.datasets import load_digits

    images = load_digits().images / 16
    blocks = images.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16)
    Y = blocks > np.maximum(np.quantile(blocks, np.linspace(0.75, 0.95, 16), axis=0).diagonal(), 0.05)
    rng = np.random.default_rng(4)
    X = np.tanh(2 * images.reshape(len(images), -1) @ rng.standard_normal((64, 48)) / 8)
    X = X + 0.15 * rng.standard_normal(X.shape)
    keep = Y.any(1)
    return X[keep].astype(np.float32), Y[keep].astype(np.uint8)


def rooms(rows: int = 8000, classes: int = 80, kinds: int = 25, seed: int = 6) -> Arrays:
    """80 things that come together by the kind of scene, each seen more or less clearly; k = 1.4."""
    rng = np.random.default_rng(seed)
    share = 0.12 / np.arange(1, classes + 1) ** 0.8
    share[0] = 0.45
    profile = np.clip(share * rng.gamma(0.5, 2.0, (kinds, classes)), 0, 0.9)
    kind = rng.integers(kinds, size=rows)
    y = rng.random((rows, classes)) < profile[kind]
    for row in np.flatnonzero(~y.any(1)):
        y[row, rng.choice(classes, p=profile[kind[row]] / profile[kind[row]].sum())] = True
    clear = rng.gamma(2, 0.5, y.shape) * y
    X = 0.45 * clear @ rng.standard_normal((classes, 256)) + 1.5 * rng.standard_normal((rows, 256))
    return np.maximum(X, 0).astype(np.float32), y.astype(np.uint8)


def attributes(rows: int = 6000, species: int = 200, groups: int = 28, values: int = 11, seed: int = 5) -> Arrays:
    """Attributes of species as CUB has them: one or two values of each group are seen, k = 28.2 of 248 labels."""
    rng = np.random.default_rng(seed)
    y = np.zeros((rows, groups, values), bool)
    kind = rng.integers(species, size=rows)
    for group in range(groups):
        common = rng.dirichlet(np.full(values, 0.4))
        profile = np.stack([rng.dirichlet(3 * common + 1e-3) for _ in range(species)]).cumsum(1)
        seen = rng.random(rows) < rng.uniform(0.75, 1)
        for chance in (1.0, 0.25):  # a second value now and then
            value = (rng.random(rows)[:, None] > profile[kind]).sum(1).clip(max=values - 1)
            there = np.flatnonzero(seen & (rng.random(rows) < chance))
            y[there, group, value[there]] = True
    y = y.reshape(rows, -1)
    y = y[:, y.mean(0) > 0.003]
    X = 0.35 * (y - y.mean(0)) @ rng.standard_normal((y.shape[1], 256))
    X = X + rng.standard_normal((species, 256))[kind] + 1.5 * rng.standard_normal((rows, 256))
    return np.maximum(X, 0).astype(np.float32), y.astype(np.uint8)


CASES: Mapping[str, Callable[[], Arrays]] = {
    "voc": voc,
    "digits": digits,
    "latent": latent,
    "sklearn": sklearn,
    "longtail": longtail,
    "ink": ink,
    "rooms": rooms,
    "attributes": attributes,
}


def draws_of(Y: np.ndarray, seeds: int) -> dict[str, Labels]:
    """`seeds` uniform draws of one label a row, and as many in which common classes are named first."""
    found = {f"uniform{s}": drop_labels(Y, seed=s) for s in range(seeds)}
    return found | {f"frequency{s}": drop_labels(Y, scheme="frequency", seed=s) for s in range(seeds)}


def held_out_scores(
    X: np.ndarray,
    draws: Mapping[str, Labels],
    specs: Mapping[str, ProbeSpec],
    *,
    folds: int = 5,
    keep: Path | None = None,
) -> dict[str, np.ndarray]:
    """N×L logits by name of `specs`, whose `labels` name a draw: five probes each, none having seen the row it scores.

    Folds are the same for all draws. Kept in, and taken from, the file `keep` where one is given.
    """
    if keep is not None and keep.is_file():
        return dict(np.load(keep, allow_pickle=False))
    first = next(iter(draws.values()))
    fold = assign_folds(Labels.from_matrix(np.zeros(first.shape, np.int8)), folds)
    scores = {name: np.zeros(first.shape, np.float32) for name in specs}
    for f in range(folds):
        rows, held = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        found = fit_probes(
            X[rows], {name: each.take(rows) for name, each in draws.items()}, list(specs.values()), progress=False
        )
        for i, name in enumerate(specs):
            scores[name][held] = found.scores(X[held], i).numpy()
        print(f"fold {f}: {found.seconds:.0f} s", flush=True)
    if keep is not None:
        np.savez(keep, **scores)
    return scores
