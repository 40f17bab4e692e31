"""`onelabel predict`: a run's labels for pictures, or for rows of features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import DeviceOption, ForceFlag, JsonFlag, emit

app = typer.Typer()


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATHS",
            help="Pictures, folders, .txt lists, addresses; of a run on features .npy, .npz, .parquet or .arff files.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="A .parquet, .jsonl or .csv file.")] = Path("predictions.parquet"),
    threshold: Annotated[float, typer.Option(help="Probability from which a label is given.")] = 0.5,
    floor: Annotated[float, typer.Option(help="Least probability that is written.")] = 0.05,
    top: Annotated[int, typer.Option(help="Likeliest classes written beside the labels.")] = 20,
    shard: Annotated[str, typer.Option(help="i/n: the i-th of n parts, one per GPU.")] = "1/1",
    batch_size: Annotated[int, typer.Option(help="Pictures at a time.")] = 32,
    raw: Annotated[
        bool, typer.Option("--raw", help="The classifier's sigmoids, whatever calibration there is.")
    ] = False,
    device: DeviceOption = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Score pictures and stream the result.

    Examples: onelabel predict runs/mine photos/ --out labels.jsonl; onelabel predict runs/mine urls.txt --shard 2/4;
    onelabel predict runs/yeast new.npz
    """
    from onelabel.recovery import predict as work
    from onelabel.system import refuse_existing, say
    from onelabel.training import Run
    from onelabel.training.again import UNFINISHED, is_unfinished
    from onelabel.training.carried import LEAST

    loaded = Run.load(run)
    if not force:
        refuse_existing(out, remedy="give another --out, or --force to overwrite it")
    first, slash, second = shard.partition("/")
    if not slash or not first.isdigit() or not second.isdigit():
        raise ValueError(f"--shard: {shard!r}, expected i/n such as 2/4")
    found = work(
        loaded,
        paths,
        out,
        threshold=threshold,
        floor=floor,
        top=top,
        shard=(int(first), int(second)),
        batch_size=batch_size,
        device=device,
        raw=raw,
    )
    if as_json:
        emit({"file": out, **found})
        return
    kind = "calibrated probabilities" if found["calibrated"] else "the classifier's sigmoids, uncalibrated"
    what = "pictures" if loaded.classifier.takes_pictures else "rows"
    why = "" if found["calibrated"] or raw else f" (a calibration needs {LEAST} validation {what} in training)"
    if is_unfinished(run):
        say(f"{run}: {UNFINISHED}")
        why = ""
    typer.echo(f"{out}: {found['pictures']:,} {what}, {found['failed']:,} failed; {kind}{why}")
