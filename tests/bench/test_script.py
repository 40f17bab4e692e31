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


def call(folder: Path, runs: str, *more: str) -> str:
    script = [sys.executable, str(ROOT / "benchmarks" / "voc_bench.py"), "--shards", str(folder), "--device", "cpu"]
    script += ["--labels", str(folder / "labels.npz"), "--backbone", "small-cnn", "--size", str(SIZE)]
    script += ["--out", str(folder / "bench"), "--gather", str(folder / "rows.parquet"), "--processes", "1", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "ONELABEL_COMMIT": "abc"}
    done = subprocess.run(
        [*script, "--runs", runs], capture_output=True, text=True, env=environment, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
