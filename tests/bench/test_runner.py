"""The runner: every run is made once, whatever other workers do, fail or die of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel import bench
from onelabel.bench import claims
from onelabel.bench.store import Database, Folder, open_store
from onelabel.data import FeatureDataset, Splits
from onelabel.training import train

WORKERS = Path(__file__).with_name("bench_workers.py")
QUIET = {**os.environ, "ONELABEL_QUIET": "1", "OMP_NUM_THREADS": "1"}


def start(what: str, *words: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKERS), what, *map(str, words)]
    return subprocess.Popen(command, env=QUIET, stdout=subprocess.PIPE, text=True)


def small_plan(**options: Any) -> list[bench.Planned]:
    return bench.make_plan("toy", ["an", "em"], seeds=[0, 1], settings={"epochs": 2}, search=False, **options)


@pytest.mark.parametrize("place", ["folder", pytest.param("database", marks=pytest.mark.slow)])
def test_two_workers_make_each_run_once(tmp_path: Path, place: str) -> None:
    """Started together, on a folder or database that neither has made yet."""
    out, journal = tmp_path / "out", tmp_path / "journal"
    if place == "database":
        pytest.importorskip("optuna")
    where = out if place == "folder" else f"sqlite:///{tmp_path}/bench.db"
    both = [start("race", where, journal) for _ in range(2)]
    told = [worker.communicate(timeout=300)[0] for worker in both]
    assert [worker.returncode for worker in both] == [0, 0], told
    begun = Counter(line.split()[0] for line in journal.read_text().splitlines())
    assert begun == Counter({f"{m}-{s}": 1 for m in ("an", "em") for s in range(3)})
    assert len(open_store(where).find().rows) == 6
    if place == "folder":
        assert not list((out / "claims").glob("*.0"))


def test_killed_worker_is_followed_up_and_the_table_builds_meanwhile(tmp_path: Path, splits: Any) -> None:
    from onelabel.bench import tables

    out, journal = tmp_path / "out", tmp_path / "journal"
    worker = start("hang", out, journal)
    for _ in range(1200):
        if journal.exists():
            break
        time.sleep(0.1)
    worker.send_signal(signal.SIGKILL)
    worker.wait(timeout=60)
    assert len(bench.read(out)) == 1
    assert len(list((out / "claims").glob("*.0"))) == 1  # what it died in
    sheet = tables.build("role.1", bench.find(out), dataset="toy")
    assert any("not run" in cell for row in sheet.rows for cell in row)
    plan = bench.make_plan("toy", ["an", "em"], seeds=[0, 1, 2], settings={"epochs": 1}, search=False)
    tally = bench.run(plan, splits, out=out, device="cpu")
    assert (tally.made, tally.skipped) == (5, 1)
    assert {row.run_id for row in bench.read(out)} == {p.run_id for p in plan}


def test_failing_run_becomes_a_row_and_the_rest_is_made(tmp_path: Path, splits: Any) -> None:
    def broken(data: Any, **settings: Any) -> Any:
        raise RuntimeError("the disk\nis on fire")

    plan = small_plan()
    tally = bench.run(plan, splits, out=tmp_path, trainers={"em": broken}, device="cpu")
    assert (tally.made, tally.failed) == (2, 2)
    failed = [row for row in bench.read(tmp_path) if not row.done]
    assert {row.method for row in failed} == {"em"}
    line = broken.__code__.co_firstlineno + 1
    assert failed[0].error == f"RuntimeError: the disk is on fire (test_runner.py:{line})"  # in code of one's own
    assert bench.run(plan, splits, out=tmp_path, device="cpu").skipped == 4  # not again unless asked
    assert bench.run(plan, splits, out=tmp_path, device="cpu", retry=True).made == 2
    assert all(row.done for row in bench.read(tmp_path))


def test_what_a_plan_does_not_say_is_what_it_was_before_students_of_heads(tmp_path: Path, splits: Any) -> None:
    """A run's number stands for one training, trained as a probe or by itself; other classes are asked where told."""
    told: list[dict[str, Any]] = []

    def spy(*given: Any, **settings: Any) -> Any:
        told.append({k: v for k, v in settings.items() if k.startswith("student")})
        return train(*given, **settings)

    for student in ({}, {"student": "on"}, {"student": "on", "student_context": "auto"}):
        how = {"epochs": 1, "ema": 0.5, **student}  # no probe averages its weights
        plan = bench.make_plan("toy", ["roll-call"], seeds=[0], settings=how, search=False)
        assert bench.run(plan, splits, out=tmp_path, trainers={"roll-call": spy}, device="cpu").made == 1
        (row,) = [row for row in bench.read(tmp_path) if row.run_id == plan[0].run_id]
        assert {epoch["phase"] for epoch in row.history} == ({"linear", "student"} if student else {"linear"})
    assert [(s["student"], s["student_context"]) for s in told] == [("off", "off"), ("on", "off"), ("on", "auto")]
    assert {s["student_annotators"] for s in told} == {"off"}


