"""Results: rows come back as they were written; what cannot be read is named and costs nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from onelabel.bench import results
from onelabel.bench.results import Row

FULL = Row(
    "r1", "voc2012", "em", "em:x", {"alpha": 0.2, "soft": True}, "linear", "uniform:3", "full", "role", 2, 0.5,
    {"lr": 1e-3}, "sweep:em.alpha", "done", "", 1.5, 24, 3, 4, True, 81.0, 82.0, 83.0, 84.0, 85.0, 86.0,
    87.0, 88.0, 89.0, 0.75, (0.5, 0.25), "plain", ("cat", "کتاب"), ({"epoch": 0, "loss": 0.5},), {"note": [1, 2]},
    "abc", "2 CPU cores", {"torch": "2.15"}, "random", {"train": 3}, "2026-11-15T10:00:00", "onelabel bench",
)  # fmt: skip


def test_every_field_survives(tmp_path: Path) -> None:
    for f in dataclasses.fields(Row):  # the example must exercise every field, or a lost one would go unseen
        if f.default is not dataclasses.MISSING and f.name not in ("error", "status"):
            assert getattr(FULL, f.name) != f.default, f.name
    results.write(tmp_path, FULL)
    assert results.read(tmp_path) == [FULL]
    assert results.from_dict(results.as_dict(FULL)) == FULL


def test_missing_numbers_stay_missing(tmp_path: Path) -> None:
    results.write(tmp_path, Row("r", "d", "an"))
    (row,) = results.read(tmp_path)
    assert row.test_map is None
    assert row.test_ap == ()


def test_half_written_file_is_named_and_the_rest_read(tmp_path: Path) -> None:
    whole = results.write(tmp_path, FULL).read_bytes()
    (tmp_path / "half.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / ".r2.parquet.x.tmp.parquet").write_bytes(whole[:10])  # another process is writing it
    found = results.find(tmp_path)
    assert [row.run_id for row in found.rows] == ["r1"]
    assert sorted(found.unreadable) == ["empty.parquet", "half.parquet"]


def test_done_wins_over_failed_whatever_the_order(tmp_path: Path) -> None:
    done, failed = FULL, dataclasses.replace(FULL, status="failed", error="out of memory", started="2027")
    results.write_rows(tmp_path / "a.parquet", [done])
    results.write_rows(tmp_path / "b.parquet", [failed])
    assert results.read(tmp_path) == [done]


def test_pack_gathers_and_keeps_what_it_cannot_read(tmp_path: Path) -> None:
    other = dataclasses.replace(FULL, run_id="r2", seed=1)
    results.write(tmp_path, FULL)
    results.write(tmp_path, other)
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    assert results.pack(tmp_path, tmp_path / "all.parquet") == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.parquet", "half.parquet"]
    assert {row.run_id for row in results.read(tmp_path)} == {"r1", "r2"}
    results.write(tmp_path, dataclasses.replace(FULL, run_id="r3"))
    assert results.pack(tmp_path, tmp_path / "all.parquet") == 3


def test_pack_loses_no_row_wherever_the_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, away = tmp_path / "runs", tmp_path / "all.parquet"
    results.write(folder, FULL)
    assert results.pack(folder, away) == 1  # a copy: bench makes the runs of this folder no second time
    assert results.read(folder) == [FULL]
    (folder / "r1.parquet").unlink()
    results.write(folder, dataclasses.replace(FULL, run_id="r2"))
    assert results.pack(folder, away) == 2
    assert [row.run_id for row in results.read(away)] == ["r1", "r2"]
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the same file by another name
        assert results.pack("runs", folder / "all.parquet") == 1
        assert [p.name for p in folder.iterdir()] == ["all.parquet"]
    away.write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"all.parquet: cannot be read, so nothing is added to it; give another file"):
        results.pack(folder, away)
    assert away.read_bytes() == b"PAR1"


def test_newer_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "SCHEMA_VERSION", 99)
    results.write(tmp_path, FULL)
    monkeypatch.undo()
    assert "upgrade" in results.find(tmp_path).unreadable["r1.parquet"]
