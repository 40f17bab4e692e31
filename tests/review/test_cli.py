"""`onelabel review` from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onelabel.cli.review import app
from onelabel.review import load_answers
from onelabel.review.answers import record
from onelabel.review.change import Said
from onelabel.review.database import Database
from onelabel.review.export import find_reviewer
from onelabel.review.queue import Filters, Who, lease_items
from onelabel.review.serve import default_retrain, listen


def test_load_import_and_export_without_a_server(data: Any, tmp_path: Path) -> None:
    run = CliRunner().invoke
    first, second = str(tmp_path / "1.db"), str(tmp_path / "2.db")
    done = run(app, [str(data.recovered), "--db", first, "--export", str(tmp_path / "empty.parquet")])
    assert done.exit_code == 0, done.output
    assert "wrote 0 labels" in done.output
    db = Database(first)
    who = Who(find_reviewer(db, "ann"), "t")
    record(db, who, "r", [Said(i["id"], "yes") for i in lease_items(db, who, Filters(), 9, 60)])
    db.close()
    out = str(tmp_path / "out.parquet")
    done = run(app, [str(data.root), "--db", second, "--import", first, "--export", out])  # a folder holding the file
    assert "imported 9 of 9" in done.output
    assert load_answers(out).values.tolist() == [1] * 9
    assert load_answers(second).rows.tolist() == load_answers(first).rows.tolist()


def test_a_foreign_host_without_a_token_is_one_line(data: Any, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [str(data.recovered), "--db", str(tmp_path / "x.db"), "--host", "0.0.0.0"])
    assert isinstance(done.exception, ValueError)
    assert str(done.exception) == "host '0.0.0.0' is not loopback and needs a token: pass --token-file or use 127.0.0.1"
    assert not (tmp_path / "x.db").exists()


def test_a_taken_port_is_told() -> None:
    with listen("127.0.0.1", 0) as sock:
        sock.listen()
        with pytest.raises(OSError, match="is in use; pass another --port"):
            listen("127.0.0.1", sock.getsockname()[1])


def test_the_run_gives_the_training_command(tmp_path: Path) -> None:
    assert default_retrain(None) == []
    assert default_retrain(tmp_path) == []
    (tmp_path / "config.toml").write_text("")
    assert default_retrain(tmp_path) == []
    (tmp_path / "data.json").write_text("{}")
    assert default_retrain(tmp_path)[-4:] == ["train", str(tmp_path), "--labels", "{labels}"]
