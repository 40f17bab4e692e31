"""`onelabel data`: download, check, stats, manifest, brighten, cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from onelabel.cli.options import DataArgument, JsonFlag, LoaderOptions, emit, offer, offer_data, pairs

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


@app.command()
def download(
    name: Annotated[
        str,
        typer.Argument(
            help="voc2012, coco2014, nuswide or cub.", autocompletion=offer("voc2012", "coco2014", "nuswide", "cub")
        ),
    ],
    root: Root = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the archives.")] = False,
) -> None:
    """Fetch and extract a benchmark; where that is not possible, say what to put where.

    Example: onelabel data download voc2012 --root data
    """
    from onelabel.data import default_root
    from onelabel.data.catalogue import benchmark, download_benchmark, instructions

    where = root if root is not None else default_root()
    if not benchmark(name).archives:
        typer.echo(instructions(name, where))
        raise typer.Exit(1)
    typer.echo(download_benchmark(name, where, keep=keep))


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A benchmark, or own data: every picture is then decoded.",
            autocompletion=offer_data,
        ),
    ],
    root: Root = None,
    strict: Strict = False,
    names: Names = 5,
    report: SaveReport = None,
    option: LoaderOptions = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare a benchmark with the published statistics, or look at every picture of own data.

    Examples: onelabel data check voc2012 --root data; onelabel data check photos/ --report problems.json
    """
    from onelabel.data import default_root, load_dataset
    from onelabel.data.catalogue import BENCHMARKS
    from onelabel.data.check import check as compare
    from onelabel.data.own import class_counts, class_line, only_class
    from onelabel.data.verify import mention_repeats, verify_splits

    options = {**pairs(option, "--option"), "strict": strict}
    if name in BENCHMARKS:
        outcome = compare(name, root if root is not None else default_root(), **options)
        problems, ok = outcome.report, outcome.ok
        found: dict[str, Any] = {
            "compared": [dict(zip(("what", "expected", "found", "equal"), row, strict=True)) for row in outcome.lines]
        }
        text = outcome.text()
    else:
        splits = verify_splits(load_dataset(name, root=root, verify="none", **options), verify="decode")
        mention_repeats(splits)
        problems, ok = splits.report, not splits.report.lost
        classes = class_counts(splits)
        found = {"usable": {part: len(rows) for part, rows in splits.parts.items()}, "classes": classes}
        found["notes"] = list(splits.notes)
        counts = ", ".join(f"{part} {len(rows):,}" for part, rows in splits.parts.items())
        what = "rows" if hasattr(splits.train, "X") else "pictures"
        lines = [*splits.notes, class_line(classes), f"{counts} {what} can be used", problems.text(names)]
        text = "\n".join(lines)
        if warning := only_class(splits):
            found["warning"] = warning
            text += f"\nwarning: {warning}"
    if as_json:
        emit({"data": name, "ok": ok, **found, **problems.to_dict()})
    else:
        typer.echo(text)
    if report is not None:
        problems.save(report)
    if not ok:
        raise typer.Exit(1)


@app.command()
def stats(
    name: DataArgument,
    root: Root = None,
    out: Annotated[list[Path] | None, typer.Option(help="Write to this .json or .csv; may be given twice.")] = None,
    seed: Annotated[int, typer.Option(help="Of the label draw and the split.")] = 1200,
    validation: Annotated[float, typer.Option(help="Share held out.")] = 0.2,
    drop: Annotated[str, typer.Option(help="How labels are dropped: uniform, frequency, size, none, …")] = "uniform",
    classes: Annotated[bool, typer.Option(help="Show the table of classes.")] = True,
    strict: Strict = False,
    names: Names = 5,
    option: LoaderOptions = None,
    as_json: JsonFlag = False,
) -> None:
    """Print and save the papers' statistics of any dataset.

    Examples: onelabel data stats digits-scenes; onelabel data stats photos/ --out stats.json --out classes.csv
    """
    from onelabel.data import load_dataset
    from onelabel.data.stats import statistics

    splits = load_dataset(
        name, root=root, seed=seed, validation=validation, drop=drop, strict=strict, **pairs(option, "--option")
    )
    numbers = statistics(splits)
    if as_json:
        emit(numbers.to_dict())
    else:
        typer.echo(numbers.text(classes))
    if len(splits.report):
        typer.echo(splits.report.text(names), err=True)
    for file in out or []:
        numbers.save(file)


@app.command()
def manifest(
    source: Annotated[Path, typer.Argument(help="A folder per class, or a table of paths and labels.")],
    out: Annotated[Path, typer.Option(help="The Parquet file; brought up to date where it exists.")] = Path(
        "manifest.parquet"
    ),
    root: Root = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every picture, to find truncated ones.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes; as many as CPUs unless given.")] = None,
    strict: Strict = False,
    names: Names = 5,
    report: SaveReport = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a manifest: path, size, hash and labels of every picture.

    Example: onelabel data manifest photos/ --out manifest.parquet --decode
    """
    from onelabel.data.manifest import build_manifest

    made = build_manifest(source, out, root=root, decode=decode, workers=workers, strict=strict)
    if as_json:
        emit({"file": made.path, "rows": made.rows, "unchanged": made.reused, **made.report.to_dict()})
    else:
        typer.echo(f"{made.rows:,} pictures in {made.path}, {made.reused:,} unchanged since the last manifest")
    if len(made.report) and not as_json:
        typer.echo(made.report.text(names))
    if report is not None:
        made.report.save(report)


@app.command()
def brighten(
    source: Annotated[Path, typer.Argument(help="A folder of pictures, such as a folder per class.")],
    out: Annotated[Path, typer.Argument(help="The folder to write; the same names below it.")],
    as_json: JsonFlag = False,
) -> None:
    """Copy pictures, the values of 16-bit greys that hold only 12 bits multiplied by 16; others as they are.

    Example: onelabel data brighten scans/ bright/
    """
    from onelabel.data.brighten import brighten as copy
    from onelabel.data.report import Report

    problems = Report()
    done, copied = copy(source, out, problems)
    if as_json:
        emit({"folder": str(out), "brightened": done, "pictures": copied, **problems.to_dict()})
        return
    typer.echo(f"{out}: {copied:,} pictures, {done:,} of them brightened; do the same with what predict is given")
    if problems.lost:
        typer.echo(problems.text())


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove what it holds; it is made again when needed.")] = False,
    days: Annotated[float, typer.Option(min=0, help="With --clear: only what was not used for so many days.")] = 0.0,
    folder: Annotated[
        Path | None, typer.Option(help="$ONELABEL_CACHE, else onelabel in the user's cache, unless given.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the features and decoded pictures that are kept between commands, or make room.

    Examples: onelabel data cache; onelabel data cache --clear --days 30
    """
    from onelabel.data.cache import default_cache
    from onelabel.data.kept import clear as remove
    from onelabel.data.kept import kept, told

    where = default_cache() if folder is None else folder
    found = kept(where)
    gone, busy = remove(found, days=days) if clear else ([], [])
    if as_json:
        rows = [{"name": k.name, "what": k.what, "rows": k.rows, "state": k.state, "bytes": k.size} for k in found]
        emit({"folder": str(where), "arrays": rows, "removed": [k.name for k in gone], "busy": [k.name for k in busy]})
        return
    typer.echo(told(where, found, gone, busy) if clear else told(where, found))
