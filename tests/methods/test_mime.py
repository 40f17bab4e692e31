"""MIME: positives for good, and the bottleneck it brings along."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import onelabel
from onelabel import Labels
from onelabel.methods import BottleneckHead


def test_which_entries_become_positive_and_when(labels: Labels) -> None:
    criterion = onelabel.method("mime", tau=0.8, warmup=2, bottleneck=False).bind(labels)
    z, found, index = labels.rows(slice(None)), set(), torch.arange(30)
    for epoch in range(5):
        criterion.begin_epoch(epoch, 5)
        now = z.clone()
        for n, c in found:
            now[n, c] = 1
        logits = torch.randn(30, 5)
        torch.testing.assert_close(criterion(logits, z, index=index), onelabel.method("an")(logits, now))
        scores = torch.rand(30, 5)
        criterion.end_epoch((lambda s=scores: s) if epoch + 1 >= 2 else (lambda: pytest.fail("scored too early")))
        if epoch + 1 >= 2:
            found |= {(n, c) for n in range(30) for c in range(5) if z[n, c] == 0 and scores[n, c] > 0.8}
        got = criterion.flipped_labels().nonzero().tolist()
        assert {tuple(at) for at in got} == found
    assert found


@pytest.mark.parametrize("variant", ["paper", "reference"])
@pytest.mark.parametrize("stack", [None, 2])
def test_the_kl_of_its_head(variant: str, stack: int | None, labels: Labels) -> None:
    criterion = onelabel.method("mime", beta=0.3, width=4, variant=variant, stack=stack).bind(labels)
    head = criterion.head(6, 5)
    assert isinstance(head, BottleneckHead)
    index, x = torch.arange(7), torch.randn(7, 6, requires_grad=True)
    logits = head(x)
    got = criterion(logits, labels.rows(index), index=index, features=x)
    mean, log_variance = head.statistics(x)
    kl = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0))
    kl = kl.mean((-2, -1)) if variant == "reference" else kl.sum(-1).mean(-1)
    plain = onelabel.method("mime", bottleneck=False, stack=stack).bind(labels)
    want = plain(logits, labels.rows(index), index=index) + 0.3 * kl
    torch.testing.assert_close(got, want)
    got.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in head.parameters())
    assert x.grad.any()


def test_the_head_samples_in_training_and_not_in_evaluation() -> None:
    head = BottleneckHead(6, 5, width=4)
    x = torch.randn(3, 6)
    assert not torch.equal(head(x), head(x))
    head.eval()
    mean, _ = head.statistics(x)
    torch.testing.assert_close(head(x), mean @ head.classify.weight + head.classify.bias)
    head.train()
    many = torch.stack([head(x) for _ in range(4000)])
    torch.testing.assert_close(many.mean(0), head.eval()(x), rtol=0.1, atol=0.1)


def test_the_model_owns_the_head(labels: Labels) -> None:
    criterion = onelabel.method("mime").bind(labels)
    head = criterion.head(6, 5)
    assert head.encode.weight.shape == (6, 512)
    assert not list(criterion.parameters())
    assert not criterion.optimizers(0.1)
    assert set(criterion.state_dict()) == {"clock", "flipped"}
    assert onelabel.method("an").head(6, 5) is None
    assert onelabel.method("mime", bottleneck=False).head(6, 5) is None
    # the loop any method can be put into
    for name in ("an", "mime"):
        any_method = onelabel.method(name)
        any_method.bind(labels)
        layer = any_method.head(6, 5) or nn.Linear(6, 5)
        x, index = torch.randn(4, 6), torch.arange(4)
        any_method(layer(x), labels.rows(index), index=index, features=x).backward()


def test_errors(labels: Labels) -> None:
    criterion = onelabel.method("mime", warmup=1).bind(labels)
    with pytest.raises(RuntimeError, match=r"criterion\.head\(feature_dim, num_classes\)"):
        criterion(torch.zeros(2, 5), labels.rows(slice(0, 2)), index=torch.arange(2), features=torch.zeros(2, 6))
    with pytest.raises(ValueError, match=r"end_epoch\(score\)"):
        criterion.end_epoch(None)
    with pytest.raises(ValueError, match=r"score\(\) must give shape \(30, 5\), got \(30,\)"):
        criterion.end_epoch(lambda: torch.zeros(30))
