"""A run in use: predictions of pictures, exports that agree with it, a predictor without torch; the commands."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onelabel.data import DataError, load_dataset
from onelabel.data.report import Report
from onelabel.data.tables import read_records
from onelabel.recovery import export_run, predict
from onelabel.recovery.onnx_predictor import OnnxPredictor
from onelabel.recovery.prediction import find_pictures
from onelabel.training import train

NAMES = tuple("abcdefghij")


@pytest.fixture(scope="module")
def run(untrained_run: Callable[..., Path]) -> Path:
    return untrained_run(NAMES)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("pictures")
    source = load_dataset("digits-scenes", size=32).train.source
    for i in range(7):
        (folder / f"s{i % 2}").mkdir(exist_ok=True)
        image.fromarray(source.images[i]).resize((40, 36)).save(folder / f"s{i % 2}" / f"{i}.png")
    (folder / "s1" / "broken.png").write_bytes(b"no picture")
    return folder


def test_hidden_files_are_not_scored_and_phones_pictures_not_passed_over(tmp_path: Path) -> None:
    for name in ("b.jpg", "._b.jpg", ".thumbs/c.jpg", "in/a.HEIC", "notes.txt", ".DS_Store"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert find_pictures([tmp_path]) == [f"{tmp_path}/b.jpg", f"{tmp_path}/in/a.HEIC"]


@pytest.mark.parametrize("to", ["safetensors", "torchscript", "hf"])
def test_exports_agree_with_the_run(run: Path, pictures: Path, tmp_path: Path, to: str) -> None:
    real = [p for p in find_pictures([pictures]) if "broken" not in p]
    out = tmp_path / ("out.safetensors" if to == "safetensors" else "out")
    made = export_run(run, to, out, samples=real)
    assert made.difference <= 1e-6
    assert made.real
    assert made.inputs == 7
    with pytest.raises(FileExistsError):
        export_run(run, to, out)
    if to == "hf":
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        assert config["id2label"]["3"] == "d"
        assert (tmp_path / "out" / "README.md").is_file()
    if to == "safetensors":
        assert json.loads((tmp_path / "out.json").read_text())["class_names"] == list(NAMES)
        out.unlink()
        with pytest.raises(FileExistsError, match=r"out\.json exists"):  # what is written beside it, too
            export_run(run, to, out)
    with pytest.raises(ValueError, match=r"to must be one of .* for a run, got 'caffe'; labels .* recovered.parquet"):
        export_run(run, "caffe", tmp_path / "x")


def test_onnx_without_torch(run: Path, pictures: Path, tmp_path: Path) -> None:
    for module in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(module)
    real = [p for p in find_pictures([pictures]) if "broken" not in p]
    made = export_run(run, "onnx", tmp_path / "model.onnx", samples=real)
    assert made.difference <= 1e-5
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is not here")
sys.meta_path.insert(0, Refuse())
import json
from onelabel.recovery.onnx_predictor import OnnxPredictor
model = OnnxPredictor(sys.argv[1])
assert "torch" not in sys.modules
print(json.dumps([model(sys.argv[2:]).tolist(), model.class_names, model.labels(sys.argv[2], threshold=0.0)]))
"""
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.onnx"), *real], capture_output=True, text=True, check=True
    )
    p, names, labels = json.loads(result.stdout)
    assert tuple(names) == NAMES
    assert len(labels) == 10
    assert labels[0][1] == max(p[0])
    predict(run, real, tmp_path / "p.jsonl", floor=1e-9, threshold=0.5)
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.arange(40 * 40, dtype=np.uint16).reshape(40, 40) * 40).save(tmp_path / "deep.png")
    predict(run, [tmp_path / "deep.png"], tmp_path / "deep.csv", device="cpu")
    with open(tmp_path / "deep.csv", newline="") as file:
        (deep,) = csv.DictReader(file)
    ours = OnnxPredictor(tmp_path / "model.onnx")([tmp_path / "deep.png"])[0]
    np.testing.assert_allclose([float(deep[n]) for n in NAMES], ours, atol=2e-5)
    for line, row in zip((tmp_path / "p.jsonl").read_text().splitlines(), p, strict=True):
        found = json.loads(line)
        by_name = dict(zip(found["classes"], found["probabilities"], strict=True))
        np.testing.assert_allclose([by_name[n] for n in NAMES], row, atol=2e-5)