def test_one_bad_probe_costs_only_itself(tmp_path: Path, splits: Any) -> None:
    bad = bench.make_plan("toy", ["em"], seeds=[0], settings={"epochs": 2}, hyper={"alpha": [-1.0]}, search=False)
    plan = [*small_plan(), *bad]
    tally = bench.run(plan, splits, out=tmp_path, device="cpu")
    assert (tally.made, tally.failed) == (4, 1)
    (failed,) = [row for row in bench.read(tmp_path) if not row.done]
    assert "alpha must lie in" in failed.error


def test_half_written_result_is_made_again(tmp_path: Path, splits: Any) -> None:
    plan = small_plan()
    bench.run(plan, splits, out=tmp_path, device="cpu")
    file = tmp_path / f"{plan[0].run_id}.parquet"
    before = bench.read(file)[0]
    file.write_bytes(file.read_bytes()[:100])
    assert bench.run(plan, splits, out=tmp_path, device="cpu").made == 1
    assert bench.read(file)[0].test_map == before.test_map


def test_probes_and_training_alone_agree_on_what_they_are_told(tmp_path: Path, splits: Any) -> None:
    """The same plan as probes and one by one: other first weights, so equal only in what they learn from."""
    plan = small_plan(draws=["uniform:7"])
    bench.run(plan, splits, out=tmp_path / "a", device="cpu")
    bench.run(plan, splits, out=tmp_path / "b", device="cpu", probes=False, settings={"device": "cpu"})
    a, b = ({r.run_id: r for r in bench.read(tmp_path / name)} for name in "ab")
    assert a.keys() == b.keys()
    for run_id, row in a.items():
        assert abs(row.test_map - b[run_id].test_map) < 15
        assert row.together == 4
        assert b[run_id].together == 1
        assert len(row.test_ap) == 4
        assert np.isclose(100 * np.mean(row.test_ap), row.test_map)
        assert row.hardware
        assert row.versions["torch"]
        spent = b[run_id].extra["seconds"]
        assert b[run_id].extra["machine"] == {"device": "cpu", "precision": "32-true"}  # what it came to
        assert set(spent) == {"preparing", "updates", "scoring and the rest", "measuring"}
        assert 0 < spent["updates"] <= sum(spent.values()) <= b[run_id].seconds + 0.05


