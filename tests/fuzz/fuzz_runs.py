"""Readers of what the program itself keeps: runs, checkpoints, caches, recovered labels, audits, reviews."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_readers import picture, reader, said_in_one_line, some_labels

SETTINGS: dict[str, Any] = {"mode": "linear", "epochs": 2, "batch_size": 8, "logger": "none", "device": "cpu"}
ROLE: dict[str, Any] = {"method": "role", "hyper": {"expected_positives": 1.5}}


@functools.cache
def splits() -> Any:
    from onelabel.data import load_dataset

    rng = np.random.default_rng(0)
    y = (rng.random((24, 3)) < 0.4).astype(np.uint8)
    y[:, 0] |= ~y.any(1)
    with tempfile.TemporaryDirectory() as folder:
        X = rng.standard_normal((24, 4)).astype(np.float32)
        np.savez(f"{folder}/m.npz", X=X, true=y, X_test=X[:6], true_test=y[:6], class_names=np.array(["a", "b", "ç"]))
        return load_dataset(f"{folder}/m.npz")


def _run(folder: Path) -> None:
    from onelabel.training import train
    from onelabel.training.again import Origin

    train(splits(), out=folder / "run", **ROLE, **SETTINGS)
    Origin("digits-scenes", None, {"size": 24}).save(folder / "run")


RUN = ("run/config.toml", "run/result.json", "run/metrics.jsonl", "run/*.safetensors", "run/scores-*.npy")


@reader("run folder", *RUN, make=_run)
def _(folder: Path) -> None:
    from onelabel.training import Run, evaluate
    from onelabel.training.recording import read_labels

    run = Run.load(folder / "run")
    read_labels(folder / "run")
    evaluate(run, splits())


@reader("run's origin", "run/data.json", make=_run)
def _(folder: Path) -> None:
    from onelabel.training.again import Origin

    Origin.load(folder / "run")


@reader("checkpoint", "run/checkpoint/**/*.json", "run/checkpoint/**/*.safetensors", "run/config.toml", make=_run)
def _(folder: Path) -> None:
    from onelabel.training import train

    outside = set(folder.iterdir())
    try:
        train(splits(), out=folder / "run", resume=True, **ROLE, **SETTINGS)
    finally:
        assert set(folder.iterdir()) == outside


def _landscape(folder: Path) -> None:
    from onelabel.report.figures.surface import write_surface

    settings = {"rows": 8, "grid": 3, "span": 1.0, "seed": 0, "loss": "own"}
    write_surface(folder, np.linspace(-1, 1, 3), np.arange(9.0).reshape(3, 3), settings)


@reader("landscape", "landscape.safetensors", make=_landscape)
def _(folder: Path) -> None:
    from onelabel.report.figures.surface import kept_surface

    kept_surface(folder)


def _recipe(folder: Path) -> None:
    (folder / "recipe.toml").write_text(
        'name = "x"\nmethod = "em"\nepochs = 3\n[train]\nlr = 1e-3\nmode = "linear"\n[hyper]\nalpha = 0.2\n'
    )


@reader("recipe", "recipe.toml", make=_recipe)
def _(folder: Path) -> None:
    from onelabel.methods import method
    from onelabel.training.config import TrainConfig
    from onelabel.training.recipes import settings_from

    try:
        config = TrainConfig.make(settings_from(folder / "recipe.toml", {"seed": 1}))
        method(config.method, **config.hyper)
    except TypeError as error:  # a word that is no setting, as for any keyword of Python's
        said_in_one_line(error)


# -- weights and caches ------------------------------------------------------------------------------------------------


def _weights(folder: Path) -> None:
    from onelabel.models import build_backbone
    from onelabel.training.files import write_tensors

    torch.manual_seed(0)
    state = build_backbone("small-cnn").state_dict()
    write_tensors(folder / "w.safetensors", state, {"note": "x"})
    torch.save(state, folder / "w.pth")


for _file in ("w.safetensors", "w.pth"):

    @reader(f"weights {_file}", _file, make=_weights)
    def _(folder: Path, file: str = _file) -> None:
        from onelabel.models import build_backbone

        build_backbone("small-cnn", weights=str(folder / file))

    @reader(f"weights for features {_file}", _file, make=_weights)
    def _(folder: Path, file: str = _file) -> None:
        from onelabel.data.cache import read_state

        read_state(folder / file)


def _cache(folder: Path, *, whole: bool, name: str = "cache") -> None:
    from onelabel.data.journal import ChunkedArray

    made = ChunkedArray(folder, name, (10, 3), "float32", {"data": "x"}, chunk=4)
    with made.filling() as filling:
        for number, rows in filling.todo[: 3 if whole else 2]:
            filling.array[rows] = number
            filling.done(number, [[0, "broken", "x.jpg", "why"]])
        if whole:
            filling.finish()


def _read_cache(folder: Path) -> None:
    """A damaged cache is made anew, never an error: it can always be computed again."""
    from onelabel.data.journal import ChunkedArray, failed_rows

    made = ChunkedArray(folder, "cache", (10, 3), "float32", {"data": "x"}, chunk=4)
    found = made.finished()
    if found is None:
        with made.filling() as filling:
            for number, rows in filling.todo:
                filling.array[rows] = number
                filling.done(number, [])
            found = filling.finish()
    assert found[0].shape == (10, 3)
    failed_rows(found[1], made.side)


reader("cache", "cache.json", "cache.npy", make=functools.partial(_cache, whole=True))(_read_cache)
reader("cache under way", "*.partial.*", make=functools.partial(_cache, whole=False))(_read_cache)


def _kept(folder: Path) -> None:
    _cache(folder, whole=True, name="features-a")
    _cache(folder, whole=False, name="squares-b")


@reader("what the cache keeps", "features-a.json", "squares-b.partial.jsonl", make=_kept)
def _(folder: Path) -> None:
    """What is damaged is shown as such."""
    from onelabel.data.kept import kept, told

    found = kept(folder)
    assert {each.name for each in found} == {"features-a", "squares-b"}
    assert told(folder, found)


# -- recovered labels, audits, reviews ---------------------------------------------------------------------------------


def _recovered(folder: Path) -> None:
    from onelabel.recovery import plan_audit, recover
    from onelabel.review.database import Database
    from onelabel.review.export import Answers, export_file, find_reviewer, import_answers
    from onelabel.review.load import load_audit, load_recovered
    from onelabel.review.source import read_audit, read_recovered

    labels = some_labels()
    (folder / "pictures").mkdir()
    for i in range(4):
        (folder / "pictures" / f"{i}.jpg").write_bytes(picture(i))
    scores = np.random.default_rng(0).standard_normal(labels.shape).astype(np.float32)
    examples = [f"{i}.jpg" for i in range(4)]
    done = recover(None, labels, folder / "r.parquet", scores=scores, examples=examples, root="pictures", show=False)
    plan_audit(done.file, rows=2).save(folder / "audit.parquet")
    db = Database(folder / "r.db")
    load_recovered(db, read_recovered(folder / "r.parquet"), quiet=True)
    load_audit(db, read_audit(folder / "audit.parquet"))
    find_reviewer(db, "me")
    rows, cols = np.array([0, 1]), np.array([1, 0])
    import_answers(db, Answers(rows, cols, np.array([1, -1], np.int8), {"class_names": ["a", "b", "ç"]}))
    export_file(db, folder / "answers.parquet")
    db.close()
    (folder / "answers.csv").write_text("row,class,value\n0,b,1\n1,a,-1\n")
    (folder / "all.csv").write_text("row,labels\n0,a|b\n1,ç\n2,\n")


@reader("recovered labels", "r.parquet", "r.json", make=_recovered)
def _(folder: Path) -> None:
    from onelabel.recovery import RecoveredFile, plan_audit
    from onelabel.recovery.errors import label_errors
    from onelabel.recovery.export import export_recovered

    file = RecoveredFile.open(folder / "r.parquet")
    file.labels()
    plan_audit(file, rows=2)
    label_errors(file, most=3)
    try:
        export_recovered(file, "folders", folder / "out")
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)


@reader("recovered labels in review", "r.parquet", make=_recovered)
def _(folder: Path) -> None:
    from onelabel.review.database import Database
    from onelabel.review.load import load_recovered
    from onelabel.review.source import read_recovered

    db = Database(folder / "new.db")
    try:
        load_recovered(db, read_recovered(folder / "r.parquet"), quiet=True)
    finally:
        db.close()
        (folder / "new.db").unlink()


@reader("audit plan", "audit.parquet", make=_recovered)
def _(folder: Path) -> None:
    from onelabel.recovery import RecoveredFile, estimate_audit, read_answers
    from onelabel.recovery.audit import Plan
    from onelabel.review.source import read_audit

    plan = Plan.load(folder / "audit.parquet")
    answers = read_answers(folder / "all.csv", plan, ("a", "b", "ç"))
    estimate_audit(RecoveredFile.open(folder / "r.parquet"), plan, answers)
    list(read_audit(folder / "audit.parquet").batches())


for _file in ("answers.parquet", "answers.csv", "all.csv"):

    @reader(f"audit's {_file}", _file, make=_recovered)
    def _(folder: Path, file: str = _file) -> None:
        from onelabel.recovery import read_answers
        from onelabel.recovery.audit import Plan

        found = read_answers(folder / file, Plan.load(folder / "audit.parquet"), ("a", "b", "ç"))
        assert np.isin(found, (-1, 0, 1)).all()


@reader("review's answers", "answers.parquet", make=_recovered)
def _(folder: Path) -> None:
    from onelabel.review.export import load_answers

    answers = load_answers(folder / "answers.parquet")
    some_labels().with_updates(answers.rows, answers.cols, answers.values)


@reader("review database", "r.db", make=_recovered)
def _(folder: Path) -> None:
    from onelabel.review.export import load_answers

    for side in ("r.db-wal", "r.db-shm"):
        (folder / side).unlink(missing_ok=True)
    load_answers(folder / "r.db")
