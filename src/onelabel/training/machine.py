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
    room = _fabric_room()
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
    how: dict[str, Any] = {"precision": precision}
    if precision == "bf16-mixed" and isinstance(strategy, str):
        how = {"plugins": _mixed(room, kind)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fabric = room.Fabric(
            accelerator=kind, devices=devices, num_nodes=nodes, strategy=strategy, loggers=loggers or [], **how
        )
        if several:
            fabric.launch()
    if kind == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    return fabric


def precision_of(fabric: Any) -> Any:
    """What `precision` came to, in the words of a config."""
    return str(fabric.strategy.precision.precision)


def has_half(kind: str) -> bool:
    """Whether this machine multiplies in bfloat16; torch below 2.11 cannot say it of a CPU."""
    if kind == "cuda":
        return torch.cuda.is_bf16_supported()
    able: Any = getattr(torch.cpu, "get_capabilities", dict)()
    return kind == "cpu" and bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def _half_pays(kind: str, config: TrainConfig) -> bool:
    """Whether a network is trained in bfloat16 by itself: where the machine has it, on a CPU for large pictures alone.

    ResNet-50 trains 2.1 times as fast on two such cores at 224 px, 2.7 times at 448 (docs/training.md). Small networks
    gain nothing. A head on kept features is float32.
    """
    return config.mode != "linear" and (kind == "cuda" or config.size >= LARGE) and has_half(kind)


def _mixed(room: Any, kind: str) -> Any:
    """bfloat16 inside a network; what goes into it is left as it is, for Fabric would round features and pictures."""

    class Mixed(importlib.import_module(f"{room.__name__}.plugins.precision").MixedPrecision):  # type: ignore[misc]
        def convert_input(self, data: Any) -> Any:
            return data

    return Mixed("bf16-mixed", device=kind)


def _fabric_room() -> Any:
    for module in ("lightning.fabric", "lightning_fabric"):  # the latter is what pytorch-lightning brings along
        with contextlib.suppress(ImportError):
            return importlib.import_module(module)
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
