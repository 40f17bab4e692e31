"""`onelabel recover`: the labels that a training set is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def recover(
    source: Annotated[str, typer.Argument(metavar="RUN|DATA", help="A run, or a dataset, features file or folder.")],
    out: Annotated[
        Path | None, typer.Option(help="The Parquet file. [default: recovered.parquet, or in the run]")
    ] = None,
    data: Annotated[str | None, typer.Option(help="For a run: what it was trained on.")] = None,
    method: Annotated[str | None, typer.Option(help="A method, or auto. [default: the run's, else em]")] = None,
    folds: Annotated[int, typer.Option(help="Models, each trained without one part of the rows.")] = 5,
    k: Annotated[float | None, typer.Option(help="Mean positives a row, where known; else estimated.")] = None,
    audit: Annotated[Path | None, typer.Option(help="The plan of an audit.")] = None,
    answers: Annotated[Path | None, typer.Option(help="Its answers: Parquet from review, or CSV.")] = None,
    calibration: Annotated[str, typer.Option(help="With an audit: auto, platt or isotonic.")] = "auto",
    precision: Annotated[float | None, typer.Option(help="Thresholds for this precision. [default: best F1]")] = None,
    floor: Annotated[float, typer.Option(help="Least probability that is written.")] = 0.05,
    top: Annotated[int, typer.Option(help="Candidates a row at most.")] = 20,
    labels: Annotated[Path | None, typer.Option(help="Also write the completed Labels (.npz or .parquet).")] = None,
    errors: Annotated[int, typer.Option(help="List so many given labels that look wrong.")] = 0,
    duplicates: Annotated[float | None, typer.Option(help="List groups of this cosine whose labels disagree.")] = None,
    export: Annotated[
        list[str] | None, typer.Option(help="Also FORMAT=PATH: csv, coco, label-studio, fiftyone, hf, folders, yolo.")
    ] = None,
    tuned: Annotated[bool, typer.Option("--tuned", help="For a run: its fine-tuned backbone's features.")] = False,
    backbone: Annotated[str | None, typer.Option(help="For pictures: a timm model.")] = None,
    weights: Annotated[str | None, typer.Option(help="Its weights, a file.")] = None,
    size: Annotated[int, typer.Option(help="Pixels of a side.")] = 448,
    max_rows: Annotated[int | None, typer.Option(help="Rows each model trains on at most.")] = None,
    seed: Annotated[int, typer.Option(help="Of the folds.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda; a GPU where there is one.")] = None,
    root: Annotated[str | None, typer.Option(help="Where a dataset's archives lie.")] = None,
) -> None:
    """Find the labels that are missing: for every example, every likely class with a calibrated probability.

    Examples: onelabel recover photos/ --backbone resnet50; onelabel recover runs/mine --data photos/ --precision 0.9
    """
    from onelabel.recovery.command import Wanted, run_recovery

    wanted = Wanted(
        source, out, data, method, folds, k, audit, answers, calibration, precision, floor, top, labels, errors,
        duplicates, tuple(export or ()), tuned, backbone, weights, size, max_rows, seed, device, root,
    )  # fmt: skip
    run_recovery(wanted, typer.echo)
