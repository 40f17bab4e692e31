"""Baselines: closed forms, known cases, and what they say of labels that do not suit them."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import onelabel
from onelabel import Labels


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 9, generator=rng, dtype=torch.float64) * 4
    return logits.requires_grad_(), torch.randint(-1, 2, (6, 9), generator=rng, dtype=torch.int8)


def value(name: str, batch: tuple[torch.Tensor, torch.Tensor], **hyper: object) -> tuple[torch.Tensor, torch.Tensor]:
    logits = batch[0].detach().clone().requires_grad_()
    loss = onelabel.method(name, **hyper)(logits, batch[1])
    loss.backward()
    return loss.detach(), logits.grad


def same(one: tuple[torch.Tensor, ...], two: tuple[torch.Tensor, ...], **tolerance: float) -> None:
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, **{"rtol": 1e-12, "atol": 1e-14, **tolerance})


def test_gradients_of_an_are_p_minus_one_and_p(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, observed = batch
    p = logits.detach().sigmoid()
    _, slope = value("an", batch)
    torch.testing.assert_close(slope * logits.numel(), torch.where(observed > 0, p - 1, p))


def test_bce_on_full_labels_is_torchs(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, observed = batch[0], torch.where(batch[1] > 0, 1, -1)
    target = (observed > 0).double()
    want = binary_cross_entropy_with_logits(logits, target)
    for name in ("bce", "iu", "iun", "an", "wan"):
        assert value(name, (logits, observed))[0] == pytest.approx(want.item(), rel=1e-13)
    smooth = binary_cross_entropy_with_logits(logits, target * 0.8 + 0.1)
    assert value("bce-ls", (logits, observed), smoothing=0.2)[0] == pytest.approx(smooth.item(), rel=1e-13)


def test_known_cases(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    an = value("an", batch)
    same(value("wan", batch, gamma=1.0), an)
    same(value("an-ls", batch, positive_smoothing=0.0, unknown_smoothing=0.0), an)
    same(value("n-ls", batch, unknown_smoothing=0.0), an)
    same(value("bce-ls", batch, smoothing=0.0), value("bce", batch))
    same(value("wan", batch), value("wan", batch, gamma=1 / 8))  # 1/(L−1)
    same(value("wan", batch, gamma=0.0), value("iu", batch))
    same(value("n-ls", batch), value("an-ls", batch, positive_smoothing=0.0))
    same(value("dw", batch), value("wan", batch, gamma=0.1))
    same(value("iun", batch), value("bce", batch))


def test_smoothing_flips_half_in_the_paper_and_all_in_the_program(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    """So the program's ε is the paper's 2ε, up to what it adds inside the logarithm."""
    right = batch[0].detach().abs().clamp(max=4)  # so that every flip costs
    batch = (torch.where(batch[1] > 0, right, -right), batch[1])
    for name, setting in (("an-ls", "unknown_smoothing"), ("bce-ls", "smoothing"), ("n-ls", "unknown_smoothing")):
        other = {"positive_smoothing": 0.2} if name == "an-ls" else {}
        half = {k: v / 2 for k, v in other.items()}
        program = value(name, batch, **{setting: 0.1}, **half, variant="reference")[0]
        assert program == pytest.approx(value(name, batch, **{setting: 0.2}, **other)[0].item(), abs=5e-4)
        assert program != pytest.approx(value(name, batch, **{setting: 0.1}, **half)[0].item(), abs=5e-3)


def test_the_program_caps_a_cost_at_its_epsilon() -> None:
    loss = onelabel.method("an", variant="reference")(torch.tensor([[-100.0]]), torch.tensor([[1]]))
    assert loss.item() == pytest.approx(-math.log(1e-5), rel=1e-5)


def test_normalise_observed_is_the_mean_over_what_a_row_knows() -> None:
    logits = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.1, -1.0], [2.0, 2.0, 2.0]], dtype=torch.float64)
    observed = torch.tensor([[1, -1, 0], [0, 1, 0], [0, 0, 0]])
    want = (math.log1p(math.exp(-1)) + math.log1p(math.exp(-2))) / 2 + math.log1p(math.exp(-0.1))
    got = onelabel.method("iu", normalise="observed")(logits, observed)
    assert got.item() == pytest.approx(want / 3, rel=1e-14)


def test_pseudo_negatives_average_to_wan() -> None:
    """With γ = 1/(unknown in the row), by the law of large numbers: 4000 draws, to four standard errors."""
    torch.manual_seed(1)
    logits = torch.randn(1, 7, dtype=torch.float64).expand(4000, 7).clone().requires_grad_()
    observed = torch.tensor([[1, 0, 0, -1, 0, 0, 0]], dtype=torch.int8).expand(4000, 7)
    criterion = onelabel.method("pseudo-negative")
    each = criterion.entries(logits, observed).sum(-1)
    want = onelabel.method("wan", gamma=1 / 5).entries(logits, observed).sum(-1)[0]
    assert abs(each.mean() - want) < 4 * each.std() / math.sqrt(4000)
    each.mean().backward()
    chosen = (logits.grad[:, observed[0] == 0] != 0).double()
    assert chosen.sum(-1).eq(1).all()  # one a row
    assert (chosen.mean(0) - 1 / 5).abs().max() < 4 * math.sqrt(0.2 * 0.8 / 4000)  # every unknown one alike
    assert (logits.grad[:, observed[0] != 0] != 0).all()


def test_pseudo_negative_draws_anew_and_leaves_known_rows_alone() -> None:
    logits = torch.zeros(50, 4)
    criterion = onelabel.method("pseudo-negative")
    drawn = {tuple((criterion.entries(logits, torch.zeros(50, 4)) != 0).flatten().tolist()) for _ in range(3)}
    assert len(drawn) == 3
    known = torch.tensor([[1, -1, 1, -1]]).expand(50, 4)
    torch.testing.assert_close(criterion(logits, known), onelabel.method("an")(logits, known))


def test_bce_refuses_positives_only_and_iu_warns() -> None:
    single = Labels.from_classes([0, 2, 1], num_classes=3)
    for name in ("bce", "bce-ls"):
        with pytest.raises(ValueError, match=r"no negative.*method\('an'\)"):
            onelabel.method(name).bind(single)
    for name in ("iu", "iun"):
        with pytest.warns(UserWarning, match="no negative label is observed"):
            onelabel.method(name).bind(single)
    full = Labels.from_matrix(np.array([[1, -1], [-1, 1]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("bce", "bce-ls", "iu", "iun"):
            criterion = onelabel.method(name)
            assert criterion.bind(full) is criterion


def test_normalise_must_be_known() -> None:
    with pytest.raises(ValueError, match="normalise must be 'all' or 'observed', got 'rows'"):
        onelabel.method("iu", normalise="rows")
