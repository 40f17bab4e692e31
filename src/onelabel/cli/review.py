"""`onelabel review`: confirm or reject suggested labels in the browser."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def review(
    recovered: Annotated[
        Path, typer.Argument(metavar="RECOVERED", help="A recovered.parquet, or a run that holds one.")
    ],
    db: Annotated[
        str | None, typer.Option(help="SQLite file or postgresql:// URL. [default: beside the input]")
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="Pictures of which every class is asked (audit plan).")] = None,
    root: Annotated[list[Path] | None, typer.Option(help="Folder of the pictures; may be repeated.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any.", min=0, max=65535)] = 8765,
    token_file: Annotated[Path | None, typer.Option(help="File with the secret people sign in with.")] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Further host name the page is reached by.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="The page is reached over TLS.")] = False,
    name: Annotated[str | None, typer.Option(help="Your name, where nobody signs in.")] = None,
    double_share: Annotated[float, typer.Option(help="Share of items that two people answer.")] = 0.0,
    lease: Annotated[float, typer.Option(help="Seconds an item stays with whom it was handed to.")] = 600.0,
    min_probability: Annotated[float, typer.Option(help="Leave out less likely suggestions.")] = 0.05,
    retrain: Annotated[
        str | None, typer.Option(help="Command of 'retrain now'; {labels} and {run} are filled.")
    ] = None,
    import_from: Annotated[str | None, typer.Option("--import", help="Earlier decisions: Parquet or database.")] = None,
    export_to: Annotated[Path | None, typer.Option("--export", help="Write the answers there and stop.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
) -> None:
    """Go through suggested labels in the browser; answers become observed labels.

    Examples: onelabel review runs/voc; onelabel review recovered.parquet --export reviewed.parquet
    """
    from onelabel.review import serve as server
    from onelabel.review.settings import Settings, default_reviewer

    run = recovered if recovered.is_dir() else None
    file = recovered / "recovered.parquet" if run else recovered
    command = shlex.split(retrain) if retrain else server.default_retrain(run)
    where = db or str(server.default_database(file))
    settings = Settings(
        db=where,
        folder=server.default_folder(file),
        roots=tuple(root or ()),
        host=host,
        port=port,
        token=server.read_token(token_file),
        allow_hosts=tuple(allow_host or ()),
        double_share=double_share,
        lease_seconds=lease,
        min_probability=min_probability,
        retrain=tuple(command),
        run=run,
        secure=secure,
        reviewer=name or default_reviewer(),
    )
    database = server.prepare(settings, file, audit=audit, earlier=import_from, say=typer.echo)
    if export_to is not None:
        server.export(database, export_to, say=typer.echo)
        return
    server.serve(settings, database, browser=browser, say=typer.echo)