def test_predict_streams_shards_and_reports(run: Path, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"# some\n{pictures / 's0' / '0.png'}\n\n")
    whole = predict(run, [pictures, tmp_path / "list.txt"], tmp_path / "all.jsonl", batch_size=3)
    assert whole == {"pictures": 8, "failed": 1, "calibrated": False}
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [line["path"] for line in lines] == find_pictures([pictures, tmp_path / "list.txt"])
    (bad,) = [line for line in lines if line["error"]]
    assert "broken" in bad["path"]
    assert bad["labels"] == []
    parts = []
    for i in (1, 2, 3):
        predict(run, [pictures, tmp_path / "list.txt"], tmp_path / f"{i}.parquet", shard=(i, 3))
        parts.append(pytest.importorskip("pyarrow.parquet").read_table(tmp_path / f"{i}.parquet").to_pylist())
    together = {row["path"]: row for part in parts for row in part}
    assert sum(map(len, parts)) == 9
    for line in lines:
        np.testing.assert_allclose(together[line["path"]]["probabilities"], line["probabilities"], atol=2e-5)
        assert together[line["path"]]["labels"] == line["labels"]
    with pytest.raises(ValueError, match="shard"):
        predict(run, [pictures], tmp_path / "x.jsonl", shard=(0, 2))
    with pytest.raises(ValueError, match=r"\.parquet, \.jsonl or \.csv"):
        predict(run, [pictures], tmp_path / "x.txt")
    with pytest.raises(FileNotFoundError, match="no such picture"):
        predict(run, [tmp_path / "nothing.png"], tmp_path / "x.jsonl")
    assert not (tmp_path / "x.jsonl").exists()


