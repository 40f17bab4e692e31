"""RowAdam against torch's Adam, one per row."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import embedding

from onelabel.methods import RowAdam
from onelabel.methods.optim import summed


def batches(rows: int, steps: int, size: int = 4) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(5)
    return [torch.randint(rows, (size,), generator=rng) for _ in range(steps)]  # with repeats


def loss_of(picked: torch.Tensor, step: int) -> torch.Tensor:
    return ((picked - 0.3 * step) ** 2 * torch.arange(1, picked.shape[-1] + 1)).sum() + picked.sin().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_row_moves_as_under_an_adam_of_its_own(dtype: torch.dtype) -> None:
    start = torch.randn(6, 3, dtype=dtype)
    table = nn.Parameter(start.clone())
    ours = RowAdam([table], lr=0.02)
    rows = [nn.Parameter(row.clone()) for row in start]
    theirs = [torch.optim.Adam([row], lr=0.02) for row in rows]
    for step, index in enumerate(batches(6, 40)):
        loss_of(embedding(index, table, sparse=True), step).backward()
        assert table.grad is not None
        assert table.grad.is_sparse
        ours.step()
        ours.zero_grad()
        loss_of(torch.stack([rows[i] for i in index]), step).backward()
        for row, adam in zip(rows, theirs, strict=True):
            if row.grad is not None:
                adam.step()
                adam.zero_grad()
    torch.testing.assert_close(table.detach(), torch.stack(rows).detach(), rtol=1e-5, atol=1e-6)


def test_a_dense_gradient_gives_ordinary_adam() -> None:
    start = torch.randn(6, 3)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    a, b = RowAdam([ours], lr=0.02), torch.optim.Adam([theirs], lr=0.02)
    for step, index in enumerate(batches(6, 40)):
        for p, optimizer in ((ours, a), (theirs, b)):
            loss_of(p[index], step).backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_rows_outside_the_batch_stay_bit_for_bit_moments_included() -> None:
    table = nn.Parameter(torch.randn(50, 3))
    optimizer = RowAdam([table], lr=0.1)
    for step, index in enumerate(batches(50, 10)):
        before = {k: v.clone() for k, v in optimizer.state[table].items()} | {"p": table.detach().clone()}
        loss_of(embedding(index, table, sparse=True), step).backward()
        optimizer.step()
        optimizer.zero_grad()
        others = torch.tensor([i for i in range(50) if i not in index])
        for name, was in before.items():
            now = table if name == "p" else optimizer.state[table][name]
            assert torch.equal(now[others], was[others])
            assert not torch.equal(now[index], was[index])


def test_accumulated_gradients_are_one_step() -> None:
    start = torch.randn(6, 3)
    once, twice = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    index = torch.tensor([1, 2, 2, 5])
    loss_of(embedding(index, once, sparse=True), 1).backward()
    for part in index.split(2):
        loss_of(embedding(part, twice, sparse=True), 1).backward()
    for p in (once, twice):
        RowAdam([p], lr=0.1).step()
    torch.testing.assert_close(once, twice)


def test_summed_adds_what_shares_a_row() -> None:
    rows = torch.tensor([4, 1, 4, 4, 0, 1])
    values = torch.randn(6, 2, dtype=torch.float64)
    want = torch.stack([sum(values[j] for j in range(6) if rows[j] == r) for r in rows])
    torch.testing.assert_close(summed(rows, values), want)


def test_bfloat16_is_rounded_to_either_side_by_chance_and_the_same_each_time() -> None:
    def train(lr: float = 1e-4) -> torch.Tensor:
        table = nn.Parameter(torch.full((2, 4000), 0.4, dtype=torch.bfloat16))
        optimizer = RowAdam([table], lr=lr)
        for _ in range(50):
            embedding(torch.tensor([0, 0]), table, sparse=True).float().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return table.detach()

    once, again = train(), train()
    assert torch.equal(once, again)
    start = torch.tensor(0.4, dtype=torch.bfloat16).float()
    # Rounded to nearest, 50 steps of 1e-4 would all be lost: at 0.4 the next number is 2e-3 away.
    moved = start - once[0].float()
    assert moved.mean().item() == pytest.approx(50e-4, rel=0.02)
    assert moved.std().item() > 1e-3
    assert torch.equal(once[1].float(), start.expand(4000))


def test_its_state_is_saved_and_loaded() -> None:
    table = nn.Parameter(torch.randn(6, 3))
    twin = nn.Parameter(table.detach().clone())
    one, two = RowAdam([table], lr=0.1), RowAdam([twin], lr=0.5)
    for step, index in enumerate(batches(6, 8)):
        if step == 4:
            two.load_state_dict(copy.deepcopy(one.state_dict()))
            twin.data.copy_(table.data)
        for p, optimizer in ((table, one), (twin, two)):
            loss_of(embedding(index, p, sparse=True), step).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert torch.equal(table, twin)
    assert one.state_dict()["param_groups"][0]["lr"] == two.param_groups[0]["lr"]


def test_a_schedule_moves_its_learning_rate() -> None:
    table = nn.Parameter(torch.zeros(2, 1))
    optimizer = RowAdam([table], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    for _ in range(3):
        embedding(torch.tensor([0]), table, sparse=True).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    assert table.detach().flatten().tolist() == pytest.approx([-1.75, 0.0], abs=1e-4)


def test_bad_learning_rates() -> None:
    table = nn.Parameter(torch.zeros(6, 1))
    with pytest.raises(ValueError, match="lr must not be negative, got -1"):
        RowAdam([table], lr=-1.0)
    with pytest.raises(ValueError, match=r"lr must be one number or one per model \(3\), got 2"):
        RowAdam([table], lr=torch.ones(2), models=3)
