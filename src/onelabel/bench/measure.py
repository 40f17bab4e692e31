"""From scores and runs to the numbers of a row; and where they were made."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import time
import traceback
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onelabel.metrics import average_precision, f1_score, mean_average_precision

#: EM's supplement takes F1 at .5 for BCE and AN and at .75 for EM, whose scores of absent classes lie near .5.
F1_THRESHOLDS = {"em": 0.75, "em-apl": 0.75}
PACKAGES = ("onelabel", "torch", "torchvision", "timm", "lightning", "numpy", "pyarrow")


def of_test(method: str, probabilities: Any, true: Any) -> dict[str, Any]:
    """Per-class AP (fractions) and F1 (percent) of test probabilities."""
    scores, truth = _tensors(probabilities, true)
    threshold = F1_THRESHOLDS.get(method, 0.5)
    each = torch.as_tensor(average_precision(scores, truth))
    return {
        "test_ap": tuple(float(x) for x in each.tolist()),
        "micro_f1": 100 * float(f1_score(scores, truth, threshold=threshold, average="micro")),
        "macro_f1": 100 * float(f1_score(scores, truth, threshold=threshold, average="macro")),
        "f1_threshold": threshold,
    }


def percent_map(scores: Any, true: Any) -> float:
    """mAP in percent, a class without positives counting 0 as published."""
    return 100 * float(mean_average_precision(*_tensors(scores, true)))


def _tensors(scores: Any, true: Any) -> tuple[torch.Tensor, torch.Tensor]:
    found = scores if isinstance(scores, torch.Tensor) else torch.as_tensor(np.asarray(scores))
    return found, (true if isinstance(true, torch.Tensor) else torch.as_tensor(np.asarray(true))).to(found.device)


def of_run(run: Any, splits: Any) -> dict[str, Any]:
    """The numbers of a finished training."""
    result = run.result
    plain, averaged = result.get("plain", {}), result.get("ema", {})
    numbers: dict[str, Any] = {
        "best_epoch": plain.get("best_epoch", result.get("best_epoch")),
        "best_epoch_averaged": averaged.get("best_epoch"),
        "stopped_early": bool(result.get("stopped_early", False)),
        "validation_map": plain.get("validation_mAP", result.get("validation_mAP")),
        "validation_map_averaged": averaged.get("validation_mAP"),
        "test_map": plain.get("test_mAP", result.get("test_mAP")),
        "test_map_flip": plain.get("test_mAP_flip"),
        "test_map_averaged": averaged.get("test_mAP"),
        "test_map_averaged_flip": averaged.get("test_mAP_flip"),
        "history": list(run.history),
        "extra": {"images_per_second": result.get("images_per_second", [])},
    }
    if "test" in run.scores and splits.test is not None and splits.test.true is not None:
        flips = ", flips" if "test_mAP_flip" in (averaged or plain) else ""
        numbers |= of_test(run.config.method, run.scores["test"], splits.test.true)
        numbers["test_ap_of"] = ("averaged" if averaged else "plain") + flips
    if "train" in run.scores and splits.train.true is not None:
        numbers["train_map"] = percent_map(run.scores["train"], splits.train.true)
    if (pseudo := pseudo_labels(run.method_state, splits.train)) is not None:
        numbers["extra"]["pseudo_labels"] = pseudo
    return numbers


def pseudo_labels(state: Mapping[str, Any], train: Any) -> dict[str, float] | None:
    """How many entries APL labelled by the best epoch, and the share of them that are truly positive, in percent."""
    targets = state.get("targets")
    if targets is None or train.true is None:
        return None
    labelled = (targets.detach().cpu().numpy() >= 0) & (train.observed.to_dense() == 0)
    count = int(labelled.sum())
    return {"count": count, "positive": 100 * float(train.true[labelled].mean()) if count else float("nan")}


@cache
def place(device: str = "cpu") -> dict[str, Any]:
    """Commit, hardware, versions and command, for every row alike."""
    versions: dict[str, str] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    versions.setdefault("torch", torch.__version__)
    return {
        "commit": os.environ.get("ONELABEL_COMMIT") or _commit(),
        "hardware": hardware(device),
        "versions": versions,
        "command": " ".join(sys.argv)[:2000],
    }


def hardware(device: str = "cpu") -> str:
    """The accelerator's name, or the processor's with its cores."""
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(torch.device(device)))
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{os.cpu_count()} CPU cores ({name})"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _commit() -> str:
    """The checkout's commit, with a + where tracked files differ from it; empty outside a checkout."""
    where = Path(__file__).parents[1]
    try:
        head = _git(where, "rev-parse", "HEAD")
        return head + ("+" if _git(where, "status", "--porcelain", "--untracked-files=no", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def place_of(error: BaseException) -> str:
    """Where an error was raised, of code that is neither ours nor installed: of a method of one's own."""
    installed = (Path(__file__).parents[1], Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib")))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and not any(place in path.parents for place in installed):
            return f" ({path.name}:{frame.lineno})"
    return ""
