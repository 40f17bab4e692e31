"""`onelabel compare`: every method at once, as probes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def compare(
    source: Annotated[str, typer.Argument(metavar="FEATURES|DATA", help="A features file or folder, or a dataset.")],
    methods: Annotated[str, typer.Option(help="Names, comma-separated; else one of each family.")] = "",
    lr: Annotated[str, typer.Option(help="Learning rates, comma-separated.")] = "1e-2,1e-3,1e-4",
    batch_size: Annotated[int | None, typer.Option(help="Rows a step.")] = None,
    seeds: Annotated[int, typer.Option(help="Repetitions of every setting.")] = 2,
    epochs: Annotated[int, typer.Option(help="Passes over the training rows.")] = 25,
    criterion: Annotated[str, typer.Option(help="What to rank by: auto, clean, observed-map, …")] = "auto",
    blind: Annotated[bool, typer.Option("--blind", help="Hide clean validation labels.")] = False,
    k: Annotated[float | None, typer.Option(help="Mean positives a row; else estimated.")] = None,
    top: Annotated[int, typer.Option(help="Lines of the table shown.")] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write the whole leaderboard here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a figure here (.png, .svg, .pdf).")] = None,
    root: Annotated[str | None, typer.Option(help="Where a dataset's archives lie.")] = None,
    backbone: Annotated[str | None, typer.Option(help="For pictures: a timm model.")] = None,
    weights: Annotated[str | None, typer.Option(help="Its weights: a file, or random. [default: pretrained]")] = None,
    size: Annotated[int, typer.Option(help="Pixels of a side.")] = 448,
    device: Annotated[str | None, typer.Option(help="cpu, cuda; a GPU where there is one.")] = None,
    role_table: Annotated[bool, typer.Option("--role-table", help="The linear half of ROLE's Table 1.")] = False,
) -> None:
    """Train every method as a linear classifier on frozen features and rank them.

    Examples: onelabel compare features.npz --csv board.csv; onelabel compare voc2012/ --role-table
    """
    from onelabel.probes import compare as work
    from onelabel.probes import role_table as table

    if role_table:
        data = table.load_voc_features(source)
        results, test = table.run_role_table(data, table.role_specs(seeds=range(seeds), epochs=epochs), device=device)
        rows = table.role_rows(results, test)
        typer.echo(table.format_rows(rows))
        typer.echo(f"{len(results)} probes in {results.seconds:.0f} s")
    else:
        parts = work.read_parts(
            source, root=root, backbone=backbone, weights=weights, size=size, device=device, blind=blind
        )
        choice, rows = work.compare(
            parts,
            methods=[name.strip() for name in methods.split(",") if name.strip()] or None,
            lr=[float(rate) for rate in lr.split(",")],
            batch_size=batch_size,
            seeds=seeds,
            epochs=epochs,
            criterion=criterion,
            k=k,
            device=device,
        )
        typer.echo(table.format_rows(rows[:top]))
        typer.echo(choice.reason)
        if plot is not None:
            work.plot(choice, plot)
            typer.echo(f"figure: {plot}")
    if csv is not None:
        table.write_rows(rows, csv)
        typer.echo(f"leaderboard: {csv}")
