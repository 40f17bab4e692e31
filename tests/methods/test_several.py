"""Methods with memory in somebody's own DDP loop: refused inside what is wrapped, and outside as with one process."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import onelabel

ROWS, CLASSES, BATCH = 12, 4, 4
SETTINGS: dict[str, dict[str, Any]] = {
    "role": {"expected_positives": 1.5},
    "en": {},
    "ll-cp": {"delta": 25.0},
    "em-apl": {"warmup": 1},
}


class Whole(nn.Module):
    """Network and loss in one, as Lightning's modules are."""

    def __init__(self, criterion: onelabel.Method) -> None:
        super().__init__()
        self.net, self.criterion = nn.Linear(3, CLASSES), criterion

    def forward(self, x: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        loss: Tensor = self.criterion(self.net(x), observed, index=index)
        return loss


def data() -> tuple[Tensor, onelabel.Labels]:
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(CLASSES, (ROWS,), generator=generator)
    return torch.randn(ROWS, 3, generator=generator), onelabel.Labels.from_classes(classes, num_classes=CLASSES)


def trained(name: str, world: int = 1, rank: int = 0) -> dict[str, Tensor]:
    """Three epochs, the loop of docs/how-to/many-gpus.md; what the network and the method hold then."""
    X, labels = data()
    torch.manual_seed(0)
    network: nn.Module = nn.Linear(3, CLASSES)
    inner = network
    if world > 1:
        network = DistributedDataParallel(network)
    torch.manual_seed(1)
    criterion = onelabel.method(name, **SETTINGS[name]).bind(labels)
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.1), *criterion.optimizers(lr=1e-2)]
    for epoch in range(3):
        criterion.begin_epoch(epoch, 3)
        for batch in torch.arange(ROWS).split(BATCH):
            mine = batch.chunk(world)[rank]
            logits, index = network(X[mine]), mine
            if world > 1:
                logits, index = torch.cat(all_gather(logits)), torch.cat(all_gather(index))
            for optimizer in optimizers:
                optimizer.zero_grad()
            criterion(logits, labels.rows(index), index=index).backward()
            for optimizer in optimizers:
                optimizer.step()
        criterion.end_epoch(lambda: torch.sigmoid(inner(X)).detach())
    return {**inner.state_dict(), **{f"method.{k}": v for k, v in criterion.state_dict().items()}}


def worker(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    X, labels = data()
    said = {}
    for name, settings in SETTINGS.items():
        wrapped = DistributedDataParallel(Whole(onelabel.method(name, **settings).bind(labels)))
        mine = torch.arange(rank, ROWS, 2)
        try:
            wrapped(X[mine], labels.rows(mine), mine)
        except ValueError as error:
            said[name] = str(error)
        torch.save(trained(name, 2, rank), f"{folder}/{name}-{rank}.pt")
    fine = DistributedDataParallel(Whole(onelabel.method("an")))  # nothing to remember, nothing to lose
    fine(X, labels.rows(slice(None)), torch.arange(ROWS)).backward()
    torch.save(said, f"{folder}/said-{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_memory_is_refused_inside_and_kept_outside(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    spawn(worker, (port, str(tmp_path)), nprocs=2)
    for rank in range(2):
        said = torch.load(tmp_path / f"said-{rank}.pt", weights_only=True)
        assert set(said) == set(SETTINGS)
        assert all("outside the module that DDP wraps, and gather logits and index" in line for line in said.values())
    for name in SETTINGS:
        alone = trained(name)
        for rank in range(2):
            found = torch.load(tmp_path / f"{name}-{rank}.pt", weights_only=True)
            assert set(found) == set(alone)
            for key, value in alone.items():
                torch.testing.assert_close(
                    found[key], value, rtol=1e-5, atol=1e-6, msg=lambda m, at=(name, key): f"{at}: {m}"
                )
