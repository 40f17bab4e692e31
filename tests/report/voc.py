"""The report of whole VOC 2012 fine-tunings, from the run folders that benchmarks/voc_report.py brought back.

python tests/report/voc.py OUT.html

VOC's labels and pictures are not part of this repository: both come from ../shared/data.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onelabel.data import Dataset, Splits, split_rows
from onelabel.data.sources import ImageSource, Rows
from onelabel.labels import Labels
from onelabel.report import write_report
from onelabel.report.runs import read_run
from onelabel.training.recording import Recorder

RUNS = Path(__file__).parent / "kept" / "voc-runs.tar.xz"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
TITLE = "VOC 2012, fine-tuned"
NOTE = (
    "GR: ResNet-50 at 448 px, the whole training set, the published split and label draw, the recipe's settings, one "
    "seed, on an H200. Recovered labels: GR probes on the features of the network that it started from, in five folds, "
    "as onelabel recover takes them. The benchmark's table has the other methods, fine-tuned the same way."
)


class Copies(ImageSource):
    """The small copies of ../shared/data (images-*.npz), by their row in [training, test]."""

    upright = False

    def __init__(self, folder: Path, rows: Rows, paths: list[str]) -> None:
        self.folder, self.rows, self.paths = folder, np.asarray(rows), paths

    @cached_property
    def shards(self) -> list[tuple[int, Any, Any]]:
        found = []
        for file in sorted(self.folder.glob("images-*.npz")):
            with np.load(file) as shard:
                found.append((int(shard["start"]), shard["ends"], shard["blob"]))
        return found

    def raw(self, row: int) -> bytes:
        start, ends, blob = [shard for shard in self.shards if shard[0] <= self.rows[row]][-1]
        at = self.rows[row] - start
        return bytes(blob[0 if at == 0 else ends[at - 1] : ends[at]])

    def take(self, rows: Rows) -> Copies:
        return Copies(self.folder, self.rows[np.asarray(rows)], [self.paths[i] for i in rows])

    def fingerprint(self) -> str:
        return hashlib.blake2b("\n".join(self.paths).encode()).hexdigest()


def unpack(folder: Path, shared: Path) -> list[Path]:
    """The run folders with VOC's labels; beside them recovered.parquet, and results of the bench."""
    from onelabel.bench.datasets import voc_features
    from onelabel.recovery import recover

    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(RUNS) as archive:
        archive.extractall(folder, filter="data")
    runs = sorted(path.parent for path in folder.glob("*/config.toml"))
    data = voc_features(shared / "voc2012")
    for run in runs:
        Recorder(data, torch.device("cpu")).write(run)  # the labels alone: nothing was counted
    with np.load(shared / "voc2012" / "labels.npz") as file:
        names = file["train_images"][split_rows(len(file["train_images"]), 0.2)[0]]
    recover(
        data.train.X, data.train.observed, folder / "recovered.parquet", method="gr", examples=list(map(str, names))
    )
    (folder / "results").mkdir(exist_ok=True)
    for kept in (Path(__file__).parents[2] / "docs" / "results" / "bench").glob("finetune*.parquet"):
        shutil.copy(kept, folder / "results")
    return runs


def with_pictures(run: Path, shared: Path) -> Splits[Any]:
    """The data of a run: its own labels, the pictures' small copies."""
    with np.load(shared / "voc2012" / "labels.npz") as file:
        count = len(file["train_images"])
        names = [*map(str, file["train_images"]), *map(str, file["test_images"])]
    view = read_run(run)
    first, held = split_rows(count, 0.2)
    rows = {"train": first, "validation": held, "test": np.arange(count, len(names))}
    parts = {
        part: Dataset(
            f"voc2012/{part}",
            view.class_names,
            Copies(shared / "voc2012", rows[part], [names[i] for i in rows[part]]),
            Labels.from_matrix(labels.observed, list(view.class_names)),
            labels.true,
        )
        for part, labels in view.labels.items()
    }
    return Splits("voc2012", **parts)


def make_page(runs: list[Path], out: Path, shared: Path) -> Path:
    beside = runs[0].parent
    return write_report(
        [*runs, beside / "results"],
        out,
        data=with_pictures(runs[0], shared),
        recovered=beside / "recovered.parquet",
        title=TITLE,
        note=NOTE,
    )


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)  # so that the page's commands have short paths
        print(make_page(unpack(Path("runs"), SHARED), target, SHARED))