def test_predict_with_names_that_are_no_text_and_with_none_that_can_be_read(
    run: Path, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    shutil.copy(pictures / "s0" / "0.png", os.fsencode(folder) + b"/caf\xe9.png")
    shutil.copy(pictures / "s0" / "0.png", folder / "fine.png")
    for suffix in ("jsonl", "parquet", "csv"):
        assert predict(run, [folder], tmp_path / f"p.{suffix}", device="cpu")["pictures"] == 2
    odd, fine = (json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines())
    assert odd["path"].endswith(r"caf\xe9.png")
    assert odd["probabilities"] == fine["probabilities"]
    shutil.copy(pictures / "s1" / "broken.png", folder / "other.png")
    with pytest.raises(
        ValueError, match=r"none of 1 could be read, such as .*other\.png: .*; .*all\.jsonl has them all"
    ):
        predict(run, [folder / "other.png"], tmp_path / "all.jsonl", device="cpu")
    assert json.loads((tmp_path / "all.jsonl").read_text())["error"]


def test_predict_writes_a_table_for_people_and_every_labels_probability(
    run: Path, pictures: Path, tmp_path: Path
) -> None:
    predict(run, [pictures], tmp_path / "p.csv", threshold=0.5, device="cpu")
    predict(run, [pictures], tmp_path / "p.jsonl", threshold=0.5, top=1, floor=0.9, device="cpu")
    with open(tmp_path / "p.csv", newline="") as file:
        table = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert len(table) == len(lines) == 8
    for row, line in zip(table, lines, strict=True):
        assert [row["path"], row["labels"]] == [line["path"], "|".join(line["labels"])]
        assert bool(row["error"]) == bool(line["error"])
        assert {*line["labels"]} <= {*line["classes"]}
        assert {n for n in NAMES if row[n] and float(row[n]) >= 0.5} == {*line["labels"]}
    assert max(len(line["labels"]) for line in lines) > 1
    for wrong in ({"threshold": 1.5}, {"floor": -1}, {"top": 0}):
        with pytest.raises(ValueError, match=r"expected (a probability|at least 1)"):
            predict(run, [pictures], tmp_path / "x.csv", **wrong)


def test_predictions_are_read_back_as_a_table(
    untrained_run: Callable[..., Path], run: Path, pictures: Path, tmp_path: Path
) -> None:
    """Whatever classes are called: a CSV, whose cells | divides, is refused before anything is scored."""
    odd = untrained_run(("cat|dog", "path", "labels", *NAMES[3:]))
    for folder, name in ((run, "p.csv"), (run, "p.jsonl"), (odd, "o.jsonl"), (odd, "o.parquet")):
        predict(folder, [pictures / "s0"], tmp_path / name, threshold=0.4, device="cpu")
        predict(folder, [pictures / "s0"], tmp_path / "told.jsonl", threshold=0.4, device="cpu")
        told = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
        (tmp_path / "told.jsonl").unlink()
        back = read_records(tmp_path / name, Report()).records
        assert [set(row) for row in back.positives] == [set(line["labels"]) for line in told]
        assert any(len(row) > 1 for row in back.positives)
    assert any("cat|dog" in row for row in back.positives)
    for names, said in (
        (("cat|dog", *NAMES[1:]), r"class 'cat\|dog' cannot stand .* divided by .*\.jsonl or \.parquet"),
        (("a", "path", *NAMES[2:]), r"class 'path' is called as a column of the CSV \(path, labels, error\)"),
    ):
        with pytest.raises(ValueError, match=said):
            predict(untrained_run(names), [pictures / "s0"], tmp_path / "x.csv", device="cpu")
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("scale", [1.0, 1e4], ids=["alike", "units of their own"])
def test_predict_scores_rows_of_features(tmp_path: Path, scale: float) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    y = (rng.random((120, 4)) < 0.4).astype(np.uint8)
    y[~y.any(1), 0] = 1
    X = (y @ rng.standard_normal((4, 6)) + rng.standard_normal((120, 6))).astype(np.float32)
    X[:, :3] *= scale
    np.savez(tmp_path / "train.npz", X=X, true=y, class_names=np.array(NAMES[:4]))
    run = train(load_dataset(tmp_path / "train.npz"), out=tmp_path / "run", epochs=2, device="cpu")
    new = X[:25].copy()
    new[3, 1] = np.nan
    np.save(tmp_path / "new.npy", new)
    np.savez(tmp_path / "new.npz", features=new)
    columns = {f"x{j}": new[:, j] for j in range(6)} | {"b": np.zeros(25, np.int8)}  # of a class, so no feature
    parquet.write_table(pa.table(columns), tmp_path / "new.parquet")
    cells = ["?" if np.isnan(v) else repr(float(v)) for v in new.ravel()]
    body = "\n".join(",".join([*cells[6 * i : 6 * i + 6], "?"]) for i in range(25))
    names = "\n".join(f"@attribute x{j} numeric" for j in range(6))
    (tmp_path / "new.arff").write_text(f"@relation new\n{names}\n@attribute a {{0,1}}\n@data\n{body}\n")
    with torch.inference_mode():
        expected = torch.sigmoid(run.classifier.cpu()(torch.from_numpy(new))).numpy()
    for suffix in ("npy", "npz", "parquet", "arff"):
        file, out = tmp_path / f"new.{suffix}", tmp_path / f"{suffix}.jsonl"
        told = predict(run, [file], out, raw=True, floor=0, batch_size=7, device="cpu")
        assert told == {"pictures": 24, "failed": 1, "calibrated": False}
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert [line["path"] for line in lines] == [f"{file}:{i}" for i in range(25)]
        assert lines.pop(3)["error"] == "a feature is not finite"
        p = [[dict(zip(line["classes"], line["probabilities"], strict=True))[n] for n in NAMES[:4]] for line in lines]
        np.testing.assert_allclose(p, np.delete(expected, 3, 0), atol=2e-6)
    both = [tmp_path / "new.npy", tmp_path / "new.npz"]
    parts = []
    for i in (1, 2, 3):
        predict(run, both, tmp_path / f"{i}.jsonl", shard=(i, 3), device="cpu")
        parts += [json.loads(line)["path"] for line in (tmp_path / f"{i}.jsonl").read_text().splitlines()]
    assert sorted(parts) == sorted(f"{file}:{i}" for file in both for i in range(25))
    np.save(tmp_path / "narrow.npy", new[:, :5])
    with pytest.raises(DataError, match="5 features a row, expected 6 as in training"):
        predict(run, [tmp_path / "narrow.npy"], tmp_path / "x.jsonl")
    with pytest.raises(DataError, match=r"expected \.npy, \.npz, \.parquet, \.arff"):
        predict(run, [tmp_path / "photo.jpg"], tmp_path / "x.jsonl")
    with pytest.raises(FileNotFoundError, match="no such file"):
        predict(run, [tmp_path / "gone.npy"], tmp_path / "x.jsonl")
    assert not (tmp_path / "x.jsonl").exists()


def _invoke(app: Any, *words: str) -> str:
    runner = pytest.importorskip("typer.testing").CliRunner()
    result = runner.invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return str(result.output)


def test_predict_without_pictures(run: Path, tmp_path: Path) -> None:
    """A folder of none is a mistake, not an empty result that stands in the way of the next try."""
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "notes.txt").write_text("nothing here")
    with pytest.raises(FileNotFoundError, match=r"none: no pictures there \(.*\.jpg"):
        predict(run, [tmp_path / "none"], tmp_path / "p.jsonl")
    assert not (tmp_path / "p.jsonl").exists()


