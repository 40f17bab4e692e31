"""`Labels`: the observed labels of a dataset, +1 positive, 0 unknown, −1 negative."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.labels.build import check_csr, classes_to_csr, coo_entries, matrix_to_csr, true_to_csr
from onelabel.labels.csr import Arrays, Ints, assemble, check_names, gather, resolve_index

if TYPE_CHECKING:
    from onelabel.labels.device import DeviceLabels
    from onelabel.labels.summary import Summary


class ClassCounts(NamedTuple):
    """Entries per class, each int64 of length L."""

    positives: Ints
    negatives: Ints
    unknown: Ints


class Labels:
    """The observed labels of N examples and L classes: a ternary matrix that never changes.

    Held as compressed sparse rows, so that one label per row costs 13 bytes whatever the number of classes:
    `indptr` (int64, N+1), `indices` (int32) and `values` (int8, ±1; an unknown entry is not stored). Build it
    with :meth:`from_classes`, :meth:`from_matrix`, :meth:`from_true` or :meth:`from_coo`; the constructor takes
    the three arrays themselves, columns ascending within each row.
    """

    __slots__ = ("class_names", "indices", "indptr", "num_classes", "values")

    indptr: Ints
    indices: NDArray[np.int32]
    values: NDArray[np.int8]
    num_classes: int
    class_names: tuple[str, ...] | None

    def __init__(
        self, indptr: Any, indices: Any, values: Any, num_classes: int, class_names: Sequence[str] | None = None
    ) -> None:
        self._set(check_csr(indptr, indices, values, num_classes), num_classes, class_names)

    def _set(self, arrays: Arrays, num_classes: int, class_names: Sequence[str] | None) -> None:
        names = check_names(class_names, num_classes)
        for name, array in zip(("indptr", "indices", "values"), arrays, strict=True):
            view = np.asarray(array).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        object.__setattr__(self, "num_classes", int(num_classes))
        object.__setattr__(self, "class_names", names)

    @classmethod
    def _of(cls, arrays: Arrays, num_classes: int, class_names: Sequence[str] | None) -> Labels:
        made = cls.__new__(cls)
        made._set(arrays, num_classes, class_names)
        return made

    # -- building ----------------------------------------------------------------------------------

    @classmethod
    def from_classes(
        cls, y: Any, *, num_classes: int | None = None, class_names: Sequence[str] | None = None
    ) -> Labels:
        """The positives each example is known to have; everything else is unknown.

        `y` holds one class per example, or a list of classes per example (empty: nothing is known); a class
        is an index, or a name where `class_names` gives their order. `num_classes` is the number of names, or
        else one more than the largest index.
        """
        arrays, (_, width) = classes_to_csr(y, num_classes, class_names)
        return cls._of(arrays, width, class_names)

    @classmethod
    def from_matrix(cls, Z: Any, class_names: Sequence[str] | None = None) -> Labels:
        """A ternary matrix N×L: dense (NumPy, torch) or sparse (SciPy, torch; what is absent is unknown)."""
        arrays, (_, width) = matrix_to_csr(Z)
        return cls._of(arrays, width, class_names)

    @classmethod
    def from_true(cls, Y: Any, class_names: Sequence[str] | None = None) -> Labels:
        """A fully labelled 0/1 matrix N×L: 1 becomes +1 and 0 becomes −1.

        Every entry is stored, 5 bytes each: 33 MB for COCO's training set, 5 GB for a million rows of a
        thousand classes. Where zeros mean "not checked" use :func:`from_zero_one` instead.
        """
        arrays, (_, width) = true_to_csr(Y)
        return cls._of(arrays, width, class_names)

    @classmethod
    def from_coo(
        cls,
        rows: Any,
        cols: Any,
        values: Any,
        *,
        shape: tuple[int, int],
        class_names: Sequence[str] | None = None,
    ) -> Labels:
        """Entries one by one, in any order; `values` in {+1, 0, −1}, or one value for all of them.

        The same entry may come twice with the same value; with two values it is refused.
        """
        keys, signs = coo_entries(rows, cols, values, shape)
        return cls._of(assemble(keys, signs, shape, conflicts="values"), shape[1], class_names)

    @classmethod
    def concatenate(cls, parts: Sequence[Labels]) -> Labels:
        """The rows of all `parts`, one after another; their classes must agree."""
        parts = list(parts)
        if not parts:
            raise ValueError("parts must hold at least one Labels, got none")
        first = parts[0]
        for i, part in enumerate(parts):
            if part.num_classes != first.num_classes or part.class_names != first.class_names:
                raise ValueError(f"parts must share their classes; part {i} is {part!r}, part 0 is {first!r}")
        counts = np.concatenate([np.diff(part.indptr) for part in parts])
        arrays = (
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.values for part in parts]),
        )
        return cls._of(arrays, first.num_classes, first.class_names)

    # -- reading -----------------------------------------------------------------------------------

    @property
    def num_examples(self) -> int:
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_examples, self.num_classes

    @property
    def num_observed(self) -> int:
        """How many entries are not unknown."""
        return len(self.values)

    def rows(self, index: Any, *, device: torch.device | str | None = None) -> Tensor:
        """The labels of some examples as a dense int8 tensor of shape index.shape + (L,).

        `index` is integers of any shape (array, tensor, list, one number), a slice, or a mask over all rows.
        For a training step on a GPU use :meth:`on`, which never waits for the host.
        """
        at = resolve_index(index, self.num_examples)
        place, source = gather(self.indptr, at.reshape(-1))
        out = np.zeros((at.size, self.num_classes), np.int8)
        out[place, self.indices[source]] = self.values[source]
        batch = torch.from_numpy(out.reshape(*at.shape, self.num_classes))
        return batch if device is None else batch.to(device)

    def to_dense(self) -> NDArray[np.int8]:
        """The whole matrix, N×L int8."""
        return self.rows(slice(None)).numpy()

    def to_coo(self) -> tuple[Ints, Ints, NDArray[np.int8]]:
        """Rows, columns and values of the observed entries, in row order."""
        rows = np.repeat(np.arange(self.num_examples), np.diff(self.indptr))
        return rows, self.indices.astype(np.int64), self.values

    def on(self, device: torch.device | str, *, dense_limit: int = 1 << 29) -> DeviceLabels:
        """A copy on `device` for training steps: dense where N·L bytes are within `dense_limit`, else CSR."""
        from onelabel.labels.device import DeviceLabels

        return DeviceLabels(self, device, dense_limit=dense_limit)

    # -- changing ----------------------------------------------------------------------------------

    def take(self, index: Any) -> Labels:
        """Some of the rows, in the order of a one-dimensional `index` (as for :meth:`rows`)."""
        at = resolve_index(index, self.num_examples)
        if at.ndim != 1:
            raise ValueError(f"index must be one-dimensional, got shape {at.shape}")
        _, source = gather(self.indptr, at)
        indptr = np.zeros(len(at) + 1, np.int64)
        np.cumsum(self.indptr[at + 1] - self.indptr[at], out=indptr[1:])
        return self._of((indptr, self.indices[source], self.values[source]), self.num_classes, self.class_names)

    def with_updates(self, rows: Any, cols: Any, values: Any) -> Labels:
        """These labels with some entries replaced, as after a review or an audit; 0 makes an entry unknown.

        Where an entry is given twice the later value counts.
        """
        keys, signs = coo_entries(rows, cols, values, self.shape)
        old_rows, old_cols, old = self.to_coo()
        keys = np.concatenate([old_rows * self.num_classes + old_cols, keys])
        arrays = assemble(keys, np.concatenate([old, signs]), self.shape, conflicts=None)
        return self._of(arrays, self.num_classes, self.class_names)

    # -- counting ----------------------------------------------------------------------------------

    def counts(self) -> ClassCounts:
        """Positives, negatives and unknown entries of each class."""
        positives = np.bincount(self.indices[self.values > 0], minlength=self.num_classes)
        negatives = np.bincount(self.indices[self.values < 0], minlength=self.num_classes)
        return ClassCounts(positives, negatives, self.num_examples - positives - negatives)

    def positives_per_row(self) -> Ints:
        """The number of known positives of each example, int64 of length N."""
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.values > 0)])
        return running[self.indptr[1:]] - running[self.indptr[:-1]]

    def positive_index(self) -> tuple[Ints, Ints]:
        """Rows and columns of the positives, in row order."""
        rows, cols, values = self.to_coo()
        return rows[values > 0], cols[values > 0]

    @property
    def is_positive_only(self) -> bool:
        """No negative is known."""
        return not (self.values < 0).any()

    @property
    def has_unknown(self) -> bool:
        return self.num_observed < self.num_examples * self.num_classes

    @property
    def is_fully_observed(self) -> bool:
        return not self.has_unknown

    def summary(self) -> Summary:
        """The numbers worth a look before training; prints as a few lines."""
        from onelabel.labels.summary import summarise

        return summarise(self)

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file, `.npz` or `.parquet` by its suffix (Parquet needs ``onelabel[cli]``)."""
        from onelabel.labels.storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Labels:
        """Read what :meth:`save` wrote."""
        from onelabel.labels.storage import load

        return load(path)

    # -- being an object ---------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Labels never change: make new ones with with_updates or take (got {name}=…)")

    def __len__(self) -> int:
        return self.num_examples

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        return (
            self.num_classes == other.num_classes
            and self.class_names == other.class_names
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
            and np.array_equal(self.values, other.values)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Labels, (self.indptr, self.indices, self.values, self.num_classes, self.class_names)

    def __repr__(self) -> str:
        positives = int((self.values > 0).sum())
        named = "" if self.class_names is None else ", named"
        return (
            f"Labels({self.num_examples}×{self.num_classes}{named}: "
            f"{positives} positive, {self.num_observed - positives} negative)"
        )
