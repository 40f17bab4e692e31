"""LASD: its balance, its special cases, its views."""

from __future__ import annotations

import pytest
import torch

import onelabel
from onelabel.losses import consistency, lasd, splc
from onelabel.losses.lasd import balanced_weight


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(2)
    logits = torch.randn(6, 9, generator=rng, dtype=torch.float64) * 4
    return logits, torch.randint(-1, 2, (6, 9), generator=rng, dtype=torch.int8)


@pytest.mark.parametrize(
    ("k", "classes", "lam", "want"),
    [(1.46, 20, 0.1, 0.05642), (2.94, 80, 0.03, 0.01373), (1.89, 81, 0.015, 0.01281), (31.4, 312, 0.005, 0.004105)],
    ids=["voc", "coco", "nus", "cub"],
)
def test_the_balance_of_theorem_5_4(k: float, classes: int, lam: float, want: float) -> None:
    assert balanced_weight(k, classes, lam) == pytest.approx(want, rel=1e-3)
    minus = balanced_weight(k, classes, lam)
    assert 1 + lam * (k - 1) == pytest.approx(minus * (classes - k), rel=1e-14)
    # And it is what the method uses: an unknown entry at p = ½ with γ₋ = 0 costs λ₋·log 2.
    logits, unknown = torch.zeros(1, classes, dtype=torch.float64), torch.zeros(1, classes)
    for name, hyper in (("lasd", {"lam_positive": lam, "alpha": 0.0}), ("las", {})):
        expected = minus if name == "lasd" else 1 / (classes - k)
        loss = onelabel.method(name, **hyper, expected_positives=k, gamma_negative=0.0)(logits, unknown)
        assert loss.item() == pytest.approx(classes * expected * 0.6931471805599453, rel=1e-12)


def test_with_weights_and_threshold_one_it_is_asl(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    one = onelabel.method("lasd", lam_positive=1.0, lam_negative=1.0, tau=1.0, alpha=0.0)
    torch.testing.assert_close(one(*batch), onelabel.method("asl")(*batch) * 9)
    torch.testing.assert_close(one.entries(*batch), onelabel.method("asl").entries(*batch))


def test_with_weights_one_it_is_splc_without_its_margin(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, observed = batch[0].clone().requires_grad_(), batch[1]
    unknown = torch.zeros_like(observed)
    ours = lasd(logits, unknown, lam_positive=1.0, lam_negative=1.0, tau=0.6, gamma_positive=2.0, gamma_negative=2.0)
    theirs = splc(logits, unknown, tau=0.6, gamma=2.0)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), logits)[0] for x in (ours, theirs)))
    focal = lasd(logits, observed, lam_positive=1.0, lam_negative=1.0, tau=0.6, gamma_positive=2.0, gamma_negative=2.0)
    torch.testing.assert_close(focal, splc(logits, observed, tau=0.6, gamma=2.0, margin=0.0))


def test_without_focus_or_findings_it_is_wan_times_the_classes(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    for gamma in (1 / 8, 0.3):
        ours = onelabel.method("lasd", lam_negative=gamma, tau=1.0, alpha=0.0, gamma_negative=0.0)(*batch)
        torch.testing.assert_close(ours, onelabel.method("wan", gamma=gamma)(*batch) * 9)


def test_las_is_lasd_that_finds_nothing(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    plain = onelabel.method("lasd", lam_positive=0.0, tau=1.0, alpha=0.0)
    torch.testing.assert_close(onelabel.method("las")(*batch), plain(*batch))
    assert onelabel.method("las").needs.views == 1


def test_a_found_entry_is_a_weighed_positive(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, unknown = batch[0], torch.zeros_like(batch[1])
    got = onelabel.method("lasd", alpha=0.0, lam_positive=0.3, tau=0.5).entries(logits, unknown)
    found = logits.sigmoid() > 0.5
    torch.testing.assert_close(got[found], 0.3 * torch.nn.functional.softplus(-logits[found], threshold=50))


def test_consistency_is_over_all_pairs_of_probabilities() -> None:
    a, b, c = (torch.logit(torch.tensor([[p, 0.5]], dtype=torch.float64)) for p in (0.2, 0.3, 0.7))
    assert consistency([a, b, c]).item() == pytest.approx(0.01 + 0.25 + 0.16, rel=1e-12)
    assert consistency([a, a, a]).item() == 0
    # Sum over classes, mean over rows.
    twice = consistency([torch.cat([a, a]), torch.cat([b, a]), torch.cat([c, a])])
    assert twice.item() == pytest.approx((0.01 + 0.25 + 0.16) / 2, rel=1e-12)


def test_views_are_asked_for_where_alpha_weighs_them(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    criterion = onelabel.method("lasd", expected_positives=2.0)
    assert criterion.needs.views == 3
    views = [(batch[0] + 1).requires_grad_(), (batch[0] * 0.5).requires_grad_()]
    with pytest.raises(ValueError, match="LASD needs 2 further views of each picture, got 0"):
        criterion(*batch)
    with pytest.raises(ValueError, match=r"views must have the shape of logits \(6, 9\), got \(6, 8\)"):
        criterion(*batch, views=[views[0][:, :8], views[1]])
    none = onelabel.method("lasd", alpha=0.0, expected_positives=2.0)
    assert none.needs.views == 1
    loss = criterion(*batch, views=views)
    torch.testing.assert_close(loss, none(*batch) + 0.7 * consistency([batch[0], *views]))
    loss.backward()
    assert all(v.grad.abs().sum() > 0 for v in views)


@pytest.mark.parametrize("k", [9.0, 9.5, 0.0, -1.0, [2.0, 9.0]])
def test_k_must_leave_room_for_negatives(batch: tuple[torch.Tensor, torch.Tensor], k: object) -> None:
    logits = batch[0].expand(2, 6, 9) if isinstance(k, list) else batch[0]
    with pytest.raises(ValueError, match=r"expected_positives must lie in"):
        onelabel.method("las", expected_positives=k)(logits, batch[1])