def test_commands(run: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onelabel.cli import audit, export
    from onelabel.cli import predict as predicting
    from onelabel.cli import recover as recovering

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.random((300, 4)) < 0.3
    y[~y.any(1), 0] = True
    X = (y @ rng.standard_normal((4, 8)) + 0.5 * rng.standard_normal((300, 8))).astype(np.float32)
    observed = np.zeros((300, 4), np.int8)
    for i, row in enumerate(y):
        observed[i, rng.choice(np.flatnonzero(row))] = 1
    np.savez(tmp_path / "features.npz", X=X, observed=observed)
    words = ["features.npz", "--folds", "3", "--labels", "l.npz", "--errors", "3", "--export", "csv=c.csv"]
    for pair, said in (("coc=x.json", "did you mean 'coco'"), ("yolo=y", "features.npz names no picture files")):
        with pytest.raises(ValueError, match=said):  # before anything is computed
            _invoke(recovering.app, *words[:-1], pair)
        assert not (tmp_path / "recovered.parquet").exists()
    told = _invoke(recovering.app, *words, "--duplicates", "0.9999")
    assert "positives a picture" in told
    assert (tmp_path / "recovered.parquet").is_file()
    assert (tmp_path / "c.csv").is_file()
    assert (tmp_path / "l.npz").is_file()
    assert "pictures in" in _invoke(audit.app, "plan", "recovered.parquet", "--rows", "60")
    from onelabel.recovery.audit import Plan

    plan = Plan.load(tmp_path / "audit.parquet")
    lines = [f"{r},{'|'.join(str(c) for c in np.flatnonzero(y[r]))}" for r in plan.rows]
    (tmp_path / "answers.csv").write_text("\n".join(["row,labels", *lines]) + "\n")
    words = ["estimate", "recovered.parquet", "audit.parquet", "answers.csv", "--out", "e.json", "--labels", "m.npz"]
    assert "recall" in _invoke(audit.app, *words)
    assert json.loads((tmp_path / "e.json").read_text())["rows"] == 60
    told = _invoke(
        recovering.app, "features.npz", "--folds", "3", "--audit", "audit.parquet", "--answers", "answers.csv",
        "--out", "audited.parquet",
    )  # fmt: skip
    assert json.loads((tmp_path / "audited.json").read_text())["audited_rows"] == 60
    _invoke(export.app, "recovered.parquet", "--to", "parquet", "--out", "all.parquet")
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet: no recovered labels there; `onelabel recover DATA"):
        _invoke(export.app, "gone.parquet", "--to", "csv", "--out", "x.csv")
    _invoke(export.app, str(run), "--to", "safetensors", "--out", "w.safetensors", "--pictures", str(pictures / "s0"))
    _invoke(predicting.app, str(run), str(pictures), "--out", "p.jsonl", "--shard", "1/2")
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 4
