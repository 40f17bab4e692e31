"""ROLE's table divided between two processes is the table of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import onelabel
from onelabel import Labels

N, L = 11, 4


def train(split: bool, stack: int | None, dtype: str) -> tuple[torch.Tensor, torch.Tensor, int]:
    torch.manual_seed(0)
    labels = Labels.from_classes((torch.arange(N) % L).tolist(), num_classes=L)
    seed = 7 if stack is None else [7, 8]
    criterion = onelabel.method("role", seed=seed, split=split, dtype=dtype, stack=stack).bind(labels)
    lead = () if stack is None else (stack,)
    logits = torch.randn(*lead, N, L, requires_grad=True)
    optimizers = [torch.optim.Adam([logits], lr=0.01), *criterion.optimizers(0.01)]
    losses = []
    for _ in range(4):
        for index in torch.randperm(N).split(4):
            loss = criterion(logits[..., index, :], labels.rows(index), index=index)
            loss.sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
    return torch.stack(losses), criterion.estimated_labels(), criterion.estimator.weight.shape[0]


CASES: list[tuple[int | None, str]] = [(None, "float32"), (2, "float32"), (None, "bfloat16")]


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed")
def test_two_processes_do_as_one(tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    members = [subprocess.Popen([sys.executable, __file__, str(rank), str(tmp_path)], env=env) for rank in range(2)]
    assert [m.wait(timeout=300) for m in members] == [0, 0]
    for i, case in enumerate(CASES):
        losses, estimates, rows = train(False, *case)
        assert rows == N * (case[0] or 1)
        held = 0
        for rank in range(2):
            theirs = torch.load(tmp_path / f"{rank}.pt", weights_only=True)[i]
            torch.testing.assert_close(theirs[0], losses)
            torch.testing.assert_close(theirs[1], estimates)
            held += theirs[2] - 1  # less the spare row
        assert held == rows


if __name__ == "__main__":  # a member of the group: rank, folder
    rank, folder = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save([train(True, *case) for case in CASES], f"{folder}/{rank}.pt")
    dist.barrier()  # nobody leaves while the other still talks
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may outlive the interpreter, which then aborts ("terminate called without …")
