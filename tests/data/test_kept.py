"""What the cache holds, and what clearing it takes and leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from onelabel.cli import app
from onelabel.data import Dataset, device_pictures, features, load_dataset
from onelabel.data.journal import ChunkedArray, locked
from onelabel.data.kept import DAY, clear, kept


class Means(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3))


@pytest.fixture(scope="module")
def scenes() -> Dataset:
    return load_dataset("digits-scenes", size=32, n_train=40, n_validation=0, n_test=0).train


def age(folder: Path, days: float) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - days * DAY,) * 2)


def test_it_says_what_is_there(scenes: Dataset, tmp_path: Path) -> None:
    made = features(scenes, Means(), size=16, cache=tmp_path)
    device_pictures(scenes, 8, placement="host", cache=tmp_path)
    found = {each.what: each for each in kept(tmp_path)}
    assert len(found) == 2
    of = next(each for what, each in found.items() if what.startswith("features, Means-"))
    assert of.what.endswith(", 16 px")
    assert (of.rows, of.state) == (40, "whole")
    assert of.size == sum(path.stat().st_size for path in tmp_path.glob(f"{of.name}.*") if path.suffix != ".lock")
    assert found["pictures, 8 px"].size > 40 * 8 * 8 * 3
    assert made.path in of.files()


def test_what_is_cleared_is_made_again(scenes: Dataset, tmp_path: Path) -> None:
    before = features(scenes, Means(), size=16, cache=tmp_path)
    gone, busy = clear(kept(tmp_path))
    assert ([each.rows for each in gone], busy) == ([40], [])
    assert list(tmp_path.iterdir()) == []
    again = features(scenes, Means(), size=16, cache=tmp_path)
    assert again.computed == 40
    np.testing.assert_array_equal(again.array, before.array)


def test_what_was_used_lately_stays(scenes: Dataset, tmp_path: Path) -> None:
    features(scenes, Means(), size=16, cache=tmp_path)
    features(scenes, Means(), size=8, cache=tmp_path)
    age(tmp_path, 40)
    assert features(scenes, Means(), size=8, cache=tmp_path).computed == 0  # used today
    gone, _ = clear(kept(tmp_path), days=30)
    assert [each.what[-5:] for each in gone] == ["16 px"]
    assert [each.what[-5:] for each in kept(tmp_path)] == [" 8 px"]


def test_old_ones_go_at_any_age_and_strangers_never(scenes: Dataset, tmp_path: Path) -> None:
    features(scenes, Means(), size=16, cache=tmp_path)
    (side,) = tmp_path.glob("*.json")
    about = json.loads(side.read_text())
    about["key"]["version"] = 1
    side.write_text(json.dumps(about))
    (tmp_path / "features-damaged.npy").write_bytes(b"?")
    (tmp_path / "features-damaged.json").write_text("[]")
    features(scenes, Means(), size=8, cache=tmp_path)
    (tmp_path / "thesis.npy").write_bytes(b"mine")
    assert sorted(each.state for each in kept(tmp_path)) == ["old", "old", "whole"]
    clear(kept(tmp_path), days=1000)
    assert [each.state for each in kept(tmp_path)] == ["whole"]
    clear(kept(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.npy"]


def test_an_unfinished_one_is_told_and_one_being_written_stays(tmp_path: Path) -> None:
    """Another process holds the lock of one; the other was left by a process that is gone."""
    for name in ("squares-a", "squares-b"):
        array = ChunkedArray(tmp_path, name, (4, 2), "float32", {"version": 1, "size": 2}, chunk=2)
        with array.filling() as filling:
            filling.array[:2] = 1
            filling.done(0)
    assert {(each.state, each.rows) for each in kept(tmp_path)} == {("begun", 4)}
    hold = (
        f"import time\nfrom pathlib import Path\nfrom onelabel.data.journal import locked\n"
        f"with locked(Path({str(tmp_path / 'squares-a.lock')!r})) as free:\n    print(free, flush=True)\n"
        "    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        gone, busy = clear(kept(tmp_path))
        other.kill()
    assert ([each.name for each in gone], [each.name for each in busy]) == (["squares-b"], ["squares-a"])
    assert [each.name for each in kept(tmp_path)] == ["squares-a"]


def test_who_waited_for_a_lock_that_was_cleared_takes_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two processes would hold two files of one name, and write the same array."""
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)  # it says that it waits
    path, pipe = tmp_path / "squares-a.lock", subprocess.PIPE
    wait = (
        "from pathlib import Path\nfrom onelabel.data.journal import locked\n"
        f"with locked(Path({str(path)!r}), waiting_for='it'):\n    print('held', flush=True)\n    input()"
    )
    with locked(path):
        other = subprocess.Popen([sys.executable, "-c", wait], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert other.stdout is not None
        assert other.stderr is not None
        assert "waiting for it" in other.stderr.readline()
        path.unlink()
    assert other.stdout.readline() == "held\n"
    with locked(path) as free:
        assert not free
    other.communicate("\n", timeout=60)


def test_the_command(scenes: Dataset, tmp_path: Path) -> None:
    features(scenes, Means(), size=16, cache=tmp_path)
    words = ["data", "cache", "--folder", str(tmp_path)]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "40 rows  features, Means-" in shown.output
    assert f"{tmp_path}: 1 array, 0.0 MiB" in shown.output
    rows = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["arrays"]
    assert [(row["rows"], row["state"]) for row in rows] == [(40, "whole")]
    assert "0 arrays, 0.0 MiB removed, 1 array" in CliRunner().invoke(app, [*words, "--clear", "--days", "1"]).output
    assert "1 array, 0.0 MiB removed, 0 arrays, 0.0 MiB left" in CliRunner().invoke(app, [*words, "--clear"]).output
    assert "0 arrays" in CliRunner().invoke(app, words).output
    assert "0 arrays" in CliRunner().invoke(app, ["data", "cache", "--folder", str(tmp_path / "nowhere")]).output
