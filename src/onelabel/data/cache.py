"""`features`: a backbone's pooled features of a dataset, computed once and memory-mapped ever after."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onelabel.system import need, progress, reading, say

from .augment import IMAGENET_MEAN, IMAGENET_STD, Augment
from .base import Dataset, FeatureDataset
from .decode import Decoder, ahead
from .journal import ChunkedArray, Filling, failed_rows
from .report import Problem

CACHE_VERSION = 3
CPU_PIXELS = 4 * 448**2  # of a batch: more takes memory and lets the bar stand still, and is no faster
Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Features:
    """Features of a dataset's rows.

    Attributes:
        array: N×D, or N×2×D with flips (plain, mirrored); read-only and memory-mapped.
        failed: rows whose picture could not be read, and why; their features are those of a grey picture.
        path: the .npy file.
        computed: how many rows this call computed; 0 when everything was there already.
    """

    array: NDArray[Any]
    failed: dict[int, Problem]
    path: Path
    computed: int

    def dataset(self, dataset: Dataset) -> FeatureDataset:
        """The dataset with features instead of pictures; rows that could not be read leave and are reported."""
        if len(dataset) != len(self.array):
            raise ValueError(f"dataset: {len(dataset)} rows, expected {len(self.array)} as in the features")
        rows = np.setdiff1d(np.arange(len(dataset)), list(self.failed))
        dataset.report.extend(self.failed.values())
        plain = self.array if self.array.ndim == 2 else self.array[:, 0]
        whole = len(rows) == len(dataset)
        X = np.asarray(plain if whole else plain[rows], dtype=np.float32)
        part = dataset if whole else dataset.take(rows)
        return FeatureDataset(dataset.name, dataset.class_names, X, part.observed, part.true, dataset.report)


def default_cache() -> Path:
    """$ONELABEL_CACHE, else `onelabel` in the user's cache folder."""
    if folder := os.environ.get("ONELABEL_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "onelabel"


def features(
    dataset: Dataset,
    backbone: str | nn.Module,
    *,
    weights: str | Path | None = None,
    size: int = 448,
    flips: bool = False,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    dtype: Literal["float32", "float16"] = "float32",
    cache: str | Path | None = None,
    workers: int | None = None,
) -> Features:
    """Pooled features of every picture of a dataset, from the cache where they are already there.

    The cache's key is the backbone, a hash of its weights, the transform (size, mean, std), flips, precision, dtype
    and the dataset's fingerprint. An interrupted computation goes on where it stopped. Pictures whose features are
    there for another dataset by the same key, known by a hash of their content, are taken from it: another split of
    a folder, or one to which pictures came, costs what is new.

    Args:
        backbone: a timm model's name, or a module whose output is B×D, or B×D×H×W (averaged over H×W).
        weights: for a timm name, a .safetensors file, or a .pth of tensors only; timm's pretrained weights if None.
        size: pictures are squashed to size×size, as published.
        flips: also the features of the mirrored pictures.
        batch_size: pictures at a time; 64 unless given, on a CPU fewer of large ones, in a third of the memory.
        precision: of the forward pass; float32 is exact, the others use autocast.
        cache: a folder; see `default_cache`.
    """
    place = torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    module, label = _backbone(backbone, weights)
    module = module.to(place).eval()
    width = _width(module, size, place)
    batch_size = batch_size or (min(64, max(1, CPU_PIXELS // size**2)) if place.type == "cpu" else 64)
    key = {
        "backbone": label,
        "weights": weights_hash(module),
        "transform": {"squash": size, "mean": [round(m, 6) for m in mean], "std": [round(s, 6) for s in std]},
        "flips": flips,
        "precision": precision,
        "version": CACHE_VERSION,
    }
    alike = "features-" + hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=12).hexdigest()
    data = dataset.source.fingerprint()
    file = f"{alike}-{hashlib.blake2b(data.encode(), digest_size=12).hexdigest()}-{dtype}"
    count = len(dataset)
    shape = (count, 2, width) if flips else (count, width)
    folder = Path(cache) if cache is not None else default_cache()
    # A chunk is what an interruption may cost; a new batch size must not start the array anew.
    chunked = ChunkedArray(folder, file, shape, dtype, {**key, "data": data}, chunk=256)
    computed = 0
    whole = chunked.finished()
    if whole is None:
        with chunked.filling() as filling:
            whole = chunked.finished()
            if whole is None:
                plain = Augment(mean=mean, std=std).to(place).eval()
                with Decoder(dataset.source, size, threads=workers) as decoder:
                    todo = filling.todo
                    marks = _marks(decoder, [row for _, rows in todo for row in range(rows.start, rows.stop)])
                    there = _take_made(filling, marks, folder.glob(f"{alike}-*-{dtype}.json"), key)
                    missing = [np.setdiff1d(np.arange(rows.start, rows.stop), there) for _, rows in todo]
                    computed = sum(map(len, missing))
                    if computed < count:
                        say(f"{dataset.name}: going on with {count - computed:,} of {count:,} features already there")
                    with progress(f"features of {dataset.name}", computed) as advance:
                        decoded = ahead(decoder, missing, chunked.chunk)
                        for (number, rows), wanted, (squares, failed) in zip(todo, missing, decoded, strict=True):
                            for start in range(0, len(squares), batch_size):
                                images = torch.from_numpy(squares[start : start + batch_size]).to(place)
                                pooled = _forward(module, plain(images.permute(0, 3, 1, 2)), flips, precision)
                                filling.array[wanted[start : start + len(images)]] = pooled.cpu().numpy()
                                advance(len(images))
                            lost = {row: [row, p.kind, p.name, p.detail] for row, p in failed}
                            known = ["" if row in lost else marks[row] for row in range(rows.start, rows.stop)]
                            filling.done(number, {"failed": [*lost.values()], "marks": known})
                whole = filling.finish()
    array, notes = whole
    return Features(array, failed_rows((note["failed"] for note in notes), chunked.side), chunked.final, computed)


def _marks(decoder: Decoder, rows: Sequence[int]) -> dict[int, str]:
    """What tells the pictures of these rows apart by their content."""
    found: dict[int, str] = {}
    with progress("comparing pictures", len(rows)) as advance:
        for row, mark in zip(rows, decoder.pool.map(decoder.source.mark, rows), strict=True):
            found[row] = mark
            advance(1)
    return found


def _take_made(
    filling: Filling, marks: Mapping[int, str], others: Iterator[Path], key: Mapping[str, Any]
) -> NDArray[np.int64]:
    """Copy the features that the finished arrays of `others` hold of the same pictures; the rows that got theirs."""
    wanted = {row: mark for row, mark in marks.items() if mark}
    taken: list[int] = []
    for side in sorted(others):
        if not wanted:
            break
        array, theirs = _made(side, filling.owner, key)
        where = {mark: row for row, mark in enumerate(theirs)}
        here = [row for row, mark in wanted.items() if mark in where]
        for start in range(0, len(here), filling.owner.chunk):  # all at once would be in memory twice
            rows = here[start : start + filling.owner.chunk]
            filling.array[rows] = array[[where[wanted[row]] for row in rows]]
        taken += here
        wanted = {row: mark for row, mark in wanted.items() if mark not in where}
    return np.array(taken, np.int64)


def _made(side: Path, like: ChunkedArray, key: Mapping[str, Any]) -> tuple[NDArray[Any], list[str]]:
    """A finished array of such features, and its pictures' marks; nothing where it is damaged or another's."""
    try:
        saved = json.loads(side.read_text(encoding="utf-8"))
        shape, known = (int(saved["shape"][0]), *like.shape[1:]), {**key, "data": saved["key"]["data"]}
        other = ChunkedArray(side.parent, side.stem, shape, like.dtype, known, like.chunk).finished()
        if other is not None:
            marks = [str(mark) for note in other[1] for mark in note["marks"]]
            if len(marks) == len(other[0]):
                return other[0], marks
    except Exception:  # damaged: as if it were not there
        pass
    return np.empty(0), []


def weights_hash(module: nn.Module) -> str:
    """A hash of every parameter and buffer, by name, dtype and bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(module.state_dict().items()):
        data = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {data.dtype} {tuple(data.shape)}\n".encode())
        digest.update(data.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _backbone(backbone: str | nn.Module, weights: str | Path | None) -> tuple[nn.Module, str]:
    if isinstance(backbone, nn.Module):
        if weights is not None:
            raise ValueError("weights: only with a timm name; load them into the module instead")
        # The layout tells apart modules with the same tensors, such as strides on another layer.
        layout = hashlib.blake2b(repr(backbone).encode(), digest_size=8).hexdigest()
        return backbone, f"{type(backbone).__name__}-{layout}"
    timm = need("timm", "vision")
    module: nn.Module = timm.create_model(backbone, pretrained=weights is None, num_classes=0)
    if weights is not None:
        missing, _ = module.load_state_dict(read_state(Path(weights)), strict=False)  # heads are left out on purpose
        if missing:
            raise ValueError(f"weights: {weights} lacks {len(missing)} tensors of {backbone}, such as {missing[0]}")
    return module, f"timm/{backbone}"


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a weights file."""
    with reading(path, "weights alone", remedy="files with pickled code are never run"):
        if path.suffix == ".safetensors":
            loaded: dict[str, Tensor] = need("safetensors.torch", "cli").load_file(path)
            return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in loaded.items()}
        state = torch.load(path, map_location="cpu", weights_only=True)
        inner = state.get("state_dict", state)
        return dict(inner)


@torch.inference_mode()
def _width(module: nn.Module, size: int, place: torch.device) -> int:
    return int(_pool(module(torch.zeros(1, 3, size, size, device=place))).shape[1])


@torch.inference_mode()
def _forward(module: nn.Module, images: Tensor, flips: bool, precision: Precision) -> Tensor:
    fast = precision != "float32"
    context = torch.autocast(images.device.type, getattr(torch, precision)) if fast else contextlib.nullcontext()
    with context:
        plain = _pool(module(images)).float()
        return torch.stack([plain, _pool(module(images.flip(3))).float()], dim=1) if flips else plain


def _pool(output: Tensor) -> Tensor:
    if output.ndim == 4:
        return output.mean((2, 3))
    if output.ndim != 2:
        raise ValueError(f"backbone: output shape {tuple(output.shape)}, expected B×D or B×D×H×W")
    return output
