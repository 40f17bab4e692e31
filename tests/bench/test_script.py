"""benchmarks/voc_bench.py as a GPU machine runs it, on a few small pictures: rows come back after every run."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onelabel import bench

ROOT = Path(__file__).resolve().parents[2]
CLASSES, TRAIN, TEST, SIZE = 4, 30, 10, 16


def make_shards(folder: Path) -> None:
    """Two shards of TRAIN + TEST pictures whose colour says the class, and their labels, as pack_voc.py writes them."""
    rng = np.random.default_rng(0)
    true = np.zeros((TRAIN + TEST, CLASSES), np.uint8)
    true[np.arange(TRAIN + TEST), rng.permutation(TRAIN + TEST) % CLASSES] = 1
    observed = true[:TRAIN].astype(np.int8)
    files = []
    for row in true:
        colour = tuple(int(60 * row[i] + 80) for i in range(3))
        buffer = io.BytesIO()
        Image.new("RGB", (SIZE, SIZE), colour).save(buffer, "JPEG")
        files.append(buffer.getvalue())
    for number, start in enumerate((0, 25)):
        mine = files[start : start + 25]
        blob, ends = np.frombuffer(b"".join(mine), np.uint8), np.cumsum([len(each) for each in mine])
        np.savez(folder / f"shard-{number:02d}.npz", blob=blob, ends=ends, start=start)
    images = np.array([f"{i}.jpg" for i in range(TRAIN + TEST)])
    np.savez(
        folder / "labels.npz",
        classes=np.array([f"c{i}" for i in range(CLASSES)]),
        train_true=true[:TRAIN],
        test_true=true[TRAIN:],
        train_observed_uniform1200=observed,
        train_images=images[:TRAIN],
        test_images=images[TRAIN:],
    )


SMALL = ["--device", "cpu", "--backbone", "small-cnn", "--size", str(SIZE), "--processes", "1"]


def call(folder: Path, runs: str, *more: str) -> str:
    script = [sys.executable, str(ROOT / "benchmarks" / "voc_bench.py"), "--shards", str(folder), *SMALL]
    script += ["--labels", str(folder / "labels.npz")]
    script += ["--out", str(folder / "bench"), "--gather", str(folder / "rows.parquet"), *more]
    done = ask([*script, "--runs", runs], PYTHONPATH=str(ROOT / "src"), ONELABEL_COMMIT="abc")
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """From the project's root, as a lent machine does."""
    mine = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=mine, cwd=ROOT, timeout=240, check=False)


@pytest.mark.slow
def test_rows_come_back_after_every_run_and_say_how_they_stopped(tmp_path: Path) -> None:
    make_shards(tmp_path)
    told = call(tmp_path, "em~stop=1:0,1 an%biased,1~stop=1:0", "--epochs", "4")
    assert "3 runs made, 0 failed" in told
    assert told.count("scoring and the rest") == 3
    rows = {(row.label, row.seed, row.draw): row for row in bench.read(tmp_path / "rows.parquet")}
    assert set(rows) == {("em", 0, "uniform1200"), ("em", 1, "uniform1200"), ("an", 0, "biased:1:1200")}
    for row in rows.values():
        assert row.settings["stop"] == 1
        assert row.commit == "abc"
        assert row.stopped_early == (len(row.history) < 4)
        assert len(row.extra["images_per_second"]) == len(row.history)
        assert row.test_map is not None
        assert row.train_map is None
    again = call(tmp_path, "em~stop=1:0", "--epochs", "4")
    assert "0 runs made, 0 failed, 1 skipped" in again


def test_what_is_left_is_what_no_row_has_in_tables(tmp_path: Path) -> None:
    """Of the committed rows: BCE has no other draws, and a row made without early stopping stands for one with it."""
    done = ["--done", str(ROOT / "docs" / "results" / "bench"), "--runs", "em:0,3 all%biased,1:7 bce%biased,1:0"]
    told = ask([sys.executable, str(ROOT / "benchmarks" / "voc_bench.py"), "--dry", *done])
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    left = [tuple(line.split("  about")[0].split()) for line in lines[:-1]]
    assert ("em", "finetune", "uniform1200", "seed", "3") in left
    assert ("em", "finetune", "uniform1200", "seed", "0") not in left
    drawn = {words[0] for words in left if words[-1] == "7"}
    assert {"an", "em", "iun", "lasd"} <= drawn
    assert not {"bce", "bce-ls", "roll-call"} & drawn
    assert ("bce", "finetune", "biased:1:1200", "seed", "0") in left  # by its own name it is what was asked for
    assert lines[-1].startswith(f"{len(left)} runs: 0 done, 0 failed, {len(left)} to do, about ")


@pytest.mark.slow
def test_a_lent_machine_goes_from_carried_folders_to_rows(tmp_path: Path) -> None:
    """Each verb as a call of its own; what they start outlives them."""
    carried, lent, out = tmp_path / "carried", tmp_path / "lent", tmp_path / "out"
    carried.mkdir()
    out.mkdir()
    make_shards(carried)

    def lend(*words: str) -> subprocess.CompletedProcess[str]:
        script = ["bash", str(ROOT / "benchmarks" / "lent.sh"), *words]
        return ask(script, LENT=str(lent), OUT=str(out), PYTHON=sys.executable)

    assert lend("begin", "abc", *SMALL).returncode == 0
    (carried / "shard-01.npz").rename(tmp_path / "later.npz")
    assert "labels.npz" in lend("keep", str(carried)).stdout
    lacking = lend("start", "em", *SMALL)
    assert lacking.returncode == 1
    assert "25 pictures, expected 40" in lacking.stdout
    (tmp_path / "later.npz").rename(carried / "shard-01.npz")
    assert lend("keep", str(carried)).returncode == 0
    assert lend("start", "em an%biased,1", "--epochs", "1", *SMALL).stdout.endswith("started\n")
    told = lend("wait", "200")
    assert told.returncode == 0, told.stderr
    assert told.stdout.endswith("done\n"), told.stdout
    assert "2 runs made, 0 failed" in (out / "log.txt").read_text()
    rows = bench.read(out / "rows.parquet")
    assert {(row.label, row.draw, row.commit) for row in rows} == {
        ("em", "uniform1200", "abc"),
        ("an", "biased:1:1200", "abc"),
    }
