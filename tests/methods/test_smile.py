"""SMILE: the graph, the posterior, its KL, and the loss put together by hand."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, stats
from torch.distributions import Beta, kl_divergence

import onelabel
from onelabel import Labels
from onelabel.methods.smile import beta_kl, nearest


@pytest.mark.parametrize("prior", [(1.0, 1.0), (2.0, 0.7)])
def test_the_kl_of_two_betas(prior: tuple[float, float]) -> None:
    a, b = torch.rand(20, dtype=torch.float64) * 5 + 0.05, torch.rand(20, dtype=torch.float64) * 5 + 0.05
    want = kl_divergence(Beta(a, b), Beta(*(torch.tensor(v, dtype=torch.float64) for v in prior)))
    torch.testing.assert_close(beta_kl(a, b, prior), want)
    p, q = stats.beta(2.5, 3.5), stats.beta(*prior)
    area, _ = integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), 0, 1)
    got = beta_kl(torch.tensor(2.5, dtype=torch.float64), torch.tensor(3.5, dtype=torch.float64), prior)
    assert got.item() == pytest.approx(area, rel=1e-6)


def test_nearest_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 3, dtype=torch.float64)
    monkeypatch.setattr("onelabel.methods.smile.BLOCK", 40 * 7)  # seven rows at a time
    got = nearest(x, 3)
    for i in range(40):
        order = sorted((j for j in range(40) if j != i), key=lambda j, i=i: float((x[i] - x[j]).norm()))
        assert got[i].tolist() == order[:3]
    with pytest.raises(ValueError, match=r"neighbours must lie in \[1, 39\].*got 40"):
        nearest(x, 40)


def test_the_loss_and_gradients_by_hand(labels: Labels) -> None:
    settings = {"mix": 0.3, "prior": 0.1, "gamma": 0.2, "delta": 0.4, "hidden": 8, "seed": 2}
    criterion = onelabel.method("smile", feature_dim=6, **settings).bind(labels).eval().double()
    x = torch.randn(30, 6, dtype=torch.float64)
    criterion.bind_features(x)
    near = [[i, *row] for i, row in enumerate(nearest(x.float(), 3).tolist())]
    index = torch.tensor([0, 1, 5, near[5][1], 20])
    z = labels.rows(index)
    logits = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    loss = criterion(logits, z, index=index, features=x[index])
    loss.backward()

    m = criterion
    smooth = torch.stack([x.float()[rows].mean(0) for rows in near]).double()
    hidden = torch.relu(smooth @ m.first.weight + m.first.bias)
    mixed = torch.stack([hidden[near[i]].mean(0) for i in index.tolist()])
    out = torch.relu(mixed @ m.second.weight + m.second.bias) @ m.posterior.weight + m.posterior.bias
    a, b = (torch.nn.functional.softplus(out) + 0.01).split(5, -1)
    d = a / (a + b)
    torch.testing.assert_close(m.estimated_labels(index), d)
    context = torch.relu(torch.cat([x[index], d], 1) @ m.context.weight + m.context.bias)
    inner = torch.relu(torch.cat([d, context], 1) @ m.decoder.weight + m.decoder.bias)
    rebuilt = inner @ m.features_out.weight + m.features_out.bias
    bce_d = bce_p = link = 0.0
    for n in range(5):
        for c in range(5):
            e, p = float(d[n, c].detach()), 1 / (1 + math.exp(-logits[n, c].item()))
            bce_d += -math.log(e) if z[n, c] == 1 else -math.log(1 - e)
            t = 0.3 * e + 0.7 * {1: 1.0, 0: 0.1, -1: 0.0}[int(z[n, c])]
            weight = 0.25 if z[n, c] == 0 else 1.0
            bce_p += weight * (-t * math.log(p) - (1 - t) * math.log(1 - p))
            assert logits.grad[n, c].item() == pytest.approx(weight * (p - t) / 25, abs=1e-9)
        for k in range(5):
            linked = float(index[k].item() in near[index[n].item()][1:])
            link += (float((d[n] * d[k]).sum().detach()) - linked) ** 2
    kl = kl_divergence(Beta(a, b), Beta(torch.ones_like(a), torch.ones_like(b))).mean()
    rebuild = ((rebuilt - x[index]) ** 2).mean() + bce_d / 25 + link / 25
    want = bce_p / 25 + bce_d / 25 + 0.2 * rebuild + 0.4 * kl
    assert loss.item() == pytest.approx(want.item(), rel=1e-9)
    assert all(p.grad is not None and p.grad.any() for p in m.parameters())


def test_a_sample_in_training_its_mean_in_evaluation(labels: Labels) -> None:
    criterion = onelabel.method("smile", feature_dim=6, hidden=8).bind(labels)
    x, index = torch.randn(30, 6), torch.arange(8)
    criterion.bind_features(x)

    def ask() -> torch.Tensor:
        return criterion(torch.zeros(8, 5), labels.rows(index), index=index, features=x[index]).detach()

    assert not torch.equal(ask(), ask())
    criterion.eval()
    assert torch.equal(ask(), ask())


def test_it_learns_what_the_features_show() -> None:
    side = torch.arange(60) % 2
    true = torch.stack([side == 0, side == 0, side == 1, side == 1], 1)
    x = torch.randn(60, 4) * 0.3 + torch.stack([side, 1 - side, side, 1 - side], 1) * 2.0
    labels = Labels.from_classes((side * 2 + torch.randint(2, (60,))).tolist(), num_classes=4)
    criterion = onelabel.method("smile", feature_dim=4, hidden=16, delta=0.1, seed=0).bind(labels)
    criterion.bind_features(x)
    w, b = torch.zeros(4, 4, requires_grad=True), torch.zeros(4, requires_grad=True)
    optimizers = [torch.optim.Adam([w, b], lr=0.02), *criterion.optimizers(0.005)]
    for _ in range(40):
        for index in torch.randperm(60).split(10):
            criterion(x[index] @ w + b, labels.rows(index), index=index, features=x[index]).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    found = criterion.estimated_labels()
    hidden = true & (labels.rows(slice(None)) == 0)
    assert found[hidden].mean() > found[~true].mean() + 0.2
    p = torch.sigmoid(x @ w + b).detach()
    assert p[hidden].mean() > p[~true].mean() + 0.2


def test_errors(labels: Labels) -> None:
    with pytest.raises(ValueError, match="smile needs feature_dim="):
        onelabel.method("smile").bind(labels)
    criterion = onelabel.method("smile", feature_dim=6).bind(labels)
    with pytest.raises(ValueError, match=r"features must have shape \(30, 6\), got \(30, 7\)"):
        criterion.bind_features(torch.zeros(30, 7))
    with pytest.raises(RuntimeError, match="bind_features"):
        criterion(torch.zeros(2, 5), labels.rows(slice(0, 2)), index=torch.arange(2), features=torch.zeros(2, 6))
    with pytest.raises(RuntimeError, match="bind_features"):
        criterion.estimated_labels()
