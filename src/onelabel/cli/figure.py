"""`onelabel figure`: one figure of the papers, from methods, runs or results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import JsonFlag, emit, pairs

app = typer.Typer()


@app.command()
def figure(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A figure of --list.")] = None,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="RUN…|RESULTS|METHOD…", help="What it is drawn from.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file: .svg, .pdf or .png. [default: NAME.svg]")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="The figure's own settings as NAME=VALUE, such as over=p.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Every figure, what it is drawn from, and stop.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Draw a figure of the papers from methods, runs or benchmark results.

    Examples: onelabel figure curves an em gr --set over=p --out curves.svg; onelabel figure heatmap runs/an runs/role;
    onelabel figure sweep results/ --set hyper=alpha
    """
    from onelabel.report.draw import draw, listed

    if listing or name is None:
        typer.echo(listed(as_json=as_json))
        return
    target = draw(name, given or [], out or Path(f"{name}.svg"), **pairs(setting, "--set"))
    if as_json:
        emit({"file": target})
    else:
        typer.echo(f"figure: {target}")
