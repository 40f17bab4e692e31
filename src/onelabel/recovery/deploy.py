"""`export_run`: a run's classifier as ONNX, TorchScript, safetensors or a Hugging Face folder, checked on inputs."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onelabel.losses.calibrate import Calibration
from onelabel.system import atomic_write, need, refuse_existing
from onelabel.training import Run
from onelabel.training.carried import Probabilities, calibration_of
from onelabel.training.restore import classifier_from, weights_metadata

FORMATS = ("onnx", "torchscript", "safetensors", "hf")
#: The largest difference of a probability that an export may show.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Exported:
    """What was written, and the largest difference to the run's probabilities on how many inputs."""

    path: Path
    difference: float
    inputs: int
    real: bool
    calibrated: bool = False


def export_run(
    run: Run | str | os.PathLike[str], to: str, out: str | os.PathLike[str], *, samples: Any = None, raw: bool = False
) -> Exported:
    """Write a run's best classifier in another format and compare it with the run.

    Args:
        to: "onnx" and "torchscript" give probabilities of uint8 pictures B×S×S×3 (float features B×D where the run
            was on features); "safetensors" is the weights and a config.json; "hf" a folder with a model card.
        samples: pictures (paths or uint8 arrays) or features to compare on; eight random ones where none are given.
        raw: leave the run's calibration out, where it has one.

    Raises:
        RuntimeError: the export differs by more than `TOLERANCE`; nothing is left behind.
    """
    to = to.removesuffix("+config")
    if to not in FORMATS:
        remedy = "labels are exported from what recover wrote, a recovered.parquet"
        raise ValueError(f"to must be one of {', '.join(FORMATS)} for a run, got {to!r}; {remedy}")
    found = run if isinstance(run, Run) else Run.load(Path(run))
    target = Path(out)
    if target.exists():
        raise FileExistsError(f"{target} exists; nothing is overwritten: give another path")
    if to == "safetensors" and target.suffix != ".safetensors":
        raise ValueError(f"out must end in .safetensors, got {str(target)!r}")
    if to == "safetensors":
        refuse_existing(target.with_suffix(".json"))
    target.parent.mkdir(parents=True, exist_ok=True)
    inputs, real = _inputs(found, samples)
    calibration = None if raw else calibration_of(found)
    model = Probabilities(found.classifier.cpu().eval(), calibration)
    described = about(found, calibration)
    with torch.inference_mode():
        expected = model(inputs).numpy()
    with _beside(target) as temporary:
        answer = {"onnx": _onnx, "torchscript": _torchscript, "safetensors": _safetensors, "hf": _hf}[to](
            found, model, described, inputs, temporary
        )
        difference = float(np.abs(answer - expected).max()) if expected.size else 0.0
        if not difference <= TOLERANCE:
            raise RuntimeError(f"{to}: probabilities differ by {difference:.2g} from the run's; nothing was written")
        os.replace(temporary, target)
        if to == "safetensors":
            atomic_write(target.with_suffix(".json"), json.dumps(described, indent=1, ensure_ascii=False) + "\n")
    return Exported(target, difference, len(inputs), real, calibration is not None)


def about(run: Run, calibration: Calibration | None = None) -> dict[str, Any]:
    """What whoever uses an export must know; `calibration` turns logits into probabilities (`Calibration.said`)."""
    described = json.loads(weights_metadata(run.classifier, run.config, run.class_names)["onelabel"])
    size = None if described["backbone"] == "none" else described["size"]
    kind = "probabilities" if calibration is None else "calibrated probabilities"
    known = {**described, "size": size, "class_names": list(run.class_names), "output": kind}
    if calibration is None:
        return known
    numbers = {n: getattr(calibration, n).tolist() for n in ("slope", "knots", "intercept")}
    return known | {"calibration": {**numbers, "some": calibration.some}}


def calibration_in(described: dict[str, Any]) -> Calibration | None:
    """The calibration that an export's description holds."""
    found = described.get("calibration")
    if found is None:
        return None
    slope, knots, intercept = (np.array(found[n], np.float64) for n in ("slope", "knots", "intercept"))
    return Calibration(slope, knots, intercept, math.nan, some=bool(found.get("some", False)))


