"""`onelabel bench`: the papers' tables, made comparable."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onelabel.cli.options import (
    BackboneOption,
    DeviceOption,
    JsonFlag,
    LoaderOptions,
    RootOption,
    WeightsOption,
    emit,
    names,
    offer,
    offer_data,
    offer_methods,
    pairs,
)
from onelabel.system import say


class RunByDefault(TyperGroup):
    """`bench DATASET …` is `bench run DATASET …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=RunByDefault, no_args_is_help=True, help="Plan and make benchmark runs, and print the papers' tables."
)
OutOption = Annotated[str, typer.Option("--out", help="The results folder, shared by workers, or a database's URL.")]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format", help="text, markdown, latex or csv.", autocompletion=offer("text", "markdown", "latex", "csv")
    ),
]


def numbers(given: str) -> list[int]:
    """Seeds: numbers, or how many."""
    words = names(given)
    if not words or not all(word.isdecimal() for word in words):
        raise ValueError(f"--seeds: {given!r}, expected how many (3 is 0,1,2) or numbers such as 0,1,5")
    return list(range(int(given))) if "," not in given else [int(word) for word in words]


def searches(given: str) -> set[str]:
    """What to search; nothing said is nothing here."""
    words = set(names(given))
    if not words <= {"rates", "hyper", "none"} or ("none" in words and len(words) > 1):
        raise ValueError(f"--search: {given!r}, expected rates, hyper, rates,hyper or none")
    return words


@app.command()
def run(
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A dataset, or a file or folder of your own.", autocompletion=offer_data),
    ],
    methods: Annotated[
        str,
        typer.Option(help="Names, or METHOD:VARIANT, comma-separated. [default: all]", autocompletion=offer_methods),
    ] = "",
    modes: Annotated[str, typer.Option(help="linear, finetune, linearinit, comma-separated.")] = "linear",
    seeds: Annotated[str, typer.Option(help="Numbers, comma-separated, or how many: 3 is 0,1,2.")] = "3",
    draws: Annotated[
        str, typer.Option(help="uniform1200, uniform:SEED, biased:BIAS[:SEED], missing:SHARE[:SEED].")
    ] = "uniform1200",
    sweep: Annotated[str, typer.Option(help="Sweeps instead of methods, comma-separated; see `bench sweeps`.")] = "",
    protocol: Annotated[str, typer.Option(help="role, em, gr, lasd or onelabel.")] = "onelabel",
    out: OutOption = "runs/bench",
    name: Annotated[
        str, typer.Option(help="What to call the data, and whose recipes to take. [default: the dataset's or file's]")
    ] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A setting of training as NAME=VALUE, for all runs.")
    ] = None,
    hyper: Annotated[
        list[str] | None,
        typer.Option("--hyper", "-y", help="A method's setting as NAME=VALUE, for the methods that take it."),
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            help="rates (learning rate × batch), hyper (the grid of the method's settings, of its recipe or its "
            "own where it has none), rates,hyper or none. [default: rates where the protocol searches them]"
        ),
    ] = "",
    near: Annotated[
        str, typer.Option(help="Results: make only what is within 1 mAP of validation of its method's best there.")
    ] = "",
    dry: Annotated[bool, typer.Option("--dry", help="Show the plan and its cost, make nothing.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Make failed runs again.")] = False,
    seconds: Annotated[float | None, typer.Option(help="Begin nothing that would end after so long.")] = None,
    root: RootOption = None,
    backbone: BackboneOption = None,
    weights: WeightsOption = None,
    size: Annotated[int, typer.Option(help="Pixels of a side.")] = 448,
    device: DeviceOption = None,
    option: LoaderOptions = None,
) -> None:
    """Plan runs, say what they cost, and make those that nobody has made. Start it as often, and on as many machines
    that see the results folder, as you like: each run is made once. Exit code 1 where some of them failed.

    Examples: onelabel bench voc2012-features/ --seeds 3; onelabel bench voc2012 --methods an,em,gr --modes finetune;
    onelabel bench digits-scenes --sweep em.alpha --backbone small-cnn --weights random --size 48
    """
    from onelabel.bench import command, datasets, picking, store
    from onelabel.training.config import TrainConfig

    wanted, loader, own = searches(search), pairs(option, "--option"), pairs(setting, "--set")
    known, splits = command.open_data(dataset, name=name, root=root, loader=loader, size=size)
    backbone = backbone or TrainConfig.backbone
    if datasets.holds_pictures(dataset, splits):
        own = {"backbone": backbone, "size": size, **own}
    plan = command.plan_for(
        known, methods=names(methods), modes=names(modes), seeds=numbers(seeds), draws=names(draws),
        sweeps=names(sweep), protocol_name=protocol, settings=own, hyper=pairs(hyper, "--hyper"),
        k=command.mean_positives(splits), search="rates" in wanted if wanted else None, search_hyper="hyper" in wanted,
    )  # fmt: skip
    plan = picking.still_open(plan, store.look(near).rows) if near else plan
    if dry:
        typer.echo(command.summary(plan, out, device))
        return
    splits = splits or command.load(dataset, root=root)  # data that cannot be used are answered before the plan
    typer.echo(command.summary(plan, out, device))
    done = command.work(
        splits, plan, out=out, backbone=backbone, weights=weights, size=size, device=device,
        seconds=seconds, retry=retry, told=lambda row: typer.echo(command.line(row)),
    )  # fmt: skip
    typer.echo(str(done))
    if failed := command.failed(plan, out):
        say(f"{failed} of these runs failed, now or before: --retry makes them again")
        raise typer.Exit(1)


@app.command()
def table(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Such as role.1, gr.3 or all; `list` lists them.")
    ] = "list",
    results: Annotated[str, typer.Option(help="A results folder, or a database's URL.")] = "runs/bench",
    dataset: Annotated[str, typer.Option(help="Whose results. [default: the only ones there are, or voc2012]")] = "",
    baseline: Annotated[str, typer.Option(help="all: the method to test against. [default: an where it was run]")] = "",
    protocol: Annotated[
        str,
        typer.Option(
            help="Whose runs: role, em, gr, lasd or onelabel. [default: onelabel, or what most were made under]"
        ),
    ] = "",
    search: Annotated[
        str, typer.Option(help="hyper: of every setting the recipes search, the best, and of how many.")
    ] = "",
    format: FormatOption = "text",
    out: Annotated[Path | None, typer.Option(help="Write it here instead of printing it.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """A table of the papers from results, the published values beside, what was not run said; or of all that was run.

    Examples: onelabel bench table role.1 --results docs/results/bench; onelabel bench table gr.2 --format latex;
    onelabel bench table all --dataset features --baseline em
    """
    from onelabel.bench import render, store, tables
    from onelabel.system import atomic_write

    if name == "list" and as_json:
        emit([{"name": each, "title": title} for each, title in tables.titles().items()])
        return
    if name == "list":
        typer.echo("\n".join(f"{each:12s} {title}" for each, title in tables.titles().items()))
        return
    tables.check_name(name)
    found = store.look(results) if "://" in results else tables.find(results)
    searched = "hyper" in searches(search)
    if tables.of_runs(name):
        dataset = tables.whose(found, dataset)
    sheet = tables.build(name, found, dataset=dataset, rules=protocol or None, searched=searched, baseline=baseline)
    text = render.as_text(sheet, format)
    if out is not None:
        atomic_write(out, text + "\n")
    if as_json:
        rows = [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]
        emit({"name": name, "title": sheet.title, "rows": rows, "notes": sheet.notes})
    else:
        typer.echo(text if out is None else f"table: {out}")


@app.command()
def docs(
    results: Annotated[Path, typer.Option(help="The committed results.")] = Path("docs/results/bench"),
    out: Annotated[Path, typer.Option(help="The page.")] = Path("docs/benchmarks.md"),
) -> None:
    """Write docs/benchmarks.md from committed results.

    Examples: onelabel bench docs
    """
    from onelabel.bench.page import write_page

    typer.echo(f"page: {write_page(results, out)}")


@app.command()
def pack(
    folder: Annotated[Path, typer.Argument(help="A results folder.")],
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="The one file, such as docs/results/bench/linear.parquet.")
    ],
) -> None:
    """Gather a folder's rows into one Parquet file, beside what it already holds. In the folder itself it takes the
    place of the rows' own files; elsewhere it is a copy of them.

    Examples: onelabel bench pack runs/bench docs/results/bench/linear.parquet
    """
    from onelabel.bench import results

    typer.echo(f"{results.pack(folder, path)} rows: {path}")


@app.command()
def labels(
    dataset: Annotated[str, typer.Argument(metavar="DATA", help="A dataset, or a folder of VOC features.")],
    out: Annotated[Path, typer.Option(help="The results folder.")] = Path("runs/bench"),
    root: RootOption = None,
) -> None:
    """Measure what ROLE's Tables A2 and A3 say of a dataset's labels.

    Examples: onelabel bench labels voc2012 --out docs/results/bench
    """
    from onelabel.bench import datasets
    from onelabel.bench.other_tables import write_label_facts

    splits = datasets.load(dataset, root=root)
    if splits.train.true is None:
        raise ValueError(f"{dataset}: nobody knows the true labels of its training rows")
    typer.echo(f"labels: {write_label_facts(splits.train.true, splits.name, out)}")


@app.command()
def sweeps(as_json: JsonFlag = False) -> None:
    """List the sweeps that the papers plot.

    Examples: onelabel bench sweeps
    """
    from onelabel.bench.sweeps import SWEEPS

    if as_json:
        emit([{"name": each.name, "figure": each.figure, "what": each.doc} for each in SWEEPS.values()])
        return
    for each in SWEEPS.values():
        typer.echo(f"{each.name:12s} {each.figure:14s} {each.doc}")


@app.command()
def protocols(as_json: JsonFlag = False) -> None:
    """Print the protocols.

    Examples: onelabel bench protocols
    """
    from onelabel.bench.protocols import PROTOCOLS

    if as_json:
        emit([asdict(each) for each in PROTOCOLS.values()])
    else:
        typer.echo("\n".join(str(each) for each in PROTOCOLS.values()))
