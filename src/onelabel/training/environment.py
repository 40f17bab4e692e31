"""Where a run happened, and who else is told about it."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from onelabel.system import say
from onelabel.training.config import TrainConfig

PACKAGES = ("onelabel", "torch", "torchvision", "timm", "lightning", "numpy", "safetensors")


def describe(fabric: Any) -> dict[str, Any]:
    """Versions, hardware, command and commit."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    device = fabric.device
    return {
        "schema_version": 1,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "versions": versions,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cuda": torch.version.cuda,
        "cpus": os.cpu_count(),
        "processes": fabric.world_size,
        "command": sys.argv,
        "commit": os.environ.get("ONELABEL_COMMIT") or _commit(),  # told where a copy without its history runs
    }


def _commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def make_logger(config: TrainConfig, folder: Path) -> Any:
    """TensorBoard where it is installed ("auto"), or the logger that was asked for."""
    if config.logger == "none":
        return None
    try:
        if config.logger in ("auto", "tensorboard"):
            importlib.import_module("tensorboard")  # Fabric's logger would only fail later
            from lightning.fabric.loggers.tensorboard import TensorBoardLogger

            return TensorBoardLogger(root_dir=folder, name="tensorboard", version="")
        from lightning.pytorch import loggers

        if config.logger == "wandb":
            return loggers.WandbLogger(project="onelabel", save_dir=str(folder), name=folder.name)
        return loggers.MLFlowLogger(experiment_name="onelabel", run_name=folder.name)
    except ImportError as error:
        if config.logger == "auto":
            return None
        raise ImportError(f"logger: {config.logger!r} is not installed ({error})") from error
    except OSError as error:
        say(f"no logger ({error})")
        return None
