"""`onelabel eval`: a run's classifier on a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset's name, a folder per class, a table, …")],
    part: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    flip: Annotated[bool, typer.Option("--flip", help="Average with the mirrored pictures.")] = False,
    batch_size: Annotated[int, typer.Option(help="Pictures at a time.")] = 64,
    device: Annotated[str, typer.Option(help="cpu, cuda; a GPU where there is one.")] = "auto",
    scores: Annotated[Path | None, typer.Option(help="Write the probabilities here (.npy).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help="A loader's option as NAME=VALUE.")] = None,
    root: Annotated[str | None, typer.Option(help="Where a dataset's archives lie.")] = None,
) -> None:
    """Score a run's best weights on one part of a dataset.

    Examples: onelabel eval runs/voc2012-gr-finetune voc2012; onelabel eval runs/mine photos/ --part validation
    """
    from onelabel.cli.options import pairs
    from onelabel.data import load_dataset
    from onelabel.training import evaluate as work
    from onelabel.training.files import write_array
    from onelabel.training.run import Run

    found = Run.load(run)
    loader = pairs(option, "--option")
    if data == "digits-scenes":
        loader.setdefault("size", found.config.size)
    splits = load_dataset(data, root=root, **loader)
    result = work(found, splits, part=part, device=device, batch_size=batch_size, flip=flip)
    if scores is not None:
        write_array(scores, result["scores"])
    if as_json:
        typer.echo(json.dumps({k: v for k, v in result.items() if k != "scores"}, ensure_ascii=False))
        return
    for name, value in sorted(result["AP"].items(), key=lambda item: -item[1]):
        typer.echo(f"{100 * value:6.2f}  {name}")
    compared = "" if result["true"] else " (against observed positives: nobody knows the true labels)"
    typer.echo(f"{result['mAP']:6.2f}  mAP of {result['rows']:,} rows{compared}")
