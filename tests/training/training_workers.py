"""What test processes run: imported by name in children, so it lies in a module of its own."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

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
    _be_rank(rank, world, port)
    train_once(out, method, settings)
    torch.distributed.destroy_process_group()


def train_folder(data: str, out: str, placement: str) -> Any:
    """One training on a folder of pictures, kept or streamed as asked."""
    import onelabel.data.pictures as pictures
    from onelabel.training import train

    torch.set_num_threads(1)
    settings: dict[str, Any] = {
        **SMALL,
        "backbone": "small-cnn-group",
        "mode": "finetune",
        "epochs": 2,
        "select": "last",
    }
    with (  # a test calls this in its own process, too
        mock.patch.object(pictures, "choose_placement", return_value=(placement, "as the test asks")),
        mock.patch.dict(os.environ, {"ONELABEL_QUIET": "1"}),
    ):
        return train(data, method="em", out=out, **settings)


def train_folder_as_rank(rank: int, world: int, port: int, data: str, out: str, placement: str, bad: str) -> None:
    """The same as one of several processes, the last of which cannot read the picture `bad`."""
    from onelabel.data import FileSource

    _be_rank(rank, world, port)
    if rank == world - 1:
        square, inspect = FileSource.square, FileSource.inspect

        def no_square(self: FileSource, row: int, *given: Any, **named: Any) -> Any:
            _refuse(self, row, bad)
            return square(self, row, *given, **named)

        def no_inspect(self: FileSource, row: int, *, decode: bool = False) -> Any:
            if decode:
                _refuse(self, row, bad)
            return inspect(self, row, decode=decode)

        FileSource.square, FileSource.inspect = no_square, no_inspect  # type: ignore[method-assign]
    train_folder(data, out, placement)
    torch.distributed.destroy_process_group()


def _refuse(source: Any, row: int, bad: str) -> None:
    from onelabel.data.images import ImageError

    if source.paths[row] == bad:
        raise ImageError("truncated", bad)


def _be_rank(rank: int, world: int, port: int) -> None:
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
