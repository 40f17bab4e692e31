"""`onelabel demo`: the whole way on embedded pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import DeviceOption, JsonFlag, emit

app = typer.Typer()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="A new folder, or one in which a demo was stopped.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Of the scenes, the known labels and the training.")] = 0,
    tiny: Annotated[bool, typer.Option("--tiny", help="Seconds instead of minutes; the numbers mean nothing.")] = False,
    device: DeviceOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare methods, train the best, recover missing labels and write a report, on scenes of handwritten digits.

    An interrupted demo goes on when the same command is given again.

    Examples: onelabel demo; onelabel demo --seed 1 --out runs/demo-1
    """
    from onelabel.demo import FULL, TINY, run_demo

    found = run_demo(
        out,
        seed=seed,
        settings=TINY if tiny else FULL,
        device=device,
        echo=(lambda line: typer.echo(line, err=True)) if as_json else typer.echo,
    )
    if as_json:
        emit(found)
