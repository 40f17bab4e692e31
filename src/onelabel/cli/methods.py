"""`onelabel methods`: the catalogue."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from onelabel.cli.options import JsonFlag, emit, offer_methods

app = typer.Typer()


@app.command()
def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Show one method whole: formula, settings, what to search.", autocompletion=offer_methods),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the methods, or show one.

    Examples: onelabel methods; onelabel methods gr; onelabel methods --json
    """
    from onelabel.methods import list_methods, method_info

    infos = [method_info(n) for n in ([name] if name else list_methods())]
    if as_json:
        rows = [
            {
                "name": i.name,
                "title": i.title,
                "paper": i.paper,
                "year": i.year,
                "formula": i.formula,
                "needs": str(i.needs),
                "settings": {
                    key: {
                        "default": i.defaults.get(key),
                        "meaning": h.doc,
                        "range": [v if math.isfinite(v) else None for v in (h.low, h.high)],
                        "search": h.search,
                    }
                    for key, h in i.hyper.items()
                },
            }
            for i in infos
        ]
        emit(rows)
        return
    if name:
        info = infos[0]
        typer.echo(f"{info.name}: {info.title}\n{info.paper} ({info.year})\n\n  {info.formula}\n\nneeds: {info.needs}")
        for key, h in info.hyper.items():
            search = f"; search {', '.join(f'{v:g}' for v in h.search)}" if h.search else ""
            typer.echo(f"  {key} = {info.defaults.get(key)}: {h.doc}{search}")
        return
    width = max(len(i.name) for i in infos)
    for info in infos:
        typer.echo(f"{info.name:<{width}}  {info.year}  {info.title} (needs: {info.needs})")
