"""Audits: the plan's probabilities, unbiased totals, intervals that hold the truth, and answers from files."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
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


def test_answers_name_classes_as_they_are_called(made: Any, tmp_path: Path) -> None:
    """A name with spaces around it, or with the mark that divides labels."""
    plan = plan_audit(made[0], rows=4)
    names = (" lead", "pipe|x", "c2", "c3", "c4", "c5")
    cells = [" lead|c2", "pipe|x", " lead | c3 ", "c4| c5"]
    rows = [f"{plan.examples[i]},{cell}" for i, cell in enumerate(cells)]
    (tmp_path / "a.csv").write_text("\n".join(["example,labels", *rows[:2], rows[3]]))
    found = read_answers(tmp_path / "a.csv", plan, names)
    assert [np.flatnonzero(found[i] > 0).tolist() for i in (0, 1, 3)] == [[0, 2], [1], [4, 5]]
    assert not found[2].any()
    (tmp_path / "a.csv").write_text("\n".join(["example,labels", rows[2]]))
    with pytest.raises(ValueError, match=r"a\.csv:2: class 'lead' is not one of the 6 classes"):
        read_answers(tmp_path / "a.csv", plan, names)


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


def call(*words: object) -> tuple[int, str, str]:
    """A command: its exit code, what it prints, its errors."""
    pytest.importorskip("typer")
    from onelabel.cli import main

    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors), pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0), out.getvalue(), errors.getvalue()


def these(file: RecoveredFile, order: np.ndarray, out: Path) -> RecoveredFile:
    """The recovered labels of these rows, in this order."""
    import pyarrow.parquet as pq

    table = pq.read_table(file.path)
    rows = table.column("row").to_numpy()
    at = [np.flatnonzero(rows == row) for row in order]
    header = json.loads(table.schema.metadata[b"onelabel.recovered"]) | {"rows": len(order)}
    table = table.take(np.concatenate(at))
    table = table.set_column(0, table.schema.field(0), [np.repeat(np.arange(len(order)), list(map(len, at)))])
    pq.write_table(table.replace_schema_metadata({"onelabel.recovered": json.dumps(header)}), out)
    shutil.copy(file.path.with_suffix(".json"), out.with_suffix(".json"))
    return RecoveredFile.open(out)


def sheet(path: Path, y: np.ndarray, rows: Any) -> Path:
    """A CSV of `row,labels`."""
    lines = [f"{row},{'|'.join(f'c{i}' for i in np.flatnonzero(y[row]))}" for row in rows]
    path.write_text("\n".join(["row,labels", *lines]) + "\n")
    return path


def test_an_estimate_finds_the_pictures_of_its_plan_by_name(made: Made, tmp_path: Path) -> None:
    file, y, _ = made
    plan = plan_audit(file, rows=60)
    wanted = estimate_audit(file, plan, said(y, plan)).to_json()
    order = np.random.default_rng(0).permutation(1200)
    other = these(file, order, tmp_path / "other.parquet")
    found = estimate_audit(other, plan, said(y, plan)).to_json()
    for name, each in wanted["overall"].items():
        assert found["overall"][name] == pytest.approx(each), name
    plan.save(tmp_path / "plan.parquet")
    how = [tmp_path / "plan.parquet", sheet(tmp_path / "a.csv", y, plan.rows), "--labels", tmp_path / "l.npz"]
    code, _, errors = call("audit", "estimate", other.path, *how)
    assert code == 0, errors
    np.testing.assert_array_equal(
        Labels.load(tmp_path / "l.npz").to_dense()[np.argsort(order)[plan.rows]], said(y, plan)
    )


@pytest.mark.parametrize("fewer", ["recovered", "planned"])
def test_no_estimate_from_a_plan_of_other_pictures(made: Made, tmp_path: Path, fewer: str) -> None:
    """`recover photos/` takes all rows, `recover RUN` those it trains on."""
    file, y, _ = made
    part = these(file, np.arange(200, 1200), tmp_path / "part.parquet")
    drawn, given = (file, part) if fewer == "recovered" else (part, file)
    plan = plan_audit(drawn, rows=60)
    plan.save(tmp_path / "plan.parquet")
    answers = sheet(tmp_path / "a.csv", y, plan.rows)
    code, told, errors = call("audit", "estimate", given.path, tmp_path / "plan.parquet", answers)
    assert (code, told, errors.count("\n")) == (2, "", 1)
    assert f"{tmp_path / 'plan.parquet'} was drawn from {drawn.rows:,} pictures" in errors
    assert f"{given.path} holds {given.rows:,}" in errors
    assert call("audit", "estimate", drawn.path, tmp_path / "plan.parquet", answers)[0] == 0


def test_answers_that_do_not_match_the_plan_are_counted(made: Made, tmp_path: Path) -> None:
    file, y, _ = made
    plan = plan_audit(file, rows=60)
    plan.save(tmp_path / "plan.parquet")
    others = np.setdiff1d(np.arange(1200), plan.rows)[:12]
    words = [file.path, tmp_path / "plan.parquet", sheet(tmp_path / "a.csv", y, [plan.rows[7], *others])]
    code, told, errors = call("audit", "estimate", *words, "--out", tmp_path / "e.json")
    assert code == 0, errors
    assert told.splitlines()[:3] == [
        "1 audited picture, 0 entries without an answer",
        "59 of 60 planned pictures have no answer",
        "12 answers are of pictures that are not in this plan",
    ]
    for text in ((tmp_path / "e.json").read_text(), call("audit", "estimate", *words, "--json")[1]):
        found = json.loads(text)
        assert [found[name] for name in ("rows", "unanswered", "unanswered_rows", "elsewhere")] == [1, 0, 59, 12]
    sheet(tmp_path / "a.csv", y, [*plan.rows[1:], others[0]])
    told = call("audit", "estimate", *words)[1]
    assert "\n1 of 60 planned pictures has no answer\n1 answer is of a picture that is not in this plan\n" in told
    told = call("audit", "estimate", *words[:2], sheet(tmp_path / "a.csv", y, plan.rows))[1]
    assert "no answer" not in told
    assert "this plan" not in told
    code, _, errors = call("audit", "estimate", *words[:2], sheet(tmp_path / "a.csv", y, others))
    assert (code, errors.count("\n")) == (2, 1)
    assert "12 answers are of pictures that are not in this plan, and no other is there" in errors


def test_exported_answers_of_other_pictures_are_counted(made: Made, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    from onelabel.recovery.answers import match_answers

    file, _, _ = made
    plan = plan_audit(file, rows=6)
    names = [plan.examples[0], plan.examples[1], "new.jpg", "new.jpg", "newer.jpg"]
    columns = {"row": [0, 1, 2, 2, 3], "example": names, "class_index": [0, 1, 0, 1, 0], "value": [1, -1, 1, -1, 0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = match_answers(tmp_path / "a.parquet", plan.rows, plan.examples, file.class_names)
    assert found.elsewhere == 2  # nothing was said of the last
    assert found.notes()[0] == "4 of 6 planned pictures have no answer"
    assert (found.values[0, 0], found.values[1, 1], np.abs(found.values).sum()) == (1, -1, 2)


def test_a_name_is_believed_before_a_number(made: Made, tmp_path: Path) -> None:
    file, y, _ = made
    plan = plan_audit(file, rows=6)
    wanted = said(y, plan)
    lines = [
        f"{plan.rows[(i + 1) % 6]},{name},{'|'.join(f'c{c}' for c in np.flatnonzero(wanted[i] > 0))}"
        for i, name in enumerate(plan.examples)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["row,example,labels", *lines]) + "\n")
    np.testing.assert_array_equal(read_answers(tmp_path / "a.csv", plan, file.class_names), wanted)


def test_a_plan_of_one_stratum_says_so_in_words(made: Made, tmp_path: Path) -> None:
    told = call("audit", "plan", made[0].path, "--rows", 1200, "--out", tmp_path / "p.parquet")[1]
    assert told.startswith(f"{tmp_path / 'p.parquet'}: 1,200 pictures in 1 stratum\n")


def test_audited_labels_are_not_told_to_be_audited(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = Labels.from_classes(rng.integers(4, size=120), num_classes=4)
    X = rng.standard_normal((120, 3)).astype(np.float32)  # which say nothing
    data, plan, before = (tmp_path / name for name in ("f.npz", "plan.parquet", "r.parquet"))
    np.savez(data, X=X, observed=labels.to_dense())
    code, told, errors = call("recover", data, "--folds", 2, "--out", before)
    assert code == 0, errors
    assert "k is open" in told
    assert call("audit", "plan", before, "--rows", 10, "--out", plan)[0] == 0
    y = rng.random((120, 4)) < 0.3
    names = RecoveredFile.open(before).class_names
    rows = Plan.load(plan).rows[:9]
    lines = [f"{row},{'|'.join(names[c] for c in np.flatnonzero(y[row]))}" for row in rows]
    (tmp_path / "a.csv").write_text("\n".join(["row,labels", *lines]) + "\n")
    how = ["--folds", 2, "--audit", plan, "--answers", tmp_path / "a.csv", "--out", tmp_path / "after.parquet"]
    code, told, errors = call("recover", data, *how)
    assert code == 0, errors
    assert json.loads((tmp_path / "after.json").read_text())["k_open"]  # the case in question
    assert "k is open" not in told
    assert "1 of 10 planned pictures has no answer" in told
