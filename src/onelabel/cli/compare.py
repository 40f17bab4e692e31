"""`onelabel compare`: every method at once, as probes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from onelabel.cli.options import (
    BackboneOption,
    DeviceOption,
    JsonFlag,
    LoaderOptions,
    RootOption,
    WeightsOption,
    emit,
    names,
    offer_data,
    offer_methods,
    pairs,
)

app = typer.Typer()


@app.command()
def compare(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA|FEATURES", help="A dataset, or a features file or folder.", autocompletion=offer_data
        ),
    ],
    methods: Annotated[
        str,
        typer.Option(help="Names, comma-separated; else one of each family.", autocompletion=offer_methods),
    ] = "",
    lr: Annotated[str, typer.Option(help="Learning rates, comma-separated.")] = "1e-2,1e-3,1e-4",
    batch_size: Annotated[int | None, typer.Option(help="Rows a step.")] = None,
    seeds: Annotated[int, typer.Option(help="Repetitions of every setting.")] = 2,
    epochs: Annotated[int, typer.Option(help="Passes over the training rows.")] = 25,
    criterion: Annotated[str, typer.Option(help="What to rank by: auto, clean, likelihood, …")] = "auto",
    blind: Annotated[bool, typer.Option("--blind", help="Hide clean validation labels.")] = False,
    k: Annotated[float | None, typer.Option(help="Mean positives a row; else estimated.")] = None,
    top: Annotated[int, typer.Option(help="Lines of the table shown.")] = 20,
    out: Annotated[Path | None, typer.Option(help="Write the whole leaderboard here (.csv).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a figure here (.png, .svg, .pdf).")] = None,
    root: RootOption = None,
    option: LoaderOptions = None,
    backbone: BackboneOption = None,
    weights: WeightsOption = None,
    size: Annotated[int, typer.Option(help="Pixels of a side.")] = 448,
    device: DeviceOption = None,
    role_table: Annotated[bool, typer.Option("--role-table", help="The linear half of ROLE's Table 1.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train every method as a linear classifier on frozen features and rank them.

    Examples: onelabel compare photos/; onelabel compare features.npz --out leaderboard.csv;
    onelabel compare voc2012/ --role-table
    """
    from onelabel.contract import method_info
    from onelabel.probes import compare as work
    from onelabel.probes import role_table as table

    if role_table:
        data = table.load_voc_features(source)
        results, test = table.run_role_table(data, table.role_specs(seeds=range(seeds), epochs=epochs), device=device)
        rows, shown = table.role_rows(results, test), None
        told = [f"{len(results)} probes in {results.seconds:.0f} s"]
        found: dict[str, Any] = {"probes": len(results), "seconds": results.seconds}
    else:
        for name in names(methods):  # before minutes go into features
            method_info(name)
        parts = work.read_parts(
            source,
            root=root,
            backbone=backbone,
            weights=weights,
            size=size,
            device=device,
            blind=blind,
            loader=pairs(option, "--option"),
        )
        choice, rows = work.compare(
            parts,
            methods=names(methods) or None,
            lr=[float(rate) for rate in names(lr)],
            batch_size=batch_size,
            seeds=seeds,
            epochs=epochs,
            criterion=criterion,
            k=k,
            device=device,
        )
        told, shown = [choice.reason], top
        found = {"criterion": choice.criterion, "chosen": rows[0], "reason": choice.reason, "k": choice.k}
        if plot is not None:
            work.plot(choice, plot)
            told.append(f"figure: {plot}")
    if out is not None:
        table.write_rows(rows, out)
        told.append(f"leaderboard: {out}")
    if as_json:
        emit({**found, "leaderboard": rows})
        return
    typer.echo(table.format_rows(rows[:shown]))
    for line in told:
        typer.echo(line)
