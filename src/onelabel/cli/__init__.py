"""The command line: one thin file per command, no logic here but the mounting and the manner of failing."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from onelabel import __version__

#: Command → what the overview says of it. The module ``onelabel.cli.<command>`` is imported only when it is asked for.
COMMANDS = {
    "data": "Download, check and describe datasets.",
    "train": "Train a classifier on a dataset.",
    "eval": "Score a run on a dataset.",
    "compare": "Try every method at once as probes.",
    "recover": "Give the missing labels back, with probabilities.",
    "audit": "Plan a small check by people, and estimate from it.",
    "review": "Open the page where people confirm or reject labels.",
    "figure": "Draw a figure of the papers from runs, methods or results.",
    "predict": "Label new pictures with a run.",
    "export": "Write a run's model for other tools.",
    "methods": "List the methods.",
}


class LazyGroup(TyperGroup):
    """Imports a command's module on first use, so that ``--help`` and completion answer at once.

    Untyped where newer versions of Typer bring a click of their own.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"onelabel.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(cls=LazyGroup, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_version
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """One label per image in, every label out."""
    if debug:
        os.environ["ONELABEL_DEBUG"] = "1"


def main(argv: list[str] | None = None) -> None:
    """Run a command; errors are one line on stderr with exit code 2, an interruption is 130."""
    try:
        app(args=argv, prog_name="onelabel")
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError) as error:
        if os.environ.get("ONELABEL_DEBUG"):
            raise
        first = str(error).strip().splitlines()
        typer.echo(f"error: {first[0] if first else type(error).__name__}", err=True)
        sys.exit(2)
