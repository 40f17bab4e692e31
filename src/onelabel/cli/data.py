"""`onelabel data`: download, check, stats, manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import pairs

app = typer.Typer(no_args_is_help=True, help="Download, check and describe datasets.")

Root = Annotated[
    Path | None,
    typer.Option(
        help="Where benchmarks lie; $ONELABEL_DATA or ./data unless given. For a table, where its paths start."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first problem.")]
Names = Annotated[int, typer.Option(help="How many file names to show of each kind of problem.")]
SaveReport = Annotated[Path | None, typer.Option("--report", help="Write every problem to this JSON file.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="An option of the loader as NAME=VALUE, such as split=official."),
]


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="voc2012, coco2014, nuswide or cub.")],
    root: Root = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the archives.")] = False,
) -> None:
    """Fetch and extract a benchmark; where that is not possible, say what to put where."""
    from onelabel.data import default_root
    from onelabel.data.catalogue import benchmark, download_benchmark, instructions

    where = root if root is not None else default_root()
    if not benchmark(name).archives:
        typer.echo(instructions(name, where))
        raise typer.Exit(1)
    typer.echo(download_benchmark(name, where, keep=keep))


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="A benchmark, or own data: every picture is then decoded.")],
    root: Root = None,
    strict: Strict = False,
    names: Names = 5,
    report: SaveReport = None,
    option: Options = None,
) -> None:
    """Compare a benchmark with the published statistics, or look at every picture of own data."""
    from onelabel.data import default_root, load_dataset
    from onelabel.data.catalogue import BENCHMARKS
    from onelabel.data.check import check as compare
    from onelabel.data.verify import verify_splits

    options = {**pairs(option, "--option"), "strict": strict}
    if name in BENCHMARKS:
        outcome = compare(name, root if root is not None else default_root(), **options)
        typer.echo(outcome.text())
        problems, ok = outcome.report, outcome.ok
    else:
        splits = verify_splits(load_dataset(name, root=root, verify="none", **options), verify="decode")
        problems, ok = splits.report, not splits.report.lost
        typer.echo(", ".join(f"{part} {len(rows):,}" for part, rows in splits.parts.items()) + " pictures can be used")
        typer.echo(problems.text(names))
    if report is not None:
        problems.save(report)
    if not ok:
        raise typer.Exit(1)


@app.command()
def stats(
    name: Annotated[str, typer.Argument(help="A dataset's name, or a folder, table, shards or features file.")],
    root: Root = None,
    save: Annotated[list[Path] | None, typer.Option(help="Write to this .json or .csv; may be given twice.")] = None,
    seed: Annotated[int, typer.Option(help="Of the label draw and the split.")] = 1200,
    validation: Annotated[float, typer.Option(help="Share held out.")] = 0.2,
    drop: Annotated[str, typer.Option(help="How labels are dropped: uniform, frequency, size, none, …")] = "uniform",
    classes: Annotated[bool, typer.Option(help="Show the table of classes.")] = True,
    strict: Strict = False,
    names: Names = 5,
    option: Options = None,
) -> None:
    """Print and save the papers' statistics of any dataset."""
    from onelabel.data import load_dataset
    from onelabel.data.stats import statistics

    splits = load_dataset(
        name, root=root, seed=seed, validation=validation, drop=drop, strict=strict, **pairs(option, "--option")
    )
    numbers = statistics(splits)
    typer.echo(numbers.text(classes))
    if len(splits.report):
        typer.echo(splits.report.text(names), err=True)
    for file in save or []:
        numbers.save(file)


@app.command()
def manifest(
    source: Annotated[Path, typer.Argument(help="A folder per class, or a table of paths and labels.")],
    out: Annotated[Path, typer.Argument(help="The Parquet file; brought up to date where it exists.")],
    root: Root = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every picture, to find truncated ones.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes; as many as CPUs unless given.")] = None,
    strict: Strict = False,
    names: Names = 5,
    report: SaveReport = None,
) -> None:
    """Write a manifest: path, size, hash and labels of every picture."""
    from onelabel.data.manifest import build_manifest

    made = build_manifest(source, out, root=root, decode=decode, workers=workers, strict=strict)
    typer.echo(f"{made.rows:,} pictures in {made.path}, {made.reused:,} unchanged since the last manifest")
    if len(made.report):
        typer.echo(made.report.text(names))
    if report is not None:
        made.report.save(report)
