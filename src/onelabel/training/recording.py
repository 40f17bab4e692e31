"""What a training records for figures: histograms of its own logits per epoch, class and kind of entry.

Every step adds its batch to counters on the device, without waiting for it and without another pass over the data;
validation is added from the scores that selection computes anyway. Nothing of size N×L is kept but the labels, as bits.

    recording.safetensors   train, validation: int32 epochs×L×6×122; positive_loss: float64 epochs; phase, epoch
    labels.safetensors      per part the observed positives, observed negatives and true labels, one bit an entry

The six kinds are 2z + y + 2 for an observed label z and a true label y (0 where nobody knows it). Bins are intervals of
the logit, closed below: those of a hundredth of the probability, and beyond p = .01 and .99 one per unit of logit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from onelabel.system import check_schema, reading
from onelabel.training.config import TrainConfig
from onelabel.training.files import read_tensors, write_tensors
from onelabel.training.plan import PHASES

FILE, LABELS, SCHEMA = "recording.safetensors", "labels.safetensors", 1
MOST_ENTRIES, MOST_CLASSES = 50_000_000, 2_000  #: of "auto"
_P = np.arange(1, 100) / 100
EDGES = np.concatenate([np.arange(-15.0, -4.0), np.log(_P) - np.log1p(-_P), np.arange(5.0, 16.0)])
BINS, KINDS = len(EDGES) + 1, 6
#: Kind of entry → its places among the six.
GROUPS = {
    "observed positive": (4, 5),
    "unknown positive": (3,),
    "unknown negative": (2,),
    "observed negative": (0, 1),
}
_FIRST_OF_P = np.array([0, *range(12, 111)])  #: the first bin of each hundredth of p


def wanted(config: TrainConfig, rows: int, classes: int, *, kept: bool) -> bool:
    """Whether to record: as told, and for "auto" where it is small and there is a folder to keep it."""
    if config.record == "auto":
        return kept and rows * classes <= MOST_ENTRIES and classes <= MOST_CLASSES
    return config.record == "on"


class Recorder:
    """Counts entries on the device. `splits` gives the labels; `true` is None where a part has no true labels."""

    def __init__(self, splits: Any, device: torch.device) -> None:
        self.parts: dict[str, Any] = splits.parts
        self.class_names: tuple[str, ...] = splits.class_names
        classes = len(self.class_names)
        self.edges = torch.tensor(EDGES, dtype=torch.float32, device=device)
        self.base = torch.arange(classes, device=device) * (KINDS * BINS) + 2 * BINS
        self.one = torch.ones(1, dtype=torch.int32, device=device)
        self.counts = {
            name: torch.zeros(classes * KINDS * BINS, dtype=torch.int32, device=device)
            for name in ("train", "validation")
            if name in self.parts
        }
        self.positive_loss = torch.zeros((), dtype=torch.float64, device=device)
        self.done: list[dict[str, Tensor]] = []

    # -- counting ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def add(self, logits: Tensor, observed: Tensor, true: Tensor | None) -> None:
        """A training batch, B×L: only queues kernels of static shape."""
        self._count("train", logits, observed, true)
        self.positive_loss += torch.where(observed > 0, softplus(-logits), 0).sum(dtype=torch.float64)

    @torch.no_grad()
    def add_validation(self, scores: Tensor, feed: Any, *, block: int = 1 << 22) -> None:
        """Validation's probabilities, N×L, of this epoch; the last ones given count."""
        self.counts["validation"].zero_()
        size = max(1, block // max(scores.shape[1], 1))
        for start in range(0, len(scores), size):
            index = torch.arange(start, min(start + size, len(scores)), device=scores.device)
            true = None if feed.true is None else feed.true[start : start + size]
            self._count("validation", torch.logit(scores[start : start + size]), feed.observed.rows(index), true)

    def _count(self, part: str, logits: Tensor, observed: Tensor, true: Tensor | None) -> None:
        place = torch.bucketize(logits, self.edges, right=True) + self.base
        place = torch.add(place, observed, alpha=2 * BINS)
        if true is not None:
            place = torch.add(place, true, alpha=BINS)
        self.counts[part].scatter_add_(0, place.flatten(), self.one.expand(place.numel()))

    def end_epoch(self, phase: str, epoch: int) -> None:
        """Put the epoch's counters aside, on the host, and begin again."""
        row = {name: value.cpu().clone() for name, value in self.tensors().items()}
        row |= {"phase": torch.tensor(PHASES.index(phase)), "epoch": torch.tensor(epoch)}
        self.done.append(row)
        for value in self.tensors().values():
            value.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """What an update changes."""
        return {**self.counts, "positive_loss": self.positive_loss}

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The epochs put aside and the one under way."""
        return {**{f"now/{k}": v for k, v in self.tensors().items()}, **self.stacked()}

    def stacked(self) -> dict[str, Tensor]:
        """The epochs put aside, one below the other."""
        if not self.done:
            return {}
        return {name: torch.stack([row[name] for row in self.done]) for name in self.done[0]}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """What `state_dict` gave; nothing of a run that was begun before there was recording."""
        for name, value in self.tensors().items():
            if f"now/{name}" in state:
                value.copy_(state[f"now/{name}"])
        past = {name: value for name, value in state.items() if not name.startswith("now/")}
        count = len(next(iter(past.values()))) if past else 0
        known = {**self.tensors(), "phase": torch.zeros(()), "epoch": torch.zeros(())}
        shapes = {name: (count, *value.shape) for name, value in known.items()}
        if past and {name: tuple(value.shape) for name, value in past.items()} != shapes:
            raise ValueError(f"the recording holds {', '.join(sorted(past))}, not what was counted every epoch")
        self.done = [{name: value[i].clone() for name, value in past.items()} for i in range(count)]

    # -- the run folder ------------------------------------------------------------------------------------------------

    def write(self, run: Path) -> None:
        """recording.safetensors, and labels.safetensors where it is missing."""
        if self.done:
            about = {"schema_version": SCHEMA, "class_names": list(self.class_names), "true": self._true()}
            write_tensors(run / FILE, self._shaped(), {"onelabel": json.dumps(about)})
        if not (run / LABELS).is_file():
            packed = {f"{n}/{k}": v for n, part in self.parts.items() for k, v in _packed(part).items()}
            about = {"schema_version": SCHEMA, "class_names": list(self.class_names)}
            about["rows"] = {name: len(part) for name, part in self.parts.items()}
            write_tensors(run / LABELS, packed, {"onelabel": json.dumps(about)})

    def result(self) -> Recording | None:
        """What was recorded, for `Run`."""
        if not self.done:
            return None
        arrays = {name: value.numpy() for name, value in self._shaped().items()}
        return Recording(arrays, self.class_names, self._true())

    def _shaped(self) -> dict[str, Tensor]:
        found = self.stacked()
        for name in self.counts:
            found[name] = found[name].reshape(len(self.done), -1, KINDS, BINS)
        return found

    def _true(self) -> dict[str, bool]:
        return {name: part.true is not None for name, part in self.parts.items()}


@dataclass(frozen=True)
class Recording:
    """What a training recorded. `arrays` as in the file; `true`: whether a part's true labels were known."""

    arrays: Mapping[str, NDArray[Any]]
    class_names: tuple[str, ...]
    true: Mapping[str, bool]

    @classmethod
    def load(cls, run: str | Path) -> Recording | None:
        """Of a run folder; None where nothing was recorded."""
        path = Path(run) / FILE
        if not path.is_file():
            return None
        with reading(path, "the recording of a run"):
            about = metadata(path)
            check_schema(about["schema_version"], SCHEMA, path)
            arrays = {name: value.numpy() for name, value in read_tensors(path).items()}
            return cls(arrays, tuple(about["class_names"]), dict(about["true"]))

    @property
    def epochs(self) -> int:
        return len(self.arrays["epoch"])

    def counts(self, group: str, part: str = "train") -> NDArray[np.int64]:
        """Entries of a group of `GROUPS`, epochs×L×122 bins of the logit; "unknown" is all that was not observed."""
        places = (2, 3) if group == "unknown" else GROUPS[group]
        found: NDArray[np.int64] = self.arrays[part][:, :, list(places)].sum(2, dtype=np.int64)
        return found

    def by_p(self, group: str, part: str = "train") -> NDArray[np.int64]:
        """The same in hundredths of the probability, epochs×L×100."""
        return hundredths(self.counts(group, part))

    @property
    def positive_loss(self) -> NDArray[np.float64]:
        """Per epoch the mean −log p of the observed positives, over the epoch's own steps."""
        total = self.counts("observed positive").sum((1, 2))
        return np.asarray(self.arrays["positive_loss"] / np.maximum(total, 1), np.float64)


def hundredths(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts in bins of the logit (last axis) → in hundredths of the probability."""
    return np.add.reduceat(counts, _FIRST_OF_P, axis=-1)


@dataclass(frozen=True)
class PartLabels:
    """A part's labels as they were in training: observed int8 N×L; true uint8 N×L, or None."""

    observed: NDArray[np.int8]
    true: NDArray[np.uint8] | None


def read_labels(run: str | Path) -> dict[str, PartLabels]:
    """The labels kept in a run folder, by part; empty where there are none."""
    path = Path(run) / LABELS
    if not path.is_file():
        return {}
    with reading(path, "the labels of a run"):
        about, packed = metadata(path), read_tensors(path)
        check_schema(about["schema_version"], SCHEMA, path)
        return {
            part: _unpacked(packed, part, int(rows), len(about["class_names"])) for part, rows in about["rows"].items()
        }


def _unpacked(packed: Mapping[str, Tensor], part: str, rows: int, classes: int) -> PartLabels:
    bits = {}
    for kind in ("positive", "negative", "true"):
        if f"{part}/{kind}" in packed:
            plane = packed[f"{part}/{kind}"].numpy()
            if rows * classes > 8 * plane.size:
                raise ValueError(f"{part}: {plane.size} bytes for {rows}×{classes} labels")
            bits[kind] = np.unpackbits(plane, count=rows * classes).reshape(rows, classes)
    return PartLabels(bits["positive"].astype(np.int8) - bits["negative"].astype(np.int8), bits.get("true"))


def _packed(part: Any) -> dict[str, Tensor]:
    observed = part.observed.to_dense()
    planes = {"positive": observed > 0, "negative": observed < 0}
    if part.true is not None:
        planes["true"] = part.true > 0
    return {name: torch.from_numpy(np.packbits(plane)) for name, plane in planes.items()}


def metadata(path: Path) -> dict[str, Any]:
    """The JSON that a file of ours carries."""
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        about: dict[str, Any] = json.loads((file.metadata() or {}).get("onelabel", "{}"))
    if about.get("schema_version") != SCHEMA:
        raise ValueError(f"{path}: schema_version {about.get('schema_version')}, this version reads {SCHEMA}")
    return about