def _inputs(run: Run, samples: Any) -> tuple[Tensor, bool]:
    size = run.config.size
    if samples is None or not len(samples):
        rng = torch.Generator().manual_seed(0)
        if not run.classifier.takes_pictures:
            width = int(about(run)["features"])
            return torch.randn(8, width, generator=rng), False
        return torch.randint(0, 256, (8, size, size, 3), dtype=torch.uint8, generator=rng), False
    if not run.classifier.takes_pictures:
        return torch.as_tensor(np.asarray(samples, np.float32)), True
    from onelabel.data import square_image

    raw = [square_image(str(s) if isinstance(s, os.PathLike) else s, size) for s in samples]
    return torch.from_numpy(np.stack(raw)), True


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield folder / target.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _onnx(run: Run, model: nn.Module, described: dict[str, Any], inputs: Tensor, path: Path) -> Any:
    onnx = need("onnx", "export")
    need("onnxscript", "export")
    need("onnxruntime", "export")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    batch = torch.export.Dim("batch", min=1)
    two = inputs[:2] if len(inputs) > 1 else inputs.expand(2, *inputs.shape[1:]).clone()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model,
            (two,),
            dynamo=True,
            input_names=["inputs"],
            output_names=["probabilities"],
            dynamic_shapes=({0: batch},),
            verbose=False,
        )
    assert program is not None
    program.save(str(path), external_data=False)
    made = onnx.load(str(path))
    entry = made.metadata_props.add()
    entry.key, entry.value = "onelabel", json.dumps(described, ensure_ascii=False)
    onnx.checker.check_model(made)
    onnx.save(made, str(path))
    from onelabel.recovery.onnx_predictor import OnnxPredictor

    predictor = OnnxPredictor(path, providers=["CPUExecutionProvider"])
    return predictor(inputs.numpy() if predictor.size is None else list(inputs.numpy()))


def _torchscript(run: Run, model: nn.Module, described: dict[str, Any], inputs: Tensor, path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model, inputs[:2], check_trace=False)
        torch.jit.save(traced, str(path), _extra_files={"onelabel.json": json.dumps(described)})
        again = torch.jit.load(str(path))
    with torch.inference_mode():
        return again(inputs).numpy()


def _safetensors(run: Run, model: nn.Module, described: dict[str, Any], inputs: Tensor, path: Path) -> Any:
    from onelabel.training.files import write_tensors

    metadata = weights_metadata(run.classifier, run.config, run.class_names)
    write_tensors(path, run.classifier.state_dict(), metadata)
    with torch.inference_mode():
        return Probabilities(classifier_from(path)[0], calibration_in(described))(inputs).numpy()


def _hf(run: Run, model: nn.Module, described: dict[str, Any], inputs: Tensor, path: Path) -> Any:
    path.mkdir()
    names = {str(i): name for i, name in enumerate(run.class_names)}
    config = {**described, "id2label": names, "label2id": {v: int(k) for k, v in names.items()}}
    config |= {"problem_type": "multi_label_classification", "library_name": "onelabel"}
    atomic_write(path / "config.json", json.dumps(config, indent=1, ensure_ascii=False) + "\n")
    if described["size"] is not None:
        look = {"do_resize": True, "size": {"height": described["size"], "width": described["size"]}, "resample": 2}
        look |= {"do_normalize": True, "image_mean": described["mean"], "image_std": described["std"]}
        atomic_write(path / "preprocessor_config.json", json.dumps(look, indent=1) + "\n")
    atomic_write(path / "README.md", _card(run, described))
    return _safetensors(run, model, described, inputs, path / "model.safetensors")


def _card(run: Run, described: dict[str, Any]) -> str:
    score = {k: v for k, v in run.result.items() if k.endswith("_mAP")}
    told = "\n".join(f"- {k}: {v:.2f}" for k, v in score.items()) or "- not measured"
    how = "Sigmoid outputs are scores, not calibrated probabilities: see `onelabel recover`."
    if "calibration" in described:
        how = (
            "Probability of class l: σ(slope₀·s + Σ slope_j·max(s − knot_j, 0) + intercept_l), s the logit cut at ±30; "
        )
        if described["calibration"]["some"]:
            how += "divided by 1 − Π(1 − p_l), for the pictures hold one of the classes at least; "
        how += "the numbers are in config.json under calibration."
    return f"""---
library_name: onelabel
tags: [multi-label, image-classification, single-positive]
---
# {described["backbone"]} trained from single positive labels ({run.config.method})

{len(run.class_names)} classes. {how}

{told}

```python
from onelabel.training.restore import classifier_from
classifier, class_names = classifier_from("model.safetensors")   # uint8 pictures B×S×S×3 → logits
```
"""
