"""`onelabel recover`: the labels that a training set is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import (
    BackboneOption,
    DeviceOption,
    ForceFlag,
    JsonFlag,
    LoaderOptions,
    MethodOption,
    RootOption,
    WeightsOption,
    emit,
    offer_data,
    pairs,
    share,
)

app = typer.Typer()


@app.command()
def recover(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA|RUN", help="A dataset, features file or folder; or a run.", autocompletion=offer_data
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The Parquet file. [default: recovered.parquet, or in the run]")
    ] = None,
    data: Annotated[str | None, typer.Option(help="For a run: what it was trained on. [default: as it says]")] = None,
    method: MethodOption = None,
    folds: Annotated[int, typer.Option(help="Models, each trained without one part of the rows.")] = 5,
    k: Annotated[float | None, typer.Option(help="Mean positives a row, where known; else estimated.")] = None,
    audit: Annotated[Path | None, typer.Option(help="The plan of an audit.")] = None,
    answers: Annotated[Path | None, typer.Option(help="Its answers: Parquet from review, or CSV.")] = None,
    calibration: Annotated[str, typer.Option(help="With an audit: auto, platt or isotonic.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="Share of the added labels that should be right; or f1: what has the best expected F1.")
    ] = "0.9",
    preference: Annotated[
        float, typer.Option(help="How many times more readily one present class may be named than another: intervals.")
    ] = 1.0,
    floor: Annotated[float, typer.Option(help="Least probability that is written.")] = 0.05,
    top: Annotated[int, typer.Option(help="Candidates a row at most.")] = 20,
    labels: Annotated[Path | None, typer.Option(help="Also write the completed Labels (.npz or .parquet).")] = None,
    errors: Annotated[int, typer.Option(help="List so many given labels that look wrong.")] = 0,
    duplicates: Annotated[float | None, typer.Option(help="List groups of this cosine whose labels disagree.")] = None,
    export: Annotated[
        list[str] | None, typer.Option(help="Also FORMAT=PATH: csv, coco, label-studio, fiftyone, hf, folders, yolo.")
    ] = None,
    tuned: Annotated[bool, typer.Option("--tuned", help="For a run: its fine-tuned backbone's features.")] = False,
    backbone: BackboneOption = None,
    weights: WeightsOption = None,
    size: Annotated[int, typer.Option(help="Pixels of a side.")] = 448,
    max_rows: Annotated[int | None, typer.Option(help="Rows each model trains on at most.")] = None,
    seed: Annotated[int, typer.Option(help="Of the folds.")] = 0,
    device: DeviceOption = None,
    root: RootOption = None,
    option: LoaderOptions = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Find the labels that are missing: for every example, every likely class with a calibrated probability.

    Examples: onelabel recover photos/; onelabel recover runs/mine --data photos/ --precision f1
    """
    from onelabel.recovery.command import Wanted, outcome, run_recovery

    wanted = Wanted(
        source, out, data, method, folds, k, audit, answers, calibration, share(precision), preference, floor, top,
        labels, errors, duplicates, tuple(export or ()), tuned, backbone, weights, size, max_rows, seed, device,
        root, force, pairs(option, "--option"),
    )  # fmt: skip
    done = run_recovery(wanted, (lambda line: typer.echo(line, err=True)) if as_json else typer.echo)
    if as_json:
        emit(outcome(done))
