"""Readers at the edges: other libraries' files, lists, downloads that were cut, results, and labels to train on."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_readers import load, picture, reader
from fuzz_runs import _recovered, _run, splits


def _hf(folder: Path) -> None:
    import datasets

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"]), "n": datasets.Value("int32")}
    )
    rows = [{"image": {"bytes": picture(i), "path": None}, "label": i % 2, "n": i} for i in range(6)]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(str(folder / "hf"))


@reader("hf", "hf/*.json", "hf/*.arrow", make=_hf)
def _(folder: Path) -> None:
    load(folder / "hf", kind="hf")


def _onnx(folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    node = helper.make_node("Sigmoid", ["x"], ["y"])
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=["n", 3])
    graph = helper.make_graph([node], "g", [value("x")], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    about = {"class_names": ["a", "b", "c"], "size": None, "output": "probabilities"}
    helper.set_model_props(model, {"onelabel": json.dumps(about)})
    onnx.save(model, str(folder / "m.onnx"))


@reader("onnx", "m.onnx", make=_onnx)
def _(folder: Path) -> None:
    from onelabel.recovery.onnx_predictor import OnnxPredictor

    OnnxPredictor(folder / "m.onnx", providers=["CPUExecutionProvider"], threads=1)(np.zeros((2, 3), np.float32))


def _list(folder: Path) -> None:
    (folder / "a.jpg").write_bytes(picture())
    (folder / "list.txt").write_text("# pictures\na.jpg\nhttp://127.0.0.1:9/x.jpg\n")


@reader("list of pictures", "list.txt", make=_list)
def _(folder: Path) -> None:
    from onelabel.recovery.prediction import find_pictures

    assert all(isinstance(path, str) for path in find_pictures([folder / "list.txt"]))


class _Server(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _part(folder: Path) -> None:
    (folder / "served").mkdir()
    (folder / "served" / "f.bin").write_bytes(bytes(range(256)))
    (folder / "f.bin.part").write_bytes(bytes(range(100)))
    (folder / "f.bin.part.json").write_text(json.dumps({"url": "x", "version": "v", "bytes": 256}))


@reader("download under way", "f.bin.part*", make=_part)
def _(folder: Path) -> None:
    from onelabel.data.download import download

    handler = functools.partial(_Server, directory=str(folder / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            got = download(f"http://127.0.0.1:{server.server_port}/f.bin", folder / "f.bin", retries=1, wait=0)
            assert got.read_bytes() == bytes(range(256))
        finally:
            server.shutdown()


def _relabel(folder: Path) -> None:
    _recovered(folder)
    train = splits().train
    train.observed.save(folder / "labels.parquet")


@reader("labels to train on", "answers.parquet", "labels.parquet", make=_relabel)
def _(folder: Path) -> None:
    from onelabel.review.apply import relabelled

    for file in ("answers.parquet", "labels.parquet"):
        relabelled(splits(), folder / file)


REPORTED = ("run/config.toml", "run/result.json", "run/metrics.jsonl", "run/weights-best.safetensors")


@reader("report of a run", *REPORTED, make=_run)
def _(folder: Path) -> None:
    from onelabel.report.runs import read_run

    read_run(folder / "run")


def _results(folder: Path) -> None:
    from onelabel.bench.results import Row, write

    write(folder, Row(run_id="r1", dataset="d", method="em", hyper={"alpha": 0.2}, test_map=80.0, test_ap=[0.5]))


@reader("bench results", "r1.parquet", make=_results)
def _(folder: Path) -> None:
    """A file that cannot be read is reported, never fatal."""
    from onelabel.bench.results import find

    found = find(folder)
    assert len(found.rows) + len(found.unreadable) <= 1
    assert not any("\n" in reason for reason in found.unreadable.values())


def _calibrated(folder: Path) -> None:
    from onelabel.labels import drop_labels
    from onelabel.losses.calibrate import fit_calibration
    from onelabel.losses.sample import draw_sample
    from onelabel.recovery.folds import ArrayScores
    from onelabel.system import atomic_write
    from onelabel.training.carried import FILE, Carried

    rng = np.random.default_rng(0)
    scores = rng.standard_normal((80, 3)).astype(np.float32)
    y = (scores + rng.standard_normal(scores.shape) > 0.5).astype(np.uint8)
    y[np.arange(80), scores.argmax(1)] = 1
    made = fit_calibration(draw_sample(ArrayScores(scores), drop_labels(y, seed=0)))
    carried = Carried(made, ("a", "b", "ç"), 80, "0" * 64)
    atomic_write(folder / FILE, json.dumps(carried.to_json()))


@reader("run's calibration", "calibration.json", make=_calibrated)
def _(folder: Path) -> None:
    from onelabel.training.carried import FILE, Carried

    Carried.load(folder / FILE)
