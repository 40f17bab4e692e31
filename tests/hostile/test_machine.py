"""The worst machine: no network, no home, another locale, a broken GPU, little memory; one by one and at once."""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import features, only_hostile, run

pytestmark = pytest.mark.slow
GIGABYTES = 2
TRAIN = ("--mode", "linear", "--epochs", "2", "--set", "logger=none")


def _two_gigabytes() -> None:
    """Of memory that a process can write to; libraries that are only mapped do not count."""
    resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES << 30, GIGABYTES << 30))


def _no_network() -> None:
    os.unshare(os.CLONE_NEWNET)  # type: ignore[attr-defined]


def _both() -> None:
    _two_gigabytes()
    if hasattr(os, "unshare"):
        _no_network()


C_LOCALE = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NO_HOME = {"HOME": "/proc/no-such-home", "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None, "ONELABEL_CACHE": None}
BROKEN_GPU = {"CUDA_VISIBLE_DEVICES": "no-such-device,77"}
MACHINES: dict[str, tuple[dict[str, Any], Callable[[], None] | None]] = {
    "everything at once": ({**C_LOCALE, **NO_HOME, **BROKEN_GPU, "TZ": "Asia/Kathmandu"}, _both),
    "C locale": (C_LOCALE, None),
    "Turkish": ({"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}, None),
    "latin-1": ({"LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1:strict"}, None),
    "time zone": ({"TZ": "Pacific/Chatham"}, None),
    "no such time zone": ({"TZ": "Nowhere/At-All"}, None),
    "no home": (NO_HOME, None),
    "no GPU": ({"CUDA_VISIBLE_DEVICES": ""}, None),
    "GPU of another name": (BROKEN_GPU, None),
    "2 GB": ({}, _two_gigabytes),
}


@pytest.mark.parametrize(
    "name", [name if i == 0 else pytest.param(name, marks=only_hostile) for i, name in enumerate(MACHINES)]
)
def test_train_recover_and_export_work_there(name: str, tmp_path: Path) -> None:
    changes, before = MACHINES[name]
    if before is _both and os.geteuid() != 0:
        before = _two_gigabytes
    data = features(tmp_path / "donn\u00e9es.npz")
    done = run("train", str(data), "--out", "run", *TRAIN, cwd=tmp_path, before=before, **changes)
    assert done.returncode == 0, done.stderr.decode()
    told = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["phase"] for line in told] == ["linear", "linear", "student", "student"]
    done = run(
        "recover", str(data), "--out", "r.parquet", "--export", "csv=all.csv", cwd=tmp_path, before=before, **changes
    )
    assert done.returncode == 0, done.stderr.decode()
    with open(tmp_path / "all.csv", encoding="utf-8", newline="") as file:
        assert {line["class"] for line in csv.DictReader(file)} == {"İstanbul", "ılgın", "ß", "猫"}


def _refused(done: Any) -> str:
    assert done.returncode in (1, 2), (done.returncode, done.stderr.decode())
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("error")]
    assert len(lines) == 1, done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    return lines[0]


@only_hostile
def test_pretrained_weights_without_a_network(tmp_path: Path) -> None:
    """Said in one line with the remedy, within a minute."""
    before = _no_network if hasattr(os, "unshare") and os.geteuid() == 0 else None
    proxy = "http://127.0.0.1:9"  # where nobody listens, for machines on which the network cannot be taken away
    home = {"HF_HOME": str(tmp_path / "hf"), "TORCH_HOME": str(tmp_path / "torch")}
    words = ("train", "digits-scenes", "--backbone", "resnet18", "--epochs", "1", "--out", "run")
    done = run(*words, cwd=tmp_path, before=before, https_proxy=proxy, http_proxy=proxy, timeout=120, **home)
    assert "weights" in _refused(done)


@only_hostile
def test_features_without_a_home(tmp_path: Path) -> None:
    """The cache cannot be written: one line that names the folder, or the work done without it."""
    words = ("compare", "digits-scenes", "--backbone", "small-cnn", "--weights", "random", "--size", "24")
    done = run(*words, "--epochs", "1", "--seeds", "1", cwd=tmp_path, **NO_HOME)
    if done.returncode:
        assert "no-such-home" in _refused(done)


@only_hostile
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_driver_that_fails_to_start(tmp_path: Path) -> None:
    """CUDA is there and broken: every call of its driver answers "unknown error"."""
    calls = "cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuCtxCreate_v2 cuGetProcAddress_v2 cuGetProcAddress"
    source = "".join(f"int {call}() {{ return 999; }}\n" for call in calls.split())
    (tmp_path / "cuda.c").write_text(source)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "cuda.c")], check=True)
    shutil.copy(library, tmp_path / "libcuda.so")
    data, path = features(tmp_path / "f.npz"), {"LD_LIBRARY_PATH": str(tmp_path)}
    done = run("train", str(data), "--out", "run", *TRAIN, cwd=tmp_path, **path)
    assert done.returncode == 0, done.stderr.decode()
    done = run("train", str(data), "--out", "gpu", "--device", "cuda", *TRAIN, cwd=tmp_path, **path)
    assert "device" in _refused(done)


@only_hostile
def test_a_matrix_that_does_not_fit_two_gigabytes(tmp_path: Path) -> None:
    """4 GB of features in a sparse file: mapped, not read, or refused in one line."""
    import numpy as np

    np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(1_000_000, 1000))
    np.save(tmp_path / "y.npy", np.eye(4, dtype=np.int8)[np.zeros(1_000_000, int)])
    words = ("train", str(tmp_path / "x.npy"), "--option", f"labels={tmp_path / 'y.npy'}", "--out", "run", *TRAIN)
    done = run(*words, cwd=tmp_path, before=_two_gigabytes)
    assert done.returncode == 0 or "memory" in _refused(done).lower() or "alloc" in _refused(done).lower()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    kept = Path(__file__).parents[1] / "fixtures" / "v1" / "recovered.parquet"
    shutil.copy(kept, tmp_path / "recovered.parquet")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ("review", "recovered.parquet", "--port", str(taken.getsockname()[1]))
        assert "port" in _refused(run(*words, cwd=tmp_path, timeout=120)).lower()
