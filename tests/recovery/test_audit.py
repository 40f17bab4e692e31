"""Audits: the plan's probabilities, unbiased totals, intervals that hold the truth, and answers from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.labels import Labels, drop_labels
from onelabel.recovery import RecoveredFile, estimate_audit, plan_audit, read_answers, recover
from onelabel.recovery.audit import Plan, _allocate

Made = tuple[RecoveredFile, np.ndarray, np.ndarray]


def make(folder: Path, **how: Any) -> Made:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((1200, 6)) * 2 - np.linspace(1, 3.5, 6)
    y = rng.random(z.shape) < 1 / (1 + np.exp(-z))
    y[np.arange(1200), rng.integers(6, size=1200)] |= ~y.any(1)
    labels = drop_labels(y.astype(np.uint8), seed=0)
    names = [f"c{i}" for i in range(6)]
    labels = Labels(labels.indptr, labels.indices, labels.values, 6, names)
    scores = (z + rng.standard_normal(z.shape)).astype(np.float32)
    examples = [f"p/{i}.jpg" for i in range(1200)]
    how |= {"examples": examples, "root": "pictures", "show": False}
    done = recover(None, labels, folder / "recovered.parquet", scores=scores, **how)
    return done.file, y, labels.to_dense()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """By default 11 labels are added, 3 of them wrong."""
    return make(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """By the best F1 886 are added, 550 of them wrong."""
    return make(tmp_path_factory.mktemp("audit"), precision=None)


def said(y: np.ndarray, plan: Plan) -> np.ndarray:
    return np.where(y[plan.rows], 1, -1).astype(np.int8)


def test_plan_has_known_probabilities(made: Any, tmp_path: Path) -> None:
    file, _, _ = made
    plan = plan_audit(file, rows=120, seed=3)
    assert len(plan.rows) == 120
    assert len(set(plan.rows.tolist())) == 120
    assert sum(n for n, _ in plan.sizes.values()) == 1200
    for name, (there, chosen) in plan.sizes.items():
        mine = [i for i, s in enumerate(plan.stratum) if s == name]
        assert len(mine) == chosen
        np.testing.assert_allclose(plan.inclusion[mine], chosen / there)
    assert (1 / plan.inclusion).sum() == pytest.approx(1200)
    plan.save(tmp_path / "audit.parquet")
    again = Plan.load(tmp_path / "audit.parquet")
    np.testing.assert_array_equal(again.rows, plan.rows)
    assert again.sizes == plan.sizes
    assert again.examples[0] == f"p/{plan.rows[0]}.jpg"
    name = plan.stratum[0]
    for there in (0, plan.sizes[name][1] - 1, 10**400):
        replace(plan, sizes={**plan.sizes, name: (there, plan.sizes[name][1])}).save(tmp_path / "wrong.parquet")
        with pytest.raises(ValueError, match="fewer rows than were drawn of it, or more than there can be"):
            Plan.load(tmp_path / "wrong.parquet")
    assert len(plan_audit(file, minutes=10, seconds_per_row=30).rows) == 20
    assert (plan_audit(file, rows=5000).inclusion == 1).all()


def test_what_is_not_there_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"`onelabel audit plan RECOVERED --out .*a\.parquet` draws one"):
        Plan.load(tmp_path / "a.parquet")
    with pytest.raises(FileNotFoundError, match=rf"no recovered labels there; `onelabel recover {tmp_path}` writes"):
        RecoveredFile.open(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"`onelabel recover DATA --out .*a\.parquet` writes them"):
        RecoveredFile.open(tmp_path / "a.parquet")


def test_rows_are_drawn_as_often_as_they_say(made: Any) -> None:
    file, _, _ = made
    hits, chance = np.zeros(1200), np.zeros(1200)
    for seed in range(150):
        plan = plan_audit(file, rows=100, seed=seed)
        hits[plan.rows] += 1
        chance[plan.rows] = plan.inclusion
    seen = chance > 0
    assert seen.mean() > 0.95
    z = (hits[seen] / 150 - chance[seen]) / np.sqrt(chance[seen] * (1 - chance[seen]) / 150 + 1e-12)
    assert abs(z.mean()) < 0.1 + 3 / np.sqrt(seen.sum())
    assert 0.85 < z.std() < 1.15


@pytest.mark.parametrize("rule", ["made", "more"])
def test_estimates_are_unbiased_and_cover(rule: str, request: pytest.FixtureRequest) -> None:
    file, y, observed = request.getfixturevalue(rule)
    done = file.labels().to_dense() > 0
    true = {
        "count": y.sum(),
        "k": y.sum(1).mean(),
        "precision": (y & done).sum() / done.sum(),
        "recall": (y & done).sum() / y.sum(),
        "f1": 2 * (y & done).sum() / (y.sum() + done.sum()),
        "missing_rate": (y & (observed <= 0)).sum() / y.sum(),
        "added_precision": (y & done & (observed == 0)).sum() / (done & (observed == 0)).sum(),
    }
    found: dict[str, list[Any]] = {name: [] for name in true}
    for seed in range(40):
        plan = plan_audit(file, rows=150, seed=seed)
        got = estimate_audit(file, plan, said(y, plan))
        for name in true:
            found[name].append(got.overall[name])
    for name, value in true.items():
        v = np.array([e.value for e in found[name]])
        assert abs(v.mean() - value) < 3.5 * v.std(ddof=1) / np.sqrt(40), name
        assert np.mean([e.low <= value <= e.high for e in found[name]]) >= 0.87, name


def test_no_error_seen_is_not_no_error(made: Any) -> None:
    """Where every audited call is right the precision may be 1, or as low as so few calls leave open."""
    file, y, observed = made
    added = (file.labels().to_dense() > 0) & (observed == 0)
    plans = (plan_audit(file, rows=200, seed=seed) for seed in range(40))
    clean = [p for p in plans if added[p.rows].sum() > 1 and not (added & ~y)[p.rows].any()]
    assert len(clean) > 5
    for plan in clean:
        got = estimate_audit(file, plan, said(y, plan)).overall
        seen = int(added[plan.rows].sum())
        assert got["added_precision"].high == got["precision"].high == 1
        assert got["added_precision"].low < 1 - 1 / added.sum()  # one of the others may be wrong
        assert got["added_precision"].low * added.sum() >= seen  # those that were seen are right
    blind = next(p for p in (plan_audit(file, rows=50, seed=s) for s in range(40)) if not added[p.rows].any())
    got = estimate_audit(file, blind, said(y, blind)).overall
    assert not got["added_precision"].estimable
    assert (got["added_precision"].low, got["added_precision"].high) == (0, 1)
    assert got["precision"].low == pytest.approx((observed > 0).sum() / ((observed > 0) | added).sum())


def test_auditing_everything_is_exact(made: Any) -> None:
    file, y, _ = made
    plan = plan_audit(file, rows=1200)
    got = estimate_audit(file, plan, said(y, plan))
    assert got.overall["count"].value == pytest.approx(y.sum())
    assert got.overall["count"].high == pytest.approx(y.sum())
    for i in range(6):
        assert got.classes[f"c{i}"]["count"].value == pytest.approx(y[:, i].sum())
    assert got.contradictions == 0


def test_contradictions_and_missing_answers(made: Any) -> None:
    file, y, observed = made
    plan = plan_audit(file, rows=200)
    answers = said(y, plan)
    at = np.flatnonzero(observed[plan.rows[3]] > 0)[0]
    answers[3, at] = -1
    answers[5:25] = 0
    answers[30, 2] = 0
    got = estimate_audit(file, plan, answers)
    assert got.contradictions == 1
    assert got.rows == 180
    assert got.unanswered == 1
    assert got.overall["k"].low <= y.sum(1).mean() <= got.overall["k"].high
    assert got.to_json()["rows"] == 180
    with pytest.raises(ValueError, match="none of the plan's rows"):
        estimate_audit(file, plan, np.zeros_like(answers))
    with pytest.raises(ValueError, match="shape"):
        estimate_audit(file, plan, answers[:, :3])


def test_answers_from_files(made: Any, tmp_path: Path) -> None:
    file, y, _ = made
    plan = plan_audit(file, rows=30)
    names = file.class_names
    wanted = said(y, plan)
    wide = ["example,labels"]
    wide += [f"p/{r}.jpg,{'|'.join(n for n, v in zip(names, y[r], strict=True) if v)}" for r in plan.rows]
    (tmp_path / "wide.csv").write_text("\n".join(wide) + "\n")
    np.testing.assert_array_equal(read_answers(tmp_path / "wide.csv", plan, names), wanted)
    long = ["row,class,value"]
    long += [f"{r},{n},{wanted[i, c]}" for i, r in enumerate(plan.rows) for c, n in enumerate(names)]
    (tmp_path / "long.csv").write_text("\n".join(long) + "\n")
    np.testing.assert_array_equal(read_answers(tmp_path / "long.csv", plan, names), wanted)
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    grid = np.indices(wanted.shape)
    columns = {"row": plan.rows[grid[0].ravel()], "class_index": grid[1].ravel(), "value": wanted.ravel()}
    pq.write_table(pa.table(columns), tmp_path / "answers.parquet")
    np.testing.assert_array_equal(read_answers(tmp_path / "answers.parquet", plan, names), wanted)
    # exported by a review of the same pictures in another order, one of them gone and one new
    other = {name: row for row, name in enumerate(reversed(plan.examples[1:]))} | {"new.jpg": 29}
    entries = [(r, n, c) for n, r in other.items() for c in range(6)]
    value = [wanted[plan.examples.index(n), c] if n in plan.examples else 1 for _, n, c in entries]
    columns = {"row": [r for r, _, _ in entries], "example": [n for _, n, _ in entries]}
    columns |= {"class_index": [c for _, _, c in entries], "value": value}
    pq.write_table(pa.table(columns), tmp_path / "answers.parquet")
    found = read_answers(tmp_path / "answers.parquet", plan, names)
    np.testing.assert_array_equal(found[1:], wanted[1:])
    assert not found[0].any()
    with pytest.raises(FileNotFoundError, match=r"none\.csv: no answers there; .* --export .*none\.parquet` writes"):
        read_answers(tmp_path / "none.csv", plan, names)
    (tmp_path / "bad.csv").write_text(f"row,class,value\n{plan.rows[0]},nothing,1\n")
    with pytest.raises(ValueError, match="not one of the 6 classes"):
        read_answers(tmp_path / "bad.csv", plan, names)
    (tmp_path / "bad.csv").write_text(f"row,class,value\n{plan.rows[0]},c1,yes\n")
    with pytest.raises(ValueError, match="expected 1 or -1"):
        read_answers(tmp_path / "bad.csv", plan, names)


def test_allocation_adds_up_within_its_bounds() -> None:
    count, spread = np.array([5, 1000, 200, 3]), np.array([0.9, 0.01, 0.5, 0.0])
    for budget in (8, 50, 500, 1207):
        n = _allocate(count, spread, budget)
        assert n.sum() == budget
        assert (n <= count).all()
        assert (n >= 2).all()


def test_review_reads_the_files(made: Any, tmp_path: Path) -> None:
    source = pytest.importorskip("onelabel.review.source")
    file, _, _ = made
    opened = source.read_recovered(file.path)
    assert opened.class_names == list(file.class_names)
    assert sum(batch.num_rows for batch in opened.batches()) == opened.rows
    plan_audit(file, rows=20).save(tmp_path / "audit.parquet")
    assert next(source.read_audit(tmp_path / "audit.parquet").batches()).num_rows == 20


def test_k_is_at_least_what_was_observed_unless_contradicted(made: Any) -> None:
    file, _, observed = made
    plan = plan_audit(file, rows=6, seed=1)
    named = observed[plan.rows] > 0
    only = np.where(named, 1, -1).astype(np.int8)  # the auditor finds nothing beside what was named
    got = estimate_audit(file, plan, only).overall["k"]
    assert 1 <= got.low <= got.value <= got.high
    wrong = np.full_like(only, -1)  # nothing at all: what was named is not there
    assert estimate_audit(file, plan, wrong).overall["k"].low < 1


def test_an_audit_goes_to_its_pictures_after_others_came_and_went(tmp_path: Path) -> None:
    """`recover photos/ --audit`: a picture that sorts first is new, one that was audited is gone."""
    pytest.importorskip("typer")
    image = pytest.importorskip("PIL.Image")
    from typer.testing import CliRunner

    from onelabel.cli import app

    def call(*words: object) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.output

    photos, small = tmp_path / "photos", ["--backbone", "small-cnn", "--size", "16", "--folds", "2"]
    for number in range(24):
        target = photos / "abc"[number % 3] / f"{number:02d}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (16, 16), (10 * number, 99, 255 - 10 * number)).save(target)
    before, plan = tmp_path / "before.parquet", tmp_path / "plan.parquet"
    call("recover", photos, *small, "--out", before)
    call("audit", "plan", before, "--rows", 6, "--out", plan)
    audited = Plan.load(plan).examples
    lines = ["example,labels", *(f"{name},{name[0]}|{'bca'['abc'.index(name[0])]}" for name in audited)]
    (tmp_path / "answers.csv").write_text("\n".join(lines) + "\n")
    (photos / audited[0]).unlink()
    image.new("RGB", (16, 16)).save(photos / "a" / "000.png")
    how = ["--audit", plan, "--answers", tmp_path / "answers.csv"]
    told = call("recover", photos, *small, *how, "--out", tmp_path / "after.parquet")
    assert "1 of its 6 pictures are not in" in told
    after = RecoveredFile.open(tmp_path / "after.parquet")
    seen = {
        e.example: {after.class_names[at]: s for at, _, s, _ in e.entries if s} for e in after.examples(called=False)
    }
    for name in audited[1:]:
        there = (name[0], "bca"["abc".index(name[0])])
        assert seen[name] == {label: 1 if label in there else -1 for label in "abc"}
    assert all(each == {name[0]: 1} for name, each in seen.items() if name not in audited)
