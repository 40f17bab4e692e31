"""The machine: Lightning Fabric for devices, precision and several processes; seeds; saying things aloud."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelabel.training.config import TrainConfig

#: Pixels of a side from which convolutions are most of a CPU's work.
LARGE = 128


class TrainingError(RuntimeError):
    """Training cannot go on; the message is one line and says what to do."""


def make_fabric(config: TrainConfig, loggers: list[Any] | None = None) -> Any:
    """A launched `Fabric`. Under `torchrun` the number of processes is torchrun's."""
    fabric_class = _fabric_class()
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device: {device!r}, but PyTorch sees no CUDA device; give device='cpu'")
    kind, _, number = device.partition(":")
    torchrun = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    devices: Any = config.devices
    if torchrun:
        devices = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    elif number:
        devices = [int(number)]
    nodes = max(1, int(os.environ["WORLD_SIZE"]) // devices) if torchrun else config.nodes
    several = torchrun or config.devices * config.nodes > 1
    precision = config.precision
    if precision == "auto":
        precision = "bf16-mixed" if _half_pays(kind, config) else "32-true"
    strategy: Any = "ddp" if config.strategy == "auto" and several else config.strategy
    if strategy == "fsdp":
        from onelabel.training.sharding import strategy as split

        if not several:
            raise ValueError("strategy: 'fsdp' splits weights across processes, got one process; use torchrun")
        if config.mode != "finetune" or config.ema:
            raise ValueError("strategy: 'fsdp' works with mode='finetune' and without ema")
        strategy = split(int(os.environ["WORLD_SIZE"]) if torchrun else config.devices * config.nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fabric = fabric_class(
            accelerator=kind,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            precision=precision,
            loggers=loggers or [],
        )
        if several:
            fabric.launch()
    if kind == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    return fabric


def _half_pays(kind: str, config: TrainConfig) -> bool:
    """Whether bfloat16 is the faster: on a GPU that has it, and on a CPU that multiplies in it, for large pictures.

    ResNet-50 trains 2.1 times as fast on two such cores at 224 px, 2.7 times at 448 (docs/training.md). Small networks
    gain nothing, and kept features are float32 whatever this says.
    """
    if kind == "cuda":
        return torch.cuda.is_bf16_supported()
    able: Any = getattr(torch.cpu, "get_capabilities", dict)()  # torch below 2.11 cannot say: float32
    return kind == "cpu" and config.size >= LARGE and bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def _fabric_class() -> Any:
    for module in ("lightning.fabric", "lightning_fabric"):  # the latter is what pytorch-lightning brings along
        with contextlib.suppress(ImportError):
            return importlib.import_module(module).Fabric
    raise ImportError("lightning is not installed: pip install 'onelabel[vision]'")


def seed_everything(seed: int) -> None:
    """Python, NumPy and torch (all devices). The same on every process: a method's draws must agree."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def rng_state(device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of every random generator: tensors, and what fits JSON."""
    tensors = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    name, keys, position, gauss, cached = np.random.get_state(legacy=True)
    tensors["numpy"] = torch.from_numpy(np.asarray(keys, np.uint32).view(np.int32).copy())
    python = random.getstate()
    numbers = {"numpy": [str(name), int(position), int(gauss), float(cached)], "python": [python[0], list(python[1])]}
    return tensors, {**numbers, "python_gauss": python[2]}


def set_rng_state(tensors: dict[str, Tensor], numbers: dict[str, Any], device: torch.device) -> None:
    """What `rng_state` gave."""
    torch.set_rng_state(tensors["torch"])
    if device.type == "cuda" and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"], device)
    name, position, gauss, cached = numbers["numpy"]
    keys = tensors["numpy"].numpy().view(np.uint32)
    np.random.set_state((name, keys, position, gauss, cached))
    random.setstate((numbers["python"][0], tuple(numbers["python"][1]), numbers["python_gauss"]))


def gather_rows(local: Tensor, fabric: Any, rows: int) -> Tensor:
    """All processes' rows, in order of rank, cut to `rows`; gradients flow to this process's own rows.

    Each process then holds the loss of the whole batch but the gradient of its own rows; the caller multiplies the
    loss by the number of processes, so that DDP's mean of gradients is the gradient one process would have had.
    """
    if fabric.world_size == 1:
        return local
    parts = all_parts(local, fabric)
    parts[fabric.global_rank] = local
    return torch.cat(parts)[:rows]


def all_parts(local: Tensor, fabric: Any) -> list[Tensor]:
    """Every process's tensor of this shape, in order of rank, without gradients."""
    own = local.detach().contiguous()
    parts = [torch.empty_like(own) for _ in range(fabric.world_size)]
    torch.distributed.all_gather(parts, own)
    return parts
