"""The manner of the command line: quick help, one-line errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onelabel
from onelabel import __version__
from onelabel.cli import COMMANDS, LazyGroup, main
from onelabel.cli.options import DATASETS, emit, method_names
from onelabel.data import list_datasets


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(argv))
    out = capsys.readouterr()
    return int(stop.value.code or 0), out.out, out.err


def test_help_lists_every_command_without_importing_torch() -> None:
    code = (
        "import sys; from onelabel.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, name, "--help")
    assert code == 0
    assert "Usage: onelabel" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version")[1].strip() == __version__


def test_errors_are_one_line_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "methods", "rolle")
    assert code == 2
    assert err.count("\n") == 1
    assert "did you mean 'role'?" in err


def test_methods_as_json_is_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "methods", "--json")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    rows = json.loads(out, parse_constant=refuse)
    em = next(row for row in rows if row["name"] == "em")
    assert em["settings"]["alpha"]["default"] == 0.2


def test_one_method_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "methods", "gr")
    assert "k̂" in out
    assert "sigma = 0.5" in out


@pytest.mark.parametrize("place", [["--debug", "methods", "rolle"], ["methods", "rolle", "--debug"]])
def test_debug_shows_the_error_itself_wherever_it_stands(place: list[str]) -> None:
    with pytest.raises(ValueError, match="rolle"):
        main(place)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tran"], "No such command 'tran'. Did you mean 'train'?"),
        (["trian"], "No such command 'trian'. Did you mean 'train'?"),
        (["zzz"], "No such command 'zzz'."),
        (["train"], "Missing argument"),
        (
            ["audit", "estimate", "a", "b"],
            "'ANSWERS'. Parquet from `onelabel review RECOVERED --export`, or",
        ),
        (["methods", "--jsno"], "No such option"),
        (["train", "nowhere/", "--epochs", "many"], "epochs"),
    ],
)
def test_wrong_usage_is_one_line_with_where_to_look(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert "--help" in err


def test_a_defect_is_told_from_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr("onelabel.methods.method_info", broken)
    code, _, err = call(capsys, "methods", "gr")
    assert code == 3
    assert "--debug" in err


def test_an_interruption_is_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onelabel.methods.method_info", stop)
    code, _, err = call(capsys, "methods", "gr")
    assert (code, err) == (130, "interrupted\n")


def walk() -> list[tuple[str, Any]]:
    """Every command and subcommand as (its words, click's object)."""
    group = LazyGroup(name="onelabel")
    found = []
    for name in COMMANDS:
        command = group.get_command(None, name)
        inner = getattr(command, "commands", None)
        found += [(f"{name} {sub}", each) for sub, each in inner.items()] if inner else [(name, command)]
    return found


def test_every_command_says_what_it_does_and_gives_an_example() -> None:
    for words, command in walk():
        assert f"onelabel {words.split()[0]}" in (command.help or ""), words
        for option in command.params:
            assert getattr(option, "help", None), f"{words} {option.name}"


def test_one_name_has_one_meaning() -> None:
    """The same option has the same words of help wherever it is shared, and results can be had as JSON."""
    shared = {"device", "root", "weights", "option", "as_json", "backbone"}
    told: dict[str, set[str]] = {}
    for words, command in walk():
        for option in command.params:
            if option.name in shared and not words.startswith(("data", "review")):
                told.setdefault(option.name, set()).add(str(option.help))
        makes = ("data download", "review", "bench run", "bench docs", "bench pack", "bench labels")  # print no results
        if words not in makes:
            assert "as_json" in {option.name for option in command.params}, words
    assert {name: len(texts) for name, texts in told.items()} == dict.fromkeys(told, 1)
    assert told.keys() == shared


def complete(words: str) -> list[str]:
    """What bash would be offered, from the installed program."""
    environment = {
        **os.environ,
        "_ONELABEL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    code = "from onelabel.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_completion_knows_commands_methods_and_datasets() -> None:
    assert complete("onelabel me") == ["methods"]
    assert complete("onelabel train --method au") == ["auto"]
    assert "an,role" in complete("onelabel compare --methods an,ro")
    assert "digits-scenes" in complete("onelabel train di")


def test_completion_has_every_method_and_dataset() -> None:
    assert method_names() == sorted(onelabel.list_methods())
    assert sorted(DATASETS) == sorted(list_datasets())


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": float("nan"), "b": [np.float32(1.5), float("inf")], "c": np.arange(2), "d": Path("x")})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, None], "c": [0, 1], "d": "x"}
