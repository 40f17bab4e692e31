"""EM with asymmetric pseudo-labels: which entries, when, and what they cost; by loops over classes and examples."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import onelabel
from onelabel import Labels
from onelabel.methods.selection import lowest

T = 6


def choose(scores: Any, free: Any, quota: int, *, highest: bool = False) -> list[int]:
    """The examples of one class that are labelled: as the authors do, by sorting the free ones."""
    order = sorted((n for n in range(len(scores)) if free[n]), key=lambda n: -scores[n] if highest else scores[n])
    return order[:quota]


@pytest.mark.parametrize("count", ["start", "current"])
@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("positive", [0.0, 0.2])
def test_what_is_labelled_and_when(count: str, soft: bool, positive: float, labels: Labels) -> None:
    warmup, theta = 2, 0.9
    criterion = onelabel.method(
        "em-apl", warmup=warmup, proportion=theta, positive_proportion=positive, soft=soft, count=count
    ).bind(labels)
    z = labels.rows(slice(None))
    target: dict[tuple[int, int], float] = {}
    start = [int((z[:, c] == 0).sum()) for c in range(5)]
    for epoch in range(T):
        criterion.begin_epoch(epoch, T)
        scores = torch.rand(30, 5)
        called = []

        def score(scores: torch.Tensor = scores, called: list[int] = called) -> torch.Tensor:
            called.append(1)
            return scores

        criterion.end_epoch(score)
        active = warmup <= epoch + 1 <= T - 1
        assert bool(called) == active
        if active:
            for c in range(5):
                free = [int(z[n, c]) == 0 and (n, c) not in target for n in range(30)]
                base = start[c] if count == "start" else sum(free)
                for n in choose(scores[:, c].tolist(), free, math.floor(theta * base / (T - warmup))):
                    target[n, c], free[n] = (float(scores[n, c]) if soft else 0.0), False
                quota = math.floor(positive * base / (T - warmup))
                for n in choose(scores[:, c].tolist(), free, quota, highest=True):
                    target[n, c] = float(scores[n, c]) if soft else 1.0
        want = torch.full((30, 5), math.nan)
        for at, value in target.items():
            want[at] = value
        torch.testing.assert_close(criterion.pseudo_labels(), want, equal_nan=True)
    if count == "start" and not positive:
        for c in range(5):  # T−T_w times, so that θ is reached up to rounding down
            got = sum(1 for (_, k) in target if k == c)
            assert got == (T - warmup) * math.floor(theta * start[c] / (T - warmup))


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_loss_and_gradient(variant: str, labels: Labels) -> None:
    alpha, beta, eps = 0.3, 0.7, 1e-5 if variant == "reference" else 0.0
    criterion = onelabel.method("em-apl", alpha=alpha, beta=beta, warmup=1, variant=variant).bind(labels)
    criterion.begin_epoch(0, 3)
    criterion.end_epoch(lambda: torch.rand(30, 5))
    soft = criterion.pseudo_labels()
    index = torch.tensor([0, 1, 5, 9, 20])
    logits = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    z = labels.rows(index)
    loss = criterion(logits, z, index=index)
    loss.backward()

    def entry(g: float, z: int, s: float) -> float:
        p = 1 / (1 + math.exp(-g))
        log_p, log_q = math.log(p + eps), math.log(1 - p + eps)
        if z:
            return -log_p if z > 0 else -log_q
        if math.isnan(s):
            return alpha * (p * log_p + (1 - p) * log_q)
        return beta * (-s * log_p - (1 - s) * log_q)

    total, h, labelled = 0.0, 1e-6, 0
    for n, row in enumerate(index.tolist()):
        for c in range(5):
            args = (int(z[n, c]), float(soft[row, c]))
            labelled += not math.isnan(args[1])
            g = logits[n, c].item()
            total += entry(g, *args)
            slope = (entry(g + h, *args) - entry(g - h, *args)) / (2 * h) / 25
            assert logits.grad[n, c].item() == pytest.approx(slope, abs=1e-8)
    assert labelled >= 3
    assert loss.item() == pytest.approx(total / 25, rel=1e-9)


def test_before_the_warm_up_ends_it_is_em(labels: Labels) -> None:
    criterion = onelabel.method("em-apl", alpha=0.2, warmup=3).bind(labels)
    em = onelabel.method("em", alpha=0.2)
    index, logits = torch.arange(10), torch.randn(10, 5)
    for epoch in range(2):
        criterion.begin_epoch(epoch, 5)
        criterion.end_epoch(lambda: pytest.fail("scored too early"))
        z = labels.rows(index)
        torch.testing.assert_close(criterion(logits, z, index=index), em(logits, z))


def test_beta_zero_ignores_what_is_labelled_and_one_weighs_it_fully(labels: Labels) -> None:
    z, index, logits = labels.rows(slice(None)), torch.arange(30), torch.randn(30, 5)
    scores = torch.rand(30, 5)
    got = []
    for beta in (0.0, 1.0):
        criterion = onelabel.method("em-apl", alpha=0.2, beta=beta, warmup=1, proportion=1.0, soft=False).bind(labels)
        criterion.begin_epoch(0, 2)
        criterion.end_epoch(lambda: scores)
        got.append(criterion(logits, z, index=index))
    torch.testing.assert_close(got[0], onelabel.method("iu")(logits, z))
    torch.testing.assert_close(got[1], onelabel.method("an")(logits, z))  # hard negatives everywhere


def test_equal_scores_take_the_first_examples() -> None:
    scores = torch.tensor([[0.5, 0.1], [0.5, 0.5], [0.2, 0.5], [0.5, 0.5]])
    free = torch.tensor([[True, True], [True, False], [True, True], [True, True]])
    mask = lowest(scores, free, torch.tensor([2, 2]))
    assert mask.int().tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]
    assert lowest(scores, free, torch.tensor([9, 0])).int().tolist() == [[1, 0]] * 4


def test_a_quota_that_is_whole_is_not_rounded_down() -> None:
    labels = Labels.from_classes([0] * 100 + [1] * 100, num_classes=2)  # 100 unknown a class
    for theta, warmup, epochs in ((0.7, 3, 10), (0.9, 1, 10), (0.29, 9, 10)):
        criterion = onelabel.method("em-apl", proportion=theta, warmup=warmup).bind(labels)
        criterion.begin_epoch(warmup - 1, epochs)
        criterion.end_epoch(lambda: torch.rand(200, 2))
        labelled = (~criterion.pseudo_labels().isnan()).sum(0).tolist()
        assert labelled == [round(theta * 100) // (epochs - warmup)] * 2


def test_no_loop_no_warm_up_no_end(labels: Labels) -> None:
    criterion = onelabel.method("em-apl", warmup=5).bind(labels)
    for epoch in range(4):  # training that is shorter than the warm-up
        criterion.begin_epoch(epoch, 4)
        criterion.end_epoch(None)
    criterion = onelabel.method("em-apl", warmup=1).bind(labels)
    criterion.begin_epoch(0, 3)
    with pytest.raises(ValueError, match=r"end_epoch\(score\)"):
        criterion.end_epoch(None)
    with pytest.raises(ValueError, match=r"score\(\) must give shape \(30, 5\), got \(5, 30\)"):
        criterion.end_epoch(lambda: torch.rand(5, 30))
    with pytest.raises(ValueError, match="count must be 'start' or 'current', got 'now'"):
        onelabel.method("em-apl", count="now")
