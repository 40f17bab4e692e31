"""`Dataset`, `FeatureDataset` and `Splits`: what every loader returns, and how clean labels become observed ones."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from onelabel.labels import Labels
from onelabel.system import say

from .report import REDRAW, Report, no_rows, printable
from .sources import ImageSource, Rows

Matrix = NDArray[np.uint8]
Part = Literal["train", "validation", "test"]


class _Rows:
    """What both kinds of split share."""

    class_names: tuple[str, ...]
    observed: Labels
    true: Matrix | None

    def _check(self, rows: int, what: str) -> None:
        classes = len(self.class_names)
        if self.observed.shape != (rows, classes):
            raise ValueError(f"observed: {self.observed.shape}, expected {rows} {what} × {classes} class names")
        if self.true is not None and (self.true.shape != (rows, classes) or self.true.dtype != np.uint8):
            raise ValueError(f"true: {self.true.dtype} {self.true.shape}, expected uint8 {(rows, classes)}")

    def __len__(self) -> int:
        return self.observed.num_examples

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


@dataclass(frozen=True)
class Dataset(_Rows):
    """One split of pictures; row i of `source`, `observed` and `true` belong together.

    Attributes:
        class_names: one name per column.
        source: the pictures; `source.read(i)` gives H×W×3 uint8.
        observed: +1 positive, 0 unknown, −1 negative.
        true: the clean labels, uint8 N×L, or None where nobody knows them.
        report: what went wrong while reading.
        decoded: whether every picture has been read whole (`verify_splits`): nobody needs to look again.
    """

    name: str
    class_names: tuple[str, ...]
    source: ImageSource
    observed: Labels
    true: Matrix | None = None
    report: Report = field(default_factory=Report, compare=False)
    decoded: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        self._check(len(self.source), "pictures")

    def take(self, rows: Rows, *, name: str | None = None) -> Dataset:
        """These rows, in this order."""
        index = _index(rows, len(self))
        true = None if self.true is None else self.true[index]
        return replace(
            self,
            name=name or self.name,
            source=self.source.take(index),
            observed=self.observed.take(index),
            true=true,
        )


@dataclass(frozen=True)
class FeatureDataset(_Rows):
    """One split of data that is not pictures: a float32 matrix `X` N×D with the same labels as `Dataset`."""

    name: str
    class_names: tuple[str, ...]
    X: NDArray[np.float32]
    observed: Labels
    true: Matrix | None = None
    report: Report = field(default_factory=Report, compare=False)

    def __post_init__(self) -> None:
        if self.X.ndim != 2:
            raise ValueError(f"X: shape {self.X.shape}, expected N×D")
        self._check(len(self.X), "rows of X")

    def take(self, rows: Rows, *, name: str | None = None) -> FeatureDataset:
        """These rows, in this order."""
        index = _index(rows, len(self))
        true = None if self.true is None else self.true[index]
        return replace(self, name=name or self.name, X=self.X[index], observed=self.observed.take(index), true=true)


S = TypeVar("S", Dataset, FeatureDataset)


@dataclass(frozen=True)
class Splits(Generic[S]):
    """A dataset's parts. `notes` say in words how they were made; `report` is shared by all of them.

    `origin` is what `load_dataset` was given, for messages: empty where that was no text. `check` is the command that
    lists everything wrong with it.
    """

    name: str
    train: S
    validation: S | None = None
    test: S | None = None
    notes: tuple[str, ...] = ()
    origin: str = ""
    check: str = "onelabel data check"

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names

    @property
    def report(self) -> Report:
        return self.train.report

    @property
    def parts(self) -> dict[str, S]:
        """The parts that exist, by name."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    @property
    def left_out(self) -> str:
        """One line about what could not be used or learnt, names and pictures alike, and how to see all; else empty."""
        fatal = [problem for problem in self.report if problem.fatal]
        told = []
        if fatal:
            kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(Counter(p.kind for p in fatal).items()))
            told.append(f"{len(fatal):,} left out ({kinds}), such as {printable(fatal[0].name)}")
        if alike := self.report.names("alike"):
            more = f" and {len(alike) - 1:,} more" if len(alike) > 1 else ""
            told.append(f"separate classes with names alike: {printable(alike[0])}{more}")
        for cells in (problem for problem in self.report if problem.kind == "undivided"):
            told.append(f"{printable(cells.name)}: {cells.detail}")
        if unseen := self.report.names("untrained"):
            more = f" and {len(unseen) - 3:,} more" if len(unseen) > 3 else ""
            which = f"{printable(', '.join(unseen[:3]))}{more}"
            what = f"{len(unseen):,} class{'es' if len(unseen) != 1 else ''} without a row in training: {which}"
            redraw = any(p.detail.endswith(REDRAW) for p in self.report if p.kind == "untrained")
            told.append(f"{what} (add some{f', or {REDRAW}' if redraw else ''})")
        for drawn in (problem for problem in self.report if problem.kind == "hidden"):
            told.append(f"of {drawn.name} in training {drawn.detail}, the rest hidden (-o drop=none shows all)")
        if self.report.names("sole"):
            told.append("each row has one label and, by `complete`, no other (leave it out if nobody looked for them)")
        if dim := set(self.report.names("dim")):
            folder = shlex.quote(getattr(getattr(self.train, "source", None), "root", "FOLDER"))
            what = f"{len(dim):,} 16-bit pictures hold no value above 4095 (12 bits) and are read nearly black"
            told.append(f"{what} (onelabel data brighten {folder} OUT multiplies them by 16)")
        if same := [problem for problem in self.report if problem.kind == "duplicate-content"]:
            such = printable(f"{same[0].name} {same[0].detail}")
            told.append(f"{len(same):,} with the same bytes as another, such as {such}")
        return f"{self.name}: {'; '.join(told)}; `{self.check}` lists them" if told else ""

    def tell(self) -> None:
        """Say what was left out, where anything was: nothing leaves silently."""
        if line := self.left_out:
            say(line)


