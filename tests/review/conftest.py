"""A dataset of drawn pictures, both databases, a server in its own process, and a browser."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from onelabel.review import read_audit, read_recovered, write_audit, write_recovered
from onelabel.review.database import Database
from onelabel.review.load import load_audit, load_recovered

NAMES = ["bicycle", "bus", "cat", "dog", "<b>horse</b>"]


@dataclass
class Data:
    """Where the files of a small dataset are, and what is true in it."""

    root: Path
    recovered: Path
    audit: Path
    truth: np.ndarray
    observed: np.ndarray


def draw(path: Path, present: np.ndarray, seed: int) -> None:
    """A picture with one coloured shape for every class that is present."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (320, 240), tuple(int(c) for c in rng.integers(150, 245, 3)))
    pen = ImageDraw.Draw(image)
    for at in np.flatnonzero(present):
        x, y, r = int(rng.integers(20, 230)), int(rng.integers(20, 150)), int(rng.integers(30, 70))
        colour = [(200, 40, 40), (40, 90, 200), (240, 180, 30), (90, 60, 30), (30, 140, 80)][at]
        shape = pen.ellipse if at % 2 else pen.rectangle
        shape((x, y, x + r, y + r), fill=colour)
    image.save(path, quality=80)


@pytest.fixture(scope="session")
def make_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Data]:
    def make(examples: int = 40, audited: int = 3, seed: int = 0) -> Data:
        folder = tmp_path_factory.mktemp("data")
        rng = np.random.default_rng(seed)
        width = len(NAMES)
        truth = rng.random((examples, width)) < 0.4
        truth[np.arange(examples), rng.integers(0, width, examples)] = True
        observed = np.zeros((examples, width), np.int8)
        for row in range(examples):
            observed[row, rng.choice(np.flatnonzero(truth[row]))] = 1
        (folder / "pictures").mkdir()
        for row in range(examples):
            draw(folder / "pictures" / f"{row:03d}.jpg", truth[row], row)
        chance = np.clip(np.where(truth, rng.beta(5, 2, truth.shape), rng.beta(2, 5, truth.shape)), 0.06, 0.99)
        rows, cols = (index.ravel() for index in np.indices(truth.shape))
        columns = {
            "row": rows,
            "example": [f"pictures/{row:03d}.jpg" for row in rows],
            "class_index": cols,
            "probability": chance[rows, cols],
            "observed": observed[rows, cols],
            "rank": np.arange(len(rows)),
        }
        write_recovered(folder / "recovered.parquet", columns, root=".", class_names=NAMES)
        audit = {"row": range(audited), "example": [f"pictures/{row:03d}.jpg" for row in range(audited)]}
        chances = {"inclusion_probability": [0.1] * audited, "stratum": ["all"] * audited}
        write_audit(folder / "audit.parquet", {**audit, **chances})
        return Data(folder, folder / "recovered.parquet", folder / "audit.parquet", truth, observed)

    return make


@pytest.fixture(scope="session")
def data(make_data: Callable[..., Data]) -> Data:
    return make_data()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL of our own on loopback, started for these tests; skips where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = str(found[-1]) if found else shutil.which("initdb")
    if initdb is None:
        pytest.skip("PostgreSQL is not installed; run tests/review/setup.sh")
    as_user: list[str] = []
    folder = Path("/tmp") / f"onelabel-pg-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    port, binaries = free_port(), Path(initdb).parent

    def call(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, stdout=subprocess.DEVNULL, cwd=folder)

    call(initdb, "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "--no-sync")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [str(binaries / "pg_ctl"), "-D", str(folder / "data"), "-l", str(folder / "log"), "-w"]
    call(*control, "-o", options, "start")
    yield f"postgresql://postgres@127.0.0.1:{port}"
    call(*control, "-m", "immediate", "stop")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def db_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "reviewed.db")
    import psycopg

    # a schema is as separate as a database and takes a hundredth of the files
    server, name = request.getfixturevalue("postgres"), f"r{uuid.uuid4().hex[:10]}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{server}/postgres?options=-csearch_path%3D{name}"


@pytest.fixture
def db(db_url: str, data: Data) -> Iterator[Database]:
    """A database with the suggestions and the audit of `data`."""
    database = Database(db_url)
    load_recovered(database, read_recovered(data.recovered))
    load_audit(database, read_audit(data.audit))
    yield database
    database.close()


@dataclass
class Server:
    """`onelabel review` in a process of its own."""

    args: list[str]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def start(self) -> Server:
        code = "from onelabel.cli.review import app; app()"
        command = [sys.executable, "-c", code, *self.args, "--port", str(self.port), "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {self.process.poll()}")
            time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def shared_server(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for tests that leave no traces others mind; short leases, so that closed pages hold nothing."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "train.sh").write_text("for i in 1 2 3; do echo epoch $i/3; sleep 0.2; done\n")
    files = [str(data.recovered), "--audit", str(data.audit), "--db", str(folder / "x.db")]
    server = Server([*files, "--name", "ann", "--lease", "2", "--retrain", f"sh {folder / 'train.sh'}"])
    yield server.start()
    server.kill()


@pytest.fixture
def serve(data: Data) -> Iterator[Callable[..., Server]]:
    """Start servers on `data`; they end with the test."""
    servers: list[Server] = []

    def begin(db_url: str, *extra: str) -> Server:
        args = [str(data.recovered), "--db", db_url, "--audit", str(data.audit), "--name", "ann", *extra]
        servers.append(Server(args))
        return servers[-1].start()

    yield begin
    for server in servers:
        server.kill()
