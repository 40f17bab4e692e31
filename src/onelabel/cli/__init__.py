"""The command line: one thin file per command, no logic here but the mounting and the manner of failing.

Exit codes: 0 done; 1 done, and what was checked is not in order (`data check`, `doctor`); 2 wrong usage or an error,
told in one line on stderr; 3 a defect of onelabel itself; 130 interrupted.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from onelabel import __version__

#: Command → what the overview says of it. The module ``onelabel.cli.<command>`` is imported only when it is asked for.
COMMANDS = {
    "demo": "The whole way on embedded pictures, in a few minutes.",
    "data": "Download, check and describe datasets.",
    "train": "Train a classifier on a dataset.",
    "eval": "Score a run on a dataset.",
    "compare": "Try every method at once as probes.",
    "recover": "Give the missing labels back, with probabilities.",
    "audit": "Plan a small check by people, and estimate from it.",
    "review": "Open the page where people confirm or reject labels.",
    "report": "Write one page about runs: look rather than read.",
    "bench": "Plan and make benchmark runs, print the papers' tables.",
    "figure": "Draw a figure of the papers from runs, methods or results.",
    "predict": "Label new pictures with a run.",
    "export": "Write a run's model for other tools.",
    "methods": "List the methods.",
    "doctor": "Check the machine, the installation, weights and a dataset.",
}
EPILOG = """\b
Exit codes:
  0    done
  1    done, and what was checked is not in order (data check, doctor)
  2    wrong usage or an error: one line on stderr, the whole traceback with --debug
  3    a defect of onelabel itself
  130  interrupted; what can be resumed was written

\b
Start with: onelabel demo, or on your own pictures: onelabel train photos/ --method auto
"""
WIDTH = 110


class LazyGroup(TyperGroup):
    """Imports a command's module on first use, so that ``--help`` and completion answer at once.

    Untyped where newer versions of Typer bring a click of their own.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        made = importlib.import_module(f"onelabel.cli.{cmd_name}").app
        made._add_completion = False  # the root has it
        made.rich_markup_mode = None  # markup would swallow "[default: em]"
        command = typer.main.get_command(made)
        command.name = cmd_name
        _prepare(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        near = () if args[0] in COMMANDS else get_close_matches(args[0], COMMANDS)
        if near and not ctx.resilient_parsing:  # Typer looks only among commands that are imported
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _prepare(command: Any) -> None:
    """The same look for every command: examples on lines of their own, and lines that use the terminal."""
    command.context_settings = {**command.context_settings, "max_content_width": WIDTH}
    command.help = _examples(command.help or "")
    for each in getattr(command, "commands", {}).values():
        _prepare(each)


def _examples(text: str) -> str:
    """`Examples: one; two` of a docstring, an example a line."""
    before, found, after = re.sub(r"\n *", "\n", text).partition("\n\nExample")
    if not found:
        return text
    examples = [one.strip() for one in after.partition(":")[2].replace("\n", " ").split(";")]
    return f"{before}\n\n\b\nExamples:\n" + "\n".join(f"  {one}" for one in examples if one)


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    context_settings={"max_content_width": WIDTH},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_version
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error; anywhere on the line."),
) -> None:
    """One label per image in, every label out."""


def main(argv: list[str] | None = None) -> None:
    """Run a command; see the module's exit codes."""
    for stream in (sys.stdout, sys.stderr):  # a class name that the terminal cannot show must not cost the work
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if argv is None else argv)
    given = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in given or bool(os.environ.get("ONELABEL_DEBUG"))
    words = [word for word in given if word != "--debug"] + words[len(given) :]
    try:
        code = app(args=words, prog_name="onelabel", standalone_mode=False)
        if code == 130:  # newer versions of Typer catch the interruption
            raise KeyboardInterrupt
        sys.exit(code or 0)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BrokenPipeError:  # the reader has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        _fail(*_told(error))


def _told(error: Exception) -> tuple[str, int]:
    """One line about an error, and its exit code."""
    if hasattr(error, "format_message"):  # click's: wrong usage
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "onelabel"
        absent = getattr(error, "param", None) if type(error).__name__ == "MissingParameter" else None
        meaning = getattr(absent, "help", None)
        what = f" {_first(meaning)}" if meaning else ""
        return f"error: {_first(error.format_message())}{what} (see {where} --help)", 2
    if type(error).__name__ == "Abort":
        return "aborted", 130
    if isinstance(error, (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError)):
        told = _first(str(error)).replace("onelabel.list_methods() lists", "`onelabel methods` lists")
        return f"error: {told or type(error).__name__}", 2
    told = f"{type(error).__name__}: {_first(str(error))}"
    return f"error: {told} (a defect of onelabel: please report it with the traceback that --debug shows)", 3


def _first(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def _fail(message: str, code: int) -> None:
    typer.echo(message, err=True)
    sys.exit(code)