def test_nothing_is_tried_that_the_plan_does_not_say(
    tmp_path: Path, splits: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`train` would choose roll call's settings on held-out rows; a table has those that its plan names."""
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    plan = bench.make_plan("toy", ["roll-call"], seeds=[0], settings={"epochs": 2}, search=False)
    bench.run(plan, splits, out=tmp_path, device="cpu", probes=False, settings={"device": "cpu"})
    (row,) = bench.read(tmp_path)
    assert row.done
    assert "by linear probes" not in capsys.readouterr().err


def test_rows_say_what_is_needed_to_repeat_them(tmp_path: Path, splits: Any) -> None:
    plan = small_plan(draws=["biased:1.0"], fractions=[0.5])
    bench.run(plan, splits, out=tmp_path, device="cpu")
    for row in bench.read(tmp_path):
        again = bench.Planned(
            row.dataset, row.method, row.name, row.hyper, row.mode, row.seed, row.settings, row.draw, row.supervision,
            row.protocol, row.fraction,
        )  # fmt: skip
        assert again.run_id == row.run_id
        assert row.draw == "biased:1:1200"
        assert row.rows == {"train": 30, "validation": 60, "test": 60}
    first = bench.read(tmp_path)[0]
    (tmp_path / f"{first.run_id}.parquet").unlink()
    bench.run(plan, splits, out=tmp_path, device="cpu")
    (repeated,) = [row for row in bench.read(tmp_path) if row.run_id == first.run_id]
    assert repeated.test_ap == first.test_ap


def test_time_is_kept(tmp_path: Path, splits: Splits[FeatureDataset]) -> None:
    tally = bench.run(small_plan(), splits, out=tmp_path, device="cpu", seconds=-1.0)
    assert (tally.made, tally.left) == (0, 4)


@pytest.fixture(params=["folder", "database"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "folder":
        return Folder(tmp_path)
    pytest.importorskip("optuna")
    return Database(f"sqlite:///{tmp_path}/bench.db")


def test_claims(store: Any) -> None:
    assert claims.claim(store, "r") == 0
    assert claims.claim(store, "r") is None  # this process lives and holds it
    assert claims.claim(store, "r", lease=-1.0) == 1  # silent for longer than the lease: taken over, by one
    assert store.latest("r") == 1
    assert not store.create("r", 1)
    store.put(bench.Row("r", "toy", "an", status="failed", error="x"))
    store.clear("r")
    assert claims.claim(store, "r") is None
    assert claims.claim(store, "r", retry=True) == 0
    store.put(bench.Row("r", "toy", "an", test_map=1.5))
    store.clear("r")
    assert claims.claim(store, "r", retry=True) is None
    assert store.find().rows == [bench.Row("r", "toy", "an", test_map=1.5)]


def test_many_at_once_win_each_claim_once(store: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    workers, runs = 6, [f"run-{i}" for i in range(12)]
    if isinstance(store, Folder):
        start = threading.Barrier(workers)
    else:
        start = threading.Barrier(2)  # SQLite lets one write at a time
        workers = 2

    def work(_: int) -> list[str]:
        start.wait()
        return [run for run in runs if claims.claim(store, run) is not None]

    with ThreadPoolExecutor(workers) as pool:
        won = [run for mine in pool.map(work, range(workers)) for run in mine]
    assert sorted(won) == sorted(runs)


def test_data_without_a_test_part_is_refused(tmp_path: Path, splits: Any) -> None:
    bare = Splits("toy", splits.train, splits.validation)
    with pytest.raises(ValueError, match="needs a test part with its true labels"):
        bench.run(small_plan(), bare, out=tmp_path)


def test_beating_keeps_a_claim(store: Any) -> None:
    generation = claims.claim(store, "r")
    assert generation == 0
    with claims.beating(store, [("r", 0)], lease=1.2):
        time.sleep(2.0)
        assert store.silence("r", 0) < 1.0


def test_bench_into_a_database(tmp_path: Path, splits: Any) -> None:
    pytest.importorskip("optuna")
    url = f"sqlite:///{tmp_path}/bench.db"
    assert bench.run(small_plan(), splits, out=url, device="cpu").made == 4
    assert bench.run(small_plan(), splits, out=url, device="cpu").skipped == 4
    assert len(Database(url).find().rows) == 4


def test_a_claim_whose_maker_died_before_it_could_sign_is_taken_over(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    store = Database(f"sqlite:///{tmp_path}/bench.db")
    assert store._create("r", 0)  # and killed here: neither owner nor beat
    assert claims.claim(store, "r", lease=0.2) is None  # it may be writing them this moment
    time.sleep(0.3)
    assert claims.claim(store, "r", lease=0.2) == 1


def test_a_claim_forgotten_between_two_looks_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    store = Database(f"sqlite:///{tmp_path}/bench.db")
    assert claims.claim(store, "r") == 0
    gone = store._study("r", 0)
    store.clear("r")
    monkeypatch.setattr(store, "_study", lambda run_id, generation: gone)  # found, then deleted by whoever finished
    store.beat("r", 0)
    assert store.silence("r", 0) == 0


def test_a_database_that_cannot_be_is_one_line() -> None:
    pytest.importorskip("optuna")
    with pytest.raises(ValueError, match=r"foo://…: no such kind of database; expected such as sqlite:///bench.db"):
        open_store("foo://user:secret@host/x")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_row_says_the_precision_its_machine_had(tmp_path: Path, splits: Any, precision: Any) -> None:
    from onelabel.training.config import TrainConfig
    from onelabel.training.machine import make_fabric

    plan, fabric = small_plan()[:1], make_fabric(TrainConfig(device="cpu", precision=precision))
    given: dict[str, Any] = {"device": "cpu", "probes": False}
    bench.run(plan, splits, out=tmp_path / "a", fabric=fabric, settings={"device": "cpu"}, **given)
    bench.run(plan, splits, out=tmp_path / "b", settings={"device": "cpu", "precision": precision}, **given)
    bench.run(plan, splits, out=tmp_path / "auto", settings={"device": "cpu"}, **given)
    said = [bench.read(tmp_path / name)[0].extra["machine"] for name in ("a", "b", "auto")]
    assert said == [{"device": "cpu", "precision": p} for p in (precision, precision, "32-true")]


def test_a_row_says_that_its_device_was_shared(tmp_path: Path, splits: Any) -> None:
    bench.run(small_plan(), splits, out=tmp_path / "alone", device="cpu")
    bench.run(small_plan(), splits, out=tmp_path / "shared", device="cpu", beside=2)
    (alone,) = {row.hardware for row in bench.read(tmp_path / "alone")}
    (shared,) = {row.hardware for row in bench.read(tmp_path / "shared")}
    assert shared == f"{alone}, 3 runs at once"
