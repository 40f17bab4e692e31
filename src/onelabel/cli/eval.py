"""`onelabel eval`: a run's classifier on a dataset."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import DeviceOption, JsonFlag, LoaderOptions, RootOption, emit, offer, offer_data, pairs

app = typer.Typer()


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]", help="A dataset; else what the run was trained on.", autocompletion=offer_data
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            help="train, validation or test. [default: test; where there is none, validation, or all of DATA]",
            autocompletion=offer("train", "validation", "test"),
        ),
    ] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Average with the mirrored pictures.")] = False,
    batch_size: Annotated[int, typer.Option(help="Pictures at a time.")] = 64,
    device: DeviceOption = None,
    scores: Annotated[Path | None, typer.Option(help="Write the probabilities here (.npy).")] = None,
    as_json: JsonFlag = False,
    option: LoaderOptions = None,
    root: RootOption = None,
) -> None:
    """Score a run's best weights on one part of a dataset.

    Examples: onelabel eval runs/mine; onelabel eval runs/voc2012-gr-finetune voc2012 --flip;
    onelabel eval runs/mine truth.csv --root photos -o complete=true
    """
    from onelabel.data import load_dataset
    from onelabel.training import again
    from onelabel.training import evaluate as work
    from onelabel.training.files import write_array
    from onelabel.training.run import Run

    found = Run.load(run)
    origin = again.Origin.load(run) if data is None else again.Origin(data)
    loader = {**origin.options, **pairs(option, "--option")}
    if origin.source == "digits-scenes":
        loader.setdefault("size", found.config.size)
    whole = part is None and data is not None and "validation" not in loader  # then nothing is held out of DATA
    splits = load_dataset(origin.source, root=root or origin.root, **({**loader, "validation": 0} if whole else loader))
    order = ("test", "train") if whole else ("test", "validation", "train")
    part = part or next(name for name in order if name in splits.parts)
    result = work(found, splits, part=part, device=device or "auto", batch_size=batch_size, flip=flip)
    if scores is not None:
        write_array(scores, result["scores"])
    if as_json:
        emit({"run": run, "part": part, **{k: v for k, v in result.items() if k != "scores"}})
        return
    for name, value in sorted(result["AP"].items(), key=lambda item: (math.isnan(item[1]), -item[1])):
        typer.echo(f"     –  {name} (none in these rows)" if math.isnan(value) else f"{100 * value:6.2f}  {name}")
    where = "rows" if data is not None and part == "train" else f"{part} rows"
    compared = "" if result["true"] else " (against observed positives: nobody knows the true labels)"
    typer.echo(f"{result['mAP']:6.2f}  mAP of {result['rows']:,} {where}{compared}")
