"""Plans, draws and sweeps: the runs that are asked for, with the labels they say."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from onelabel import bench
from onelabel.bench.draws import check_draw, observe, subset
from onelabel.bench.plan import expected
from onelabel.bench.sweeps import line_of, position


def test_linear_searches_and_finetune_takes_the_recipe() -> None:
    plan = bench.make_plan("voc2012", ["an", "gr"], modes=["linear", "finetune"], seeds=[0, 1])
    linear, fine = ([p for p in plan if p.mode == mode] for mode in ("linear", "finetune"))
    assert len(linear) == 2 * 4 * 2 * 2
    assert {(p.settings["lr"], p.settings["batch_size"]) for p in linear if p.method == "an"} == {
        (lr, size) for lr in (1e-2, 1e-3, 1e-4, 1e-5) for size in (8, 16)
    }
    assert [(p.name, p.seed, p.settings["epochs"]) for p in fine] == [
        ("an", 0, 10), ("an", 1, 10), ("gr", 0, 8), ("gr", 1, 8),
    ]  # fmt: skip


def test_identity_is_everything_but_the_plan() -> None:
    (run,) = bench.make_plan("voc2012", ["em"], modes=["finetune"], seeds=[0])
    assert dataclasses.replace(run, plan="other").run_id == run.run_id
    changes: dict[str, Any] = {"seed": 1, "draw": "uniform:1", "fraction": 0.5, "supervision": "full", "protocol": "em"}
    changes |= {"hyper": {"alpha": 0.3}, "settings": {**run.settings, "lr": 1e-4}, "dataset": "cub", "mode": "linear"}
    ids = {dataclasses.replace(run, **{k: v}).run_id for k, v in changes.items()}
    assert len(ids | {run.run_id}) == len(changes) + 1
    order = dict(reversed(list(run.settings.items())))
    assert dataclasses.replace(run, settings=order).run_id == run.run_id


@pytest.mark.parametrize("name", ["uniform1200", "uniform:5", "biased:1", "biased:-2:7"])
def test_draws_name_one_present_class(splits: Any, name: str) -> None:
    labels = observe(splits.train, name)
    dense = labels.to_dense()
    assert ((dense == 1).sum(1) == 1).all()
    assert (dense >= 0).all()
    assert (splits.train.true[dense == 1] == 1).all()


def test_supervision_adds_true_negatives(splits: Any) -> None:
    train = splits.train
    positive = observe(train, "uniform:3").to_dense()
    one = observe(train, "uniform:3", "positive+negative").to_dense()
    every = observe(train, "uniform:3", "positive+negatives").to_dense()
    full = observe(train, "uniform:3", "full").to_dense()
    for dense in (one, every):
        assert ((dense == 1) == (positive == 1)).all()
        assert (train.true[dense == -1] == 0).all()
    rows = (train.true == 0).any(1)
    assert ((one == -1).sum(1)[rows] == 1).all()
    assert ((every == -1) == (train.true == 0)).all()
    assert (full == np.where(train.true, 1, -1)).all()


def test_biased_draw_prefers_frequent_classes(make: Any) -> None:
    train = make(rows=3000).train
    frequency = train.true.mean(0)
    names = ("biased:-3", "uniform:1", "biased:3")
    top = {name: (observe(train, name).to_dense() == 1).sum(0)[frequency.argmax()] for name in names}
    assert top["biased:-3"] < top["uniform:1"] < top["biased:3"]


def test_missing_draw_hides_entries_of_both_signs(make: Any) -> None:
    train = make(rows=2000).train
    dense = observe(train, "missing:0.7").to_dense()
    assert abs((dense != 0).mean() - 0.3) < 0.02
    assert (np.where(train.true, 1, -1)[dense != 0] == dense[dense != 0]).all()


@pytest.mark.shared
def test_published_negative_is_role_own(shared_data: Any) -> None:
    from onelabel.bench.datasets import voc_features
    from onelabel.probes.role_table import load_voc_features

    splits = voc_features(shared_data / "voc2012")
    ours = observe(splits.train, "uniform1200", "positive+negative", validation=splits.validation)
    assert (ours.to_dense() == load_voc_features(shared_data / "voc2012").one_negative.to_dense()).all()


def test_draw_names() -> None:
    assert check_draw("biased:2") == "biased:2:1200"
    assert check_draw("biased:2.0:1200") == "biased:2:1200"
    for wrong in ("uniform", "biased", "gaussian:1", "missing:x", "uniform:1:2"):
        with pytest.raises(ValueError, match=r"draw: .*, expected uniform1200"):
            check_draw(wrong)


def test_smaller_shares_lie_within_larger_ones() -> None:
    few, many = subset(100, 0.2, 1), subset(100, 0.6, 1)
    assert (len(few), len(many)) == (20, 60)
    assert set(few) < set(many)
    assert set(few) != set(subset(100, 0.2, 2))
    with pytest.raises(ValueError, match="fraction: 0, expected"):
        subset(100, 0, 1)


@pytest.mark.parametrize("name", sorted(bench.SWEEPS))
def test_sweeps_cover_their_axis(name: str) -> None:
    found = bench.SWEEPS[name]
    plan = bench.sweep(name, "voc2012", mode="finetune", seeds=[0])
    values = found.values or tuple(np.linspace(1, 2, 10).round(4))
    assert len(plan) == len(values) * len(found.lines) * len(found.methods)
    at = [position(found, p.row()) for p in plan]
    assert sorted(set(at)) == pytest.approx(sorted(values))
    assert len({line_of(found, p.row()) for p in plan}) == len(found.lines) * len(found.methods)
    assert len({p.run_id for p in plan}) == len(plan)


def test_cost_counts_and_estimates() -> None:
    plan = bench.make_plan("voc2012", ["an", "lasd"], modes=["finetune"], seeds=[0, 1])
    assert bench.cost(plan, []).seconds is None
    rows = [plan[0].row(seconds=50.0, hardware="H"), plan[1].row(status="failed", hardware="H")]
    found = bench.cost(plan, rows, "H")
    assert (found.total, found.done, found.failed) == (4, 1, 1)
    assert found.seconds == 2 * 3 * 50  # LASD looks at three views
    assert expected(plan[0], rows, "another machine") is None
    assert "2 to do, about 5 min" in str(found)


def test_the_latest_runs_say_how_long_the_next_takes() -> None:
    (planned,) = bench.make_plan("voc2012", ["an"], seeds=[0], search=False)
    slow = [planned.row(seconds=40.0, started=f"2026-01-01T00:00:{i:02d}+0000") for i in range(30)]
    quick = [planned.row(seconds=3.0, started=f"2026-01-02T00:00:{i:02d}+0000") for i in range(12)]
    assert expected(planned, slow) == 40
    assert expected(planned, [*quick, *slow]) == 3


def test_a_first_epoch_that_compiled_is_not_expected_again() -> None:
    (run,) = bench.make_plan("voc2012", ["roll-call"], modes=["linearinit"], seeds=[0], search=False)
    phases = ["linear", "linear", "finetune", "finetune", "finetune", "student", "student"]
    speeds = [500.0, 1000.0, 10.0, 100.0, 100.0, 100.0, 50.0]  # a pause later on is no warming up
    row = run.row(
        seconds=200.0,
        rows={"train": 1000},
        history=[{"phase": phase} for phase in phases],
        extra={"images_per_second": speeds},
    )
    assert expected(run, [row]) == pytest.approx(200 - (2 - 1.5) - (100 - 10))


def test_a_sweeps_runs_are_told_apart_in_their_lines() -> None:
    from onelabel.bench.command import line

    first, second, *_ = bench.sweep("gr.mu", "voc2012", mode="finetune", seeds=[0])
    told = [line(p.row(test_map=80.0)) for p in (first, second)]
    assert told[0] == "gr finetune mu=0.2 sigma=0.1 lr 1e-05 batch 8 seed 0: test 80.00"
    assert "mu=0.4 sigma=0.1" in told[1]
    (half,) = bench.make_plan("voc2012", ["an"], seeds=[1], draws=["biased:1"], fractions=[0.5], search=False)
    assert (
        line(half.row(test_map=80.0))
        == "an linear lr 0.001 batch 16 seed 1, biased:1:1200, 50% of the rows: test 80.00"
    )