@dataclass(frozen=True)
class Draw:
    """How observed labels and the validation part are drawn; the defaults are the published ones.

    Attributes:
        seed: of both the label draw and the split, unless `split_seed` says otherwise.
        validation: the share of the training rows held out.
        drop: a scheme of `labels.drop_labels`, "none" (every label observed), or a function from the clean matrix.
        positives, negatives: how many known labels are kept per row.
        options: passed on to `drop_labels` (such as `sizes` for the scheme "size").
    """

    seed: int = 1200
    validation: float = 0.2
    drop: str | Callable[[Matrix], Labels] = "uniform"
    positives: int = 1
    negatives: int = 0
    split_seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def observe(self, true: Matrix, class_names: Sequence[str], **options: Any) -> Labels:
        """The observed labels of a clean matrix."""
        if self.drop == "none":
            return Labels.from_true(true, class_names)
        if callable(self.drop):
            return self.drop(true)
        from onelabel.labels import drop_labels

        drawn = drop_labels(
            true,
            scheme=cast(Any, self.drop),  # drop_labels names the schemes when it is none of them
            seed=self.seed,
            positives=self.positives,
            negatives=self.negatives,
            **{**self.options, **options},
        )
        return Labels(drawn.indptr, drawn.indices, drawn.values, drawn.num_classes, class_names)

    def split(self, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Training and validation rows as published; see `split_rows`."""
        return split_rows(rows, self.validation, self.seed if self.split_seed is None else self.split_seed)


def split_rows(rows: int, validation: float, seed: int = 1200) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The published split: the last round(validation·rows) of `RandomState(seed).permutation(rows)`, both sorted."""
    if not 0 <= validation < 1:
        raise ValueError(f"validation: {validation}, expected a share of at least 0 and below 1")
    held = int(np.round(validation * rows))
    order = np.random.RandomState(seed).permutation(rows).astype(np.int64)
    return np.sort(order[: rows - held]), np.sort(order[rows - held :])


def make_splits(
    name: str,
    class_names: Sequence[str],
    rows: Mapping[Part, ImageSource | NDArray[np.float32]],
    labels: Mapping[Part, Matrix | Labels | tuple[Labels, Matrix]],
    *,
    draw: Draw,
    report: Report,
    notes: Sequence[str] = (),
    keep: Mapping[Part, NDArray[np.bool_]] | None = None,
    sizes: Mapping[Part, Any] | None = None,
) -> Splits[Any]:
    """Splits from whole parts: draw the observed labels, hold out validation, then leave out unusable rows.

    Args:
        rows: a picture source or feature matrix per part; "train" is required, a given "validation" is not drawn.
        labels: per part the clean matrix, or `Labels` where only observed labels exist, or both.
        keep: per part which rows can be used. Rows leave after the draw and the split, which therefore never depend
            on what is missing from a disk.
        sizes: per part the object sizes, for the scheme "size".
    """
    names = tuple(class_names)
    made: dict[str, Any] = {}
    for part, source in rows.items():
        given = labels[part]
        if len(source) == 0 and part != "train":
            continue
        extra = {"sizes": sizes[part]} if sizes and part in sizes else {}
        if isinstance(given, tuple):
            observed, true = given
        elif isinstance(given, Labels):
            observed, true = given, None
        else:
            observed, true = draw.observe(given, names, **extra), given
        made[part] = _build(f"{name}/{part}", names, source, observed, true, report)
    usable = {part: np.ones(len(made[part]), bool) for part in made}
    usable.update({part: np.asarray(mask, bool) for part, mask in (keep or {}).items() if part in made})
    train, mask = made["train"], usable["train"]
    if "validation" in made or draw.validation == 0:
        made["train"] = _kept(train, np.arange(len(train)), mask, f"{name}/train")
        if "validation" in made:
            validation = made["validation"]
            every = np.arange(len(validation))
            made["validation"] = _kept(validation, every, usable["validation"], validation.name)
    else:
        first, held = draw.split(len(train))
        made["train"] = _kept(train, first, mask, f"{name}/train")
        made["validation"] = _kept(train, held, mask, f"{name}/validation")
    if "test" in made:
        made["test"] = _kept(made["test"], np.arange(len(made["test"])), usable["test"], f"{name}/test")
    if len(made["train"]) == 0:
        raise no_rows(name, report)
    parts = {part: value for part, value in made.items() if len(value)}
    return Splits(name, parts["train"], parts.get("validation"), parts.get("test"), tuple(notes))


def _build(
    name: str, class_names: tuple[str, ...], rows: Any, observed: Labels, true: Matrix | None, report: Report
) -> Dataset | FeatureDataset:
    if isinstance(rows, ImageSource):
        return Dataset(name, class_names, rows, observed, true, report)
    return FeatureDataset(name, class_names, rows, observed, true, report)


def _kept(part: S, rows: NDArray[np.int64], usable: NDArray[np.bool_], name: str) -> S:
    chosen = rows[usable[rows]]
    if len(chosen) == len(part) and (chosen == np.arange(len(part))).all():
        return replace(part, name=name)
    return part.take(chosen, name=name)


def _index(rows: Rows, count: int) -> NDArray[np.int64]:
    index = np.asarray(rows)
    if index.dtype == bool:
        index = np.flatnonzero(index)
    index = index.astype(np.int64)
    if index.ndim != 1 or (len(index) and (index.min() < 0 or index.max() >= count)):
        raise ValueError(f"rows: shape {index.shape}, expected row numbers from 0 to {count - 1}")
    return index
