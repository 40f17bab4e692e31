"""The manner of the command line: quick help, one-line errors, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from onelabel import __version__
from onelabel.cli import COMMANDS, main


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
