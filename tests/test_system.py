"""Files that are whole or absent, bars for who watches, words aloud."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest

from onelabel import system


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b.json"
    system.atomic_write(target, "old")
    with pytest.raises(RuntimeError), system.atomic_file(target) as file:  # noqa: PT012
        file.write(b"half of the n")
        raise RuntimeError
    assert target.read_text() == "old"
    assert os.listdir(target.parent) == ["b.json"]


def test_the_temporary_name_keeps_the_suffix_and_goes_away(tmp_path: Path) -> None:
    with system.atomic_path(tmp_path / "t.parquet") as temporary:
        assert temporary.suffix == ".parquet"  # writers go by it
        temporary.write_bytes(b"x")
        assert not (tmp_path / "t.parquet").exists()
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_an_output_has_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        system.atomic_write(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_only_where_somebody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.make_bar("bar") is None
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    assert system.make_bar("bar") is None
    monkeypatch.delenv("ONELABEL_QUIET")
    monkeypatch.setenv("TERM", "xterm")
    with system.progress("counting", 4) as advance:
        advance(3)
    assert "counting" in screen.getvalue()


def test_a_narrow_terminal_cuts_the_last_text_only(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    with system.make_bar("5 probes", "bar", "left", "{task.description}", transient=False) as bar:
        bar.update(bar.add_task("best likelihood −0.8866: " + "word " * 20, total=2), advance=1)
    last = next(line for line in reversed(screen.getvalue().splitlines()) if "probes" in line)
    assert "-:--:--" in last
    assert "best likelihood" in last
    assert "…" in last


def test_only_the_first_process_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    monkeypatch.setenv("RANK", "1")
    system.say("no")
    monkeypatch.setenv("RANK", "0")
    system.say("yes")
    assert capsys.readouterr().err == "onelabel: yes\n"


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(ImportError, match=r"pip install 'onelabel\[data\]'"):
        system.need("no_such_module", "data")
