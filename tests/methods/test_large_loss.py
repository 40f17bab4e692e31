"""Large loss by sorting by hand, step after step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import onelabel
from onelabel import Labels
from onelabel.methods.selection import lowest


def by_hand(
    g: torch.Tensor, z: torch.Tensor, count: int, scheme: str
) -> tuple[float, torch.Tensor, set[tuple[int, int]]]:
    """The loss, its gradient and the chosen entries, by a sort in Python."""
    rows, classes = g.shape
    p = [[1 / (1 + math.exp(-float(v))) for v in row] for row in g]
    unknown = [(n, i) for n in range(rows) for i in range(classes) if z[n, i] == 0]
    unknown.sort(key=lambda at: -p[at[0]][at[1]])  # −log(1−p) grows with p; Python's sort is stable
    chosen = set(unknown[:count])
    total, grad = 0.0, torch.zeros(rows, classes, dtype=torch.float64)
    for n in range(rows):
        for i in range(classes):
            positive = z[n, i] == 1 or ((n, i) in chosen and scheme != "ll-r")
            if (n, i) in chosen and scheme == "ll-r":
                continue
            total += -math.log(p[n][i]) if positive else -math.log(1 - p[n][i])
            grad[n, i] = p[n][i] - 1 if positive else p[n][i]
    return total / (rows * classes), grad / (rows * classes), chosen


@pytest.mark.parametrize("name", ["ll-r", "ll-ct", "ll-cp"])
def test_loss_gradient_and_memory(name: str, labels: Labels) -> None:
    delta, epochs = 7.0, 4
    criterion = onelabel.method(name, delta=delta).bind(labels)
    memory = labels.rows(slice(None)).clone()
    torch.manual_seed(1)
    for epoch in range(epochs):
        criterion.begin_epoch(epoch, epochs)
        for index in torch.randperm(30).split(7):
            logits = torch.randn(len(index), 5, dtype=torch.float64, requires_grad=True)
            loss = criterion(logits, labels.rows(index), index=index)
            loss.backward()
            fraction = (min(epoch, 1) if name == "ll-cp" else epoch) * delta / 100
            want, grad, chosen = by_hand(logits.detach(), memory[index], math.ceil(len(index) * 5 * fraction), name)
            assert loss.item() == pytest.approx(want, rel=1e-12)
            torch.testing.assert_close(logits.grad, grad)
            if name == "ll-cp":
                for n, i in chosen:
                    memory[index[n], i] = 1
    if name == "ll-cp":
        flipped = (memory == 1) & (labels.rows(slice(None)) == 0)
        assert torch.equal(criterion.flipped_labels(), flipped)
        assert flipped.any()


@pytest.mark.parametrize("name", ["ll-r", "ll-ct", "ll-cp"])
@pytest.mark.parametrize(("delta", "epoch"), [(0.0, 3), (50.0, 0)])
def test_without_delta_or_in_the_first_epoch_it_is_an(name: str, delta: float, epoch: int, labels: Labels) -> None:
    criterion = onelabel.method(name, delta=delta).bind(labels)
    criterion.begin_epoch(epoch, 5)
    logits, index = torch.randn(8, 5), torch.arange(8)
    z = labels.rows(index)
    torch.testing.assert_close(criterion(logits, z, index=index), onelabel.method("an")(logits, z))


def test_everything_dropped_is_ignoring_the_unknown(labels: Labels) -> None:
    logits, z = torch.randn(8, 5), labels.rows(slice(0, 8))
    rejected, corrected = onelabel.method("ll-r", delta=100), onelabel.method("ll-ct", delta=100)
    for criterion in (rejected, corrected):
        criterion.begin_epoch(1, 5)
    torch.testing.assert_close(rejected(logits, z), onelabel.method("iu")(logits, z))
    torch.testing.assert_close(corrected(logits, z), onelabel.method("an")(logits, torch.where(z == 0, 1, z)))


@pytest.mark.parametrize(("delta", "epoch", "batch"), [(0.2, 3, 100), (0.1, 7, 200), (0.3, 1, 200), (0.7, 9, 100)])
def test_a_whole_number_of_entries_is_not_rounded_up(delta: float, epoch: int, batch: int) -> None:
    """t·Δ·B·L is whole here, though not in floating point: 3·0.2/100·1000 is 6.000000000000001."""
    criterion = onelabel.method("ll-r", delta=delta)
    criterion.begin_epoch(epoch, 10)
    stack = onelabel.method("ll-r", delta=[delta, delta])
    stack.begin_epoch(epoch, 10)
    logits = torch.randn(batch, 10).requires_grad_()
    z = torch.zeros(batch, 10, dtype=torch.int8)
    criterion(logits, z).backward()
    dropped = int((logits.grad == 0).sum())
    assert dropped == round(epoch * delta * batch / 10)
    many = torch.randn(2, batch, 10).requires_grad_()
    stack(many, z).sum().backward()
    assert [(g == 0).sum().item() for g in many.grad] == [dropped, dropped]


def test_ties_take_the_first_and_never_too_many() -> None:
    cost = torch.tensor([[1.0, 3.0, 3.0], [3.0, 2.0, 3.0]])
    eligible = torch.tensor([[True, False, True], [True, True, True]])
    for count, want in (
        (0, [[0, 0, 0], [0, 0, 0]]),
        (1, [[0, 0, 1], [0, 0, 0]]),
        (2, [[0, 0, 1], [1, 0, 0]]),
        (4, [[0, 0, 1], [1, 1, 1]]),
        (6, [[1, 0, 1], [1, 1, 1]]),
    ):
        chosen = lowest(-cost.flatten(), eligible.flatten(), torch.tensor(count), dim=-1)
        assert chosen.view(2, 3).int().tolist() == want


def test_an_example_twice_in_a_batch_keeps_what_either_found(labels: Labels) -> None:
    criterion = onelabel.method("ll-cp", delta=20).bind(labels)
    criterion.begin_epoch(1, 3)
    index = torch.tensor([7, 8, 7])
    z = labels.rows(index)
    first, last = ((z[0] == 0).nonzero().flatten()[i] for i in (0, -1))
    logits = torch.full((3, 5), -3.0)
    logits[0, first], logits[2, last] = 5.0, 6.0
    criterion(logits, z, index=index)
    flipped = criterion.flipped_labels()
    assert flipped[7, first]
    assert flipped[7, last]
    assert flipped.sum() == 3  # ⌈15·0.2⌉, the third a tie at −3


def test_looking_changes_nothing_in_eval_mode(labels: Labels) -> None:
    criterion = onelabel.method("ll-cp", delta=20).bind(labels).eval()
    criterion.begin_epoch(1, 3)
    criterion(torch.randn(8, 5), labels.rows(slice(0, 8)), index=torch.arange(8))
    assert not criterion.flipped_labels().any()


def test_bad_scheme(kit: Any) -> None:
    with pytest.raises(ValueError, match="scheme must be 'reject', 'temporary' or 'permanent', got 'other'"):
        onelabel.method("ll-r", scheme="other")
