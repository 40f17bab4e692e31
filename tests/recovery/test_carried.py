"""A run's calibration: learnt from single positives of held-out rows, applied by predict and every export."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from onelabel.labels import Labels, drop_labels
from onelabel.losses.calibrate import Calibration
from onelabel.metrics import calibration_error
from onelabel.recovery import export_run, predict
from onelabel.recovery.command import _carry
from onelabel.recovery.inputs import Held, Inputs
from onelabel.training import Run
from onelabel.training.carried import FILE, Carried, Probabilities, calibrate_run, calibration_of, digest

NAMES = tuple("abcde")
SLOPE, KNOTS, INTERCEPT = np.array([1.5, -0.7]), np.array([0.2]), np.linspace(-2, 1, 5)


@pytest.fixture(scope="module", params=[False, True], ids=["any picture", "one class at least"])
def run(request: pytest.FixtureRequest, untrained_run: Callable[..., Path]) -> Path:
    folder = untrained_run(NAMES)
    made = Carried(Calibration(SLOPE, KNOTS, INTERCEPT, 1.5, some=request.param), NAMES, 500, digest(folder))
    (folder / FILE).write_text(json.dumps(made.to_json()))
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    image = pytest.importorskip("PIL.Image")
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for i in range(4):
        image.fromarray(rng.integers(256, size=(32, 32, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return [str(folder / f"{i}.png") for i in range(4)]


def said(path: Path) -> np.ndarray:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return np.array([[dict(zip(x["classes"], x["probabilities"], strict=True))[n] for n in NAMES] for x in lines])


def test_predict_applies_it_and_raw_does_not(run: Path, pictures: list[str], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"floor": 1e-9, "threshold": 0.5}
    assert predict(run, pictures, tmp_path / "raw.jsonl", raw=True, **settings)["calibrated"] is False
    assert predict(run, pictures, tmp_path / "p.jsonl", **settings)["calibrated"] is True
    sigmoid, found = said(tmp_path / "raw.jsonl"), said(tmp_path / "p.jsonl")
    s = np.log(sigmoid / (1 - sigmoid))
    z = SLOPE[0] * s + SLOPE[1] * np.maximum(s - KNOTS[0], 0) + INTERCEPT
    p = 1 / (1 + np.exp(-z))
    if json.loads((run / FILE).read_text())["some"]:
        p = p / (1 - (1 - p).prod(1, keepdims=True))
    np.testing.assert_allclose(found, p, atol=2e-5)


def test_what_is_said_of_the_least_likely_pictures_is_exact() -> None:
    """Where all of a picture's probabilities are small the division is of small by small, in float32 too."""
    for some in (False, True):
        calibration = Calibration(np.array([1.0]), np.array([]), np.zeros(5), 1.5, some=some)
        logits = torch.tensor([[-25.0, -24, -29, -26, -25], [3, -2, 0, 1, 2], [29, -3, -3, -3, -3], [-29] * 5])
        found = Probabilities(torch.nn.Identity(), calibration)(logits)
        z = logits.double()
        there = -torch.expm1(-torch.nn.functional.softplus(z).sum(1, keepdim=True)) if some else 1.0
        torch.testing.assert_close(found.double(), torch.sigmoid(z) / there, rtol=1e-5, atol=0)
        torch.testing.assert_close(found[1:3].double(), calibration.said(z[1:3]), rtol=1e-5, atol=1e-7)
        assert (found.sum(1) > 1 - 1e-5).all() == some


