"""`onelabel report`: one page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import JsonFlag, emit

app = typer.Typer()


@app.command()
def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN…|BENCH", help="Run folders on the same classes, or a folder of benchmark results."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    bench: Annotated[Path | None, typer.Option(help="A folder of benchmark results, beside runs.")] = None,
    recovered: Annotated[Path | None, typer.Option(help="The Parquet file of onelabel recover.")] = None,
    leaderboard: Annotated[Path | None, typer.Option(help="The CSV of onelabel compare.")] = None,
    title: Annotated[str | None, typer.Option(help="The page's title.")] = None,
    note: Annotated[str | None, typer.Option(help="A sentence about what was run, at the top.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write one self-contained HTML page: numbers with intervals, curves, every class, examples, missing labels.

    Examples: onelabel report runs/digits-an runs/digits-gr; onelabel report runs/mine --recovered recovered.parquet;
    onelabel report results/
    """
    from onelabel.report import write_report

    target = write_report(
        [*(runs or [])], out, recovered=recovered, leaderboard=leaderboard, bench=bench, title=title, note=note
    )
    if as_json:
        emit({"file": target})
    else:
        typer.echo(f"report: {target}")
