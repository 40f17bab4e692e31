"""What test processes run: imported by name in children, so it lies in a module of its own."""

from __future__ import annotations

import os
from typing import Any

import torch

HYPER: dict[str, dict[str, Any]] = {"role": {"expected_positives": 2.0}, "em-apl": {"warmup": 1}}
SMALL = {
    "backbone": "small-cnn",
    "size": 24,
    "epochs": 3,
    "linear_epochs": 2,
    "lr": 1e-3,
    "batch_size": 16,
    "logger": "none",
    "device": "cpu",
}


def scenes(**options: Any) -> Any:
    from onelabel.data import load_dataset

    return load_dataset("digits-scenes", **{"size": 24, "n_train": 149, "n_validation": 50, "n_test": 50, **options})


def train_once(out: str | None, method: str, settings: dict[str, Any]) -> Any:
    """One training in this process; goes on where `out` left off."""
    from onelabel.training import train

    torch.set_num_threads(1)
    os.environ["ONELABEL_QUIET"] = "1"
    given = {**SMALL, "hyper": HYPER.get(method, {}), **settings}
    return train(scenes(), method=method, out=out, resume=out is not None, **given)


def train_as_rank(rank: int, world: int, port: int, out: str, method: str, settings: dict[str, Any]) -> None:
    """The same as one of several processes, as torchrun would start it."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
    }
    train_once(out, method, settings)
    torch.distributed.destroy_process_group()
