"""A small, honest VOC 2012 fine-tuning on a CPU, and its report: some hundred pictures, 160 px, linear then one epoch.

python tests/report/voc.py FOLDER VOCDEVKIT WEIGHTS METHOD…    (each method some minutes; goes on where it stopped)
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from onelabel.data import Splits, load_dataset
from onelabel.report import write_report
from onelabel.training import train

ROWS = {"train": 240, "validation": 100, "test": 200}
NOTE = (
    "A small run for this page, not a result: 240 training, 100 validation and 200 test pictures of VOC 2012, 160 px, "
    "ResNet-50, a linear classifier for 25 epochs and then one epoch of fine-tuning, on a CPU."
)


def main(folder: Path, root: str, weights: str, *methods: str) -> None:
    whole = load_dataset("voc2012", root=root)
    rng = np.random.default_rng(0)
    parts = {
        name: part.take(np.sort(rng.permutation(len(part))[: ROWS[name]]), name=part.name)
        for name, part in whole.parts.items()
    }
    splits: Splits = Splits(whole.name, **parts)
    for method in methods:
        if not (folder / method / "result.json").is_file():
            train(
                splits, method=method, out=folder / method, resume=True, mode="linearinit", weights=weights, size=160,
                epochs=1, lr=1e-5, batch_size=8, device="cpu", logger="none", checkpoint_seconds=60.0,
                feature_cache=str(folder / "features"),
            )  # fmt: skip
    done = [folder / name for name in ("an", "em", "gr") if (folder / name / "result.json").is_file()]
    print(write_report(done, folder / "report.html", data=splits, title="VOC 2012, a small fine-tuning", note=NOTE))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *sys.argv[2:])
