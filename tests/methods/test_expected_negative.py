"""Expected negatives by loops over classes and examples."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import onelabel
from onelabel import Labels


def sigmoid(g: Any) -> float:
    return 1 / (1 + math.exp(-float(g)))


@pytest.mark.parametrize("given", [False, True])
def test_average_negatives_loss_and_gradient(given: bool, labels: Labels) -> None:
    decay, alpha, k, epochs = 0.6, 0.4, 2.2, 4
    z = labels.rows(slice(None))
    positives = [4.0, 9.5, 30.0, 0.0, 12.0] if given else None
    criterion = onelabel.method(
        "en", decay=decay, alpha=alpha, views=2, expected_positives=k, class_positives=positives
    ).bind(labels)
    seen = [int((z[:, c] == 1).sum()) for c in range(5)]
    want_positives = positives or [30 * k * n / sum(seen) for n in seen]
    average: dict[tuple[int, int], float] = {}
    negative = {(n, c) for n in range(30) for c in range(5)}  # the first epoch assumes negative
    for epoch in range(epochs):
        criterion.begin_epoch(epoch, epochs)
        if epoch:
            negative = set()
            for c in range(5):
                order = [n for n in range(30) if z[n, c] != 1]
                order.sort(key=lambda n, c=c: -math.inf if z[n, c] == -1 else average[n, c])
                negative |= {(n, c) for n in order[: math.floor(30 - want_positives[c] + 1e-6)]}
            got = criterion.expected_negatives()
            for n in range(30):
                for c in range(5):
                    assert bool(got[n, c]) == (z[n, c] == 0 and (n, c) in negative)
        for index in torch.randperm(30).split(8):
            logits = torch.randn(len(index), 5, requires_grad=True)
            view = torch.randn(len(index), 5, requires_grad=True)
            loss = criterion(logits, labels.rows(index), index=index, views=[view])
            loss.backward()
            total, rows = 0.0, len(index)
            for i, n in enumerate(index.tolist()):
                for c in range(5):
                    p, q = sigmoid(logits[i, c].detach()), sigmoid(view[i, c].detach())
                    grad = 0.0
                    if z[n, c] == 1:
                        total, grad = total - math.log(p) / (rows * 5), (p - 1) / (rows * 5)
                    elif z[n, c] == -1 or (n, c) in negative:
                        total, grad = total - math.log(1 - p) / (rows * 5), p / (rows * 5)
                    if (n, c) in average:
                        gap = p - average[n, c]
                        total += alpha * (gap**2 + (q - average[n, c]) ** 2) / 2 / rows
                        grad += alpha * gap * p * (1 - p) / rows
                    assert logits.grad[i, c].item() == pytest.approx(grad, abs=1e-6)
                    average[n, c] = decay * average[n, c] + (1 - decay) * p if (n, c) in average else p
            assert loss.item() == pytest.approx(total, rel=1e-5)
            for n in index.tolist():
                for c in range(5):
                    assert criterion.average[n, c].item() == pytest.approx(average[n, c], abs=1e-6)


def trained(labels: Labels, **settings: Any) -> Any:
    criterion = onelabel.method("en", **settings).bind(labels)
    criterion.begin_epoch(0, 3)
    index = torch.arange(30)
    criterion(torch.randn(30, 5), labels.rows(index), index=index)
    criterion.begin_epoch(1, 3)
    return criterion


def test_no_positive_missing_is_an_and_all_positive_ignores_the_unknown(labels: Labels) -> None:
    index, logits = torch.arange(30), torch.randn(30, 5)
    z = labels.rows(index)
    none, every = trained(labels, class_positives=[0.0] * 5), trained(labels, class_positives=[30.0] * 5)
    torch.testing.assert_close(none(logits, z, index=index), onelabel.method("an")(logits, z))
    torch.testing.assert_close(every(logits, z, index=index), onelabel.method("iu")(logits, z))


def test_an_example_twice_in_a_batch_moves_once(labels: Labels) -> None:
    criterion = trained(labels, decay=0.5)
    before = criterion.average[4].clone()
    logits = torch.randn(3, 5)
    index = torch.tensor([4, 9, 4])
    criterion(logits, labels.rows(index), index=index)
    mean = torch.sigmoid(logits[[0, 2]]).mean(0)
    torch.testing.assert_close(criterion.average[4], (before + mean) / 2)


def test_looking_changes_nothing_in_eval_mode(labels: Labels) -> None:
    criterion = trained(labels).eval()
    before = criterion.average.clone()
    criterion(torch.randn(30, 5), labels.rows(slice(None)), index=torch.arange(30))
    assert torch.equal(before, criterion.average)


def test_bad_class_positives(labels: Labels) -> None:
    for bad in ([1.0] * 4, [31.0] * 5, [-1.0] * 5):
        with pytest.raises(ValueError, match=r"class_positives must hold 5 numbers in \[0, 30\]"):
            onelabel.method("en", class_positives=bad).bind(labels)
    assert onelabel.method("en").needs.views == 1
    assert onelabel.method("en", alpha=0.1, views=3).needs.views == 3
