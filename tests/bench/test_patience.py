"""Early stopping replayed: what a rule would have kept of a run that was made without it."""

from __future__ import annotations

from typing import Any

import pytest

from onelabel import bench
from onelabel.bench import tables
from onelabel.bench.patience import as_stopped, replay
from onelabel.bench.results import Found


def history(averaged: list[float], plain: list[float] | None = None, phase: str = "finetune") -> list[dict[str, Any]]:
    pairs = zip(plain or averaged, averaged, strict=True)
    return [
        {"phase": phase, "epoch": i, "validation_mAP": p, "validation_mAP_ema": a} for i, (p, a) in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("averaged", "plain", "stop", "made", "lost"),
    [
        ([1, 2, 3, 2, 2, 4], None, 2, 5, (1, 1)),
        ([1, 2, 3, 2, 2, 4], None, 3, 6, (0, 0)),
        ([1, 3, 2, 2, 2, 2], None, 2, 4, (0, 0)),
        ([1, 3, 2, 2, 2, 2], [1, 2, 2, 2, 5, 2], 2, 4, (3, 0)),  # the plain weights' best comes later
        ([1, 2, 3, 4, 3, 2], None, 2, 6, (0, 0)),  # after the last epoch there is nothing left to stop
        ([1, 2, 3, 2, 2, 4], None, "none", 6, (0, 0)),
        ([1, 2, 3, 2, 2, 4], None, "em", 4, (1, 1)),
    ],
)
def test_replay(averaged: list[float], plain: list[float] | None, stop: Any, made: int, lost: tuple[int, ...]) -> None:
    found = replay(history(averaged, plain), stop)
    assert found is not None
    assert (found.made, found.of, found.lost) == (made, len(averaged), lost)
    assert found.same is not any(lost)


def test_every_phase_is_replayed_by_itself() -> None:
    both = history([3, 2, 1, 1], phase="linear") + history([1, 2, 2.5, 3])
    found = replay(both, 2)
    assert found is not None
    assert (found.made, found.of, found.same) == (3 + 4, 8, True)
    assert replay([{"phase": "finetune", "epoch": 0, "loss": 1.0}], 2) is None
    assert replay([], 2) is None


def rows_of(name: str, averaged: list[float], stop: Any) -> list[Any]:
    plan = bench.make_plan("voc2012", [name], modes=["finetune"], seeds=[0], settings={"stop": stop})
    return [p.row(test_map=80.0, validation_map=81.0, history=history(averaged)) for p in plan]


def test_tables_take_a_run_without_stopping_only_where_it_would_have_ended_the_same() -> None:
    rows = [*rows_of("an", [1, 3, 2, 2, 2], "none"), *rows_of("em", [1, 3, 2, 2, 4], "none")]
    assert as_stopped(rows[0], 2).settings["stop"] == 2
    assert as_stopped(rows[1], 2) is rows[1]
    assert tables.pick(rows, "voc2012", "an", "finetune") is not None
    assert tables.pick(rows, "voc2012", "em", "finetune") is None
    sheet = tables.build("gr.2", Found(rows, {}))
    assert "1 run made without early stopping, which would have kept the same epochs" in sheet.notes
    (row,) = rows_of("em", [1, 3, 2], 2)
    assert as_stopped(row, 2) is row


def test_the_protocol_says_when_it_stops() -> None:
    assert "after 2 epochs in which the averaged weights' validation mAP has not improved" in str(
        bench.protocol("onelabel")
    )
    (planned,) = bench.make_plan("voc2012", ["em"], modes=["finetune"], seeds=[0])
    assert planned.settings["stop"] == 2
