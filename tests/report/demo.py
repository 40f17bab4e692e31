"""The report of docs/report-*.png: digits-scenes, five runs, recovered labels and a leaderboard.

python tests/report/demo.py FOLDER    (FOLDER of material.py; makes what is missing)
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from material import LARGE, feature_splits, make_runs

from onelabel.labels import Labels
from onelabel.probes.compare import Parts, compare
from onelabel.probes.role_table import write_rows
from onelabel.recovery import recover
from onelabel.report import write_report

NOTE = (
    "The embedded dataset, 2,000 scenes of 32 px, small-cnn, 8 epochs on a CPU. Leaderboard and recovered labels: "
    "of probes on the features of a small-cnn trained on other scenes."
)


def main(folder: Path) -> None:
    runs = make_runs(folder / "runs", LARGE, epochs=8, schedule="cosine")
    recovered, board = folder / "recovered.parquet", folder / "leaderboard.csv"
    if not recovered.is_file() or not board.is_file():
        other = make_runs(folder / "other", {**LARGE, "seed": 7}, ["em"], epochs=8, schedule="cosine")
        splits = feature_splits(LARGE, other["em"])
        train, names = splits.train, list(splits.class_names)
        labels = Labels(train.observed.indptr, train.observed.indices, train.observed.values, 10, names)
        examples = [f"train-{row:06d}" for row in range(len(train))]
        recover(train.X, labels, recovered, method="em", examples=examples, top=10)
        parts = Parts(train.X, labels, (splits.validation.X, splits.validation.true), (splits.test.X, splits.test.true))
        methods = ["an", "wan", "an-ls", "em", "gr", "role", "asl", "las"]
        write_rows(compare(parts, methods=methods, lr=[1e-2], seeds=2, epochs=8)[1], board)
    made = write_report(
        [runs[n] for n in ("an", "em", "gr", "role", "bce")], folder / "report.html", recovered=recovered,
        leaderboard=board, note=NOTE,
    )  # fmt: skip
    print(made)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
