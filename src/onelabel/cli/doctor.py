"""`onelabel doctor`: what works here, and what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import BackboneOption, JsonFlag, RootOption, WeightsOption, emit, offer_data

app = typer.Typer()


@app.command()
def doctor(
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="Also look at a dataset, folder or table.", autocompletion=offer_data),
    ] = None,
    weights: WeightsOption = None,
    backbone: BackboneOption = None,
    root: RootOption = None,
    out: Annotated[Path, typer.Option(help="Where runs would be written.")] = Path(),
    as_json: JsonFlag = False,
) -> None:
    """Check Python, torch, GPUs, versions, extras, memory, disk, cache and weights; exit code 1 if something is wrong.

    Examples: onelabel doctor; onelabel doctor photos/ --weights resnet50.safetensors
    """
    from onelabel import doctor as work

    found = work.examine(weights=weights, backbone=backbone, data=data, root=root, out=out)
    if as_json:
        emit(work.to_dict(found))
    else:
        typer.echo(work.text(found))
    if not work.healthy(found):
        raise typer.Exit(1)