@pytest.mark.parametrize("to", ["safetensors", "torchscript", "hf", "onnx"])
def test_exports_carry_it(run: Path, pictures: list[str], tmp_path: Path, to: str) -> None:
    if to == "onnx":
        for module in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(module)
    out = tmp_path / ("m.safetensors" if to == "safetensors" else "m.onnx" if to == "onnx" else "m")
    made = export_run(run, to, out, samples=pictures)
    assert made.calibrated
    assert made.difference <= 1e-5
    if to == "safetensors":
        assert not export_run(run, to, tmp_path / "raw.safetensors", samples=pictures, raw=True).calibrated
    if to == "onnx":
        from onelabel.recovery import OnnxPredictor

        predict(run, pictures, tmp_path / "p.jsonl", floor=1e-9)
        np.testing.assert_allclose(OnnxPredictor(out)(pictures), said(tmp_path / "p.jsonl"), atol=2e-5)
    if to in ("safetensors", "hf"):
        config = json.loads((tmp_path / "m.json" if to == "safetensors" else out / "config.json").read_text())
        assert config["calibration"]["intercept"] == pytest.approx(INTERCEPT.tolist())
        assert config["calibration"]["some"] == json.loads((run / FILE).read_text())["some"]


def test_of_other_weights_or_damaged(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    assert calibration_of(Run.load(copy)) is not None
    about = json.loads((copy / FILE).read_text())
    (copy / FILE).write_text(json.dumps(about | {"weights": "0" * 64}))
    assert calibration_of(Run.load(copy)) is None
    assert "other weights" in capsys.readouterr().err
    for broken in ("{", json.dumps(about | {"intercept": [0.0]}), json.dumps(about | {"schema_version": 99})):
        (copy / FILE).write_text(broken)
        with pytest.raises(ValueError, match=r"calibration\.json"):
            calibration_of(Run.load(copy))


def test_learnt_from_single_positives(run: Path, tmp_path: Path) -> None:
    """Sigmoids of a distorted scale come out calibrated on other rows, those without any positive included."""
    rng = np.random.default_rng(0)
    z = 2 * rng.standard_normal((16_000, 5)) - np.linspace(1, 3, 5)
    y = rng.random(z.shape) < 1 / (1 + np.exp(-z))
    sigmoid = 1 / (1 + np.exp(-(0.5 * z + 1.5)))
    keep = np.flatnonzero(y[:8000].any(1))[:3000]
    held, labels = sigmoid[keep], drop_labels(y[keep].astype(np.uint8), seed=0)
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    stub: Any = SimpleNamespace(path=copy, class_names=NAMES)
    lines: list[str] = []
    inputs = Inputs(None, labels, None, "", run=stub, held=Held(held, labels))
    before = (copy / FILE).read_bytes()
    _carry(inputs, None, lines.append)  # training left one, and nothing better is known
    assert (lines, (copy / FILE).read_bytes()) == ([], before)
    _carry(inputs, 2.5, lines.append)  # an audit's, or the user's
    assert "3,000 rows the run did not train on, at k = 2.50" in lines.pop()
    assert json.loads((copy / FILE).read_text())["k"] == 2.5
    for lost in ("{", before.decode().replace(json.loads(before)["weights"], "0" * 64)):
        (copy / FILE).write_text(lost)  # damaged, or of other weights: as if it were not there
        _carry(inputs, None, lines.append)
        assert "3,000 rows" in lines.pop()
    fitted = calibration_of(stub)
    assert fitted is not None
    new = sigmoid[8000:]
    found = fitted.raw(np.log(new / (1 - new))).numpy()
    assert calibration_error(found, y[8000:]) < 0.03 < 0.15 < calibration_error(new, y[8000:])
    few = Labels.from_matrix(labels.to_dense()[:50])
    assert calibrate_run(stub, held[:50], few) is None
    # all labels of rows, where they are known, say more than one each
    all_of = calibrate_run(stub, sigmoid[:3000], Labels.from_true(y[:3000].astype(np.uint8)), true=y[:3000])
    assert all_of is not None
    assert all_of.rows == 3000
    assert calibration_error(all_of.calibration.raw(np.log(new / (1 - new))).numpy(), y[8000:]) < 0.015
    (copy / FILE).unlink()
    for scores, true in ((held, np.zeros_like(y[keep])), (np.full_like(held, np.nan), y[keep])):
        assert calibrate_run(stub, scores, labels, true=true) is None
    assert not (copy / FILE).exists()
    _carry(Inputs(None, labels, None, "", run=stub), None, lines.append)
    assert "uncalibrated" in lines[-1]
