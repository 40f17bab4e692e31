"""Files that are whole or absent, bars for who watches, words aloud."""

from __future__ import annotations

import io
import os
import signal
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and locks")
def test_what_a_killed_process_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            with system.atomic_path(tmp_path / "scores.npy") as temporary:
                temporary.write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".scores.npy.")
    others = {".notes.tmp", ".mine.npy.tmp.npy", "a.12345678.tmp.npy", ".link.12345678.tmp"}
    for name in others - {".link.12345678.tmp"}:
        (tmp_path / name).write_text("somebody's")
    (tmp_path / ".link.12345678.tmp").symlink_to(tmp_path / ".notes.tmp")
    with system.atomic_path(tmp_path / "scores.npy") as live:
        live.write_bytes(b"whole")
        system.clear_stale(tmp_path, tmp_path / "no such folder")
        assert {path.name for path in tmp_path.iterdir()} == others | {live.name}
    assert (tmp_path / "scores.npy").read_bytes() == b"whole"
    assert {path.name for path in tmp_path.iterdir()} == others | {"scores.npy"}


def test_a_temporary_that_is_cleared_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = tempfile.mkstemp

    def cleared(**how: Any) -> tuple[int, str]:
        handle, name = real(**how)
        made.append(name)
        if len(made) == 1:
            os.unlink(name)
        return handle, name

    monkeypatch.setattr(system.tempfile, "mkstemp", cleared)
    system.atomic_write(tmp_path / "a.json", "whole")
    assert len(made) == 2
    assert os.listdir(tmp_path) == ["a.json"]


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


def test_who_listens_has_what_was_said_before_and_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with system.overheard(lambda when, message: None):
        pass  # what other tests said
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    heard: list[str] = []
    inner: list[str] = []
    system.say("before")
    with system.overheard(lambda when, message: heard.append(message)):
        system.say("within")
        with system.overheard(lambda when, message: inner.append(message)):
            system.say("further in")
    system.say("after")
    assert (heard, inner, capsys.readouterr().err) == (["before", "within"], ["further in"], "")
    with system.overheard(lambda when, message: heard.append(message)):
        assert heard == ["before", "within", "after"]  # once
    monkeypatch.setenv("RANK", "1")
    with system.overheard(lambda when, message: heard.append(message)):
        system.say("by another process")
    assert len(heard) == 3
