"""How a teacher looks: the parts of a picture, and how far they are believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import average_precision_score
from torch import Tensor
from training_workers import SMALL, scenes

import onelabel
from onelabel.data import FeatureDataset
from onelabel.labels import Labels
from onelabel.losses.annotators import fit_preferences, left_open
from onelabel.losses.context import fit_context
from onelabel.models import build_classifier
from onelabel.training import TrainConfig, train
from onelabel.training.feeds import Feed
from onelabel.training.looking import PARTS, Looks, believe, names_of, parts_of
from onelabel.training.machine import make_fabric
from onelabel.training.session import Session, phases_of


@pytest.mark.parametrize("side", [8, 9, 32])
def test_parts_cover_the_picture_at_twice_the_size(side: int) -> None:
    pictures = torch.randint(0, 255, (2, side, side, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    parts = parts_of(pictures)
    half = side - side // 2
    assert len(parts) == PARTS**2
    seen = torch.zeros(side, side, dtype=torch.bool)
    for i, part in enumerate(parts):
        assert part.shape == pictures.shape
        assert part.dtype == torch.uint8
        y, x = (round((side - half) * step / (PARTS - 1)) for step in divmod(i, PARTS))
        seen[y : y + half, x : x + half] = True
        for picture, found in zip(pictures, part, strict=True):
            cut = Image.fromarray(picture.numpy()).crop((x, y, x + half, y + half))
            wanted = np.asarray(cut.resize((side, side), Image.Resampling.BILINEAR))
            np.testing.assert_allclose(found.numpy(), wanted, atol=1)
    assert seen.all()


def held_out(rows: int, noise: tuple[float, float], *, seed: int = 0) -> tuple[Looks, Tensor, np.ndarray]:
    """Labels, one of each row's drawn, and two looks that see them through noise of their own."""
    rng = torch.Generator().manual_seed(seed)
    true = (torch.rand(rows, 6, generator=rng) < 0.3).to(torch.uint8)
    true = true[true.any(1).bool()]
    drawn = torch.multinomial(true.float(), 1, generator=rng)
    observed = torch.zeros(true.shape, dtype=torch.int8).scatter_(1, drawn, 1).numpy()
    whole, closer = (2.0 * true - 1 + sigma * torch.randn(true.shape, generator=rng) for sigma in noise)
    return Looks(whole, closer), true, observed


def feed_of(true: Tensor | None, observed: np.ndarray) -> Feed:
    known = None if true is None else true.numpy()
    names = tuple("abcdef")
    part = FeatureDataset(
        "held out", names, np.zeros((len(observed), 1), np.float32), Labels.from_matrix(observed), known
    )
    return Feed(part, torch.device("cpu"))


def names_like(observed: np.ndarray) -> Labels:
    """A training set that is named as these rows are."""
    return Labels.from_matrix(observed)


@pytest.mark.parametrize("clean", [True, False])
def test_a_look_is_believed_as_far_as_it_tells(clean: bool) -> None:
    """Two equally noisy looks count alike; one that is ten times as noisy does not count. With and without truth."""
    for noise, low, high in (((1.0, 1.0), 0.75, 1.5), ((1.0, 10.0), 0.0, 0.0), ((1.0, 1.6), 0.25, 0.5)):
        looks, true, observed = held_out(4000, noise)
        belief = believe(looks, feed_of(true if clean else None, observed), names_like(observed))
        assert low <= belief.weight <= high, noise
        assert belief.line.k == pytest.approx(float(true.sum(1).float().mean()), rel=0.02 if clean else 0.1)
    assert believe(Looks(looks.whole), feed_of(true if clean else None, observed), names_like(observed)).weight == 0


def companions(rows: int, *, seed: int = 0) -> tuple[Looks, Tensor, np.ndarray]:
    """Class b comes with a, which its own score says nothing of."""
    rng = torch.Generator().manual_seed(seed)
    true = (torch.rand(rows, 6, generator=rng) < 0.3).to(torch.uint8)
    true[:, 1] |= true[:, 0] & (torch.rand(rows, generator=rng) < 0.7)
    true[:, 5] |= ~true.any(1).bool()
    observed = torch.zeros(true.shape, dtype=torch.int8)
    observed.scatter_(1, torch.multinomial(true.float(), 1, generator=rng), 1)
    whole = 4.0 * true - 2 + 1.5 * torch.randn(true.shape, generator=rng)
    whole[:, 1] = torch.randn(rows, generator=rng)
    return Looks(whole), true, observed.numpy()


def test_other_classes_count_where_true_labels_say_so() -> None:
    looks, true, observed = companions(1500)
    belief = believe(looks, feed_of(true, observed), names_like(observed))
    assert belief.context is not None
    new, truth, _ = companions(4000, seed=1)
    z, alone = belief.logits(new.whole), belief.line.logits(new.whole)
    assert average_precision(z[:, 1], truth[:, 1]) > average_precision(alone[:, 1], truth[:, 1]) + 0.1
    names = names_like(observed)
    for off in (
        believe(looks, feed_of(true, observed), names, context=False),
        believe(looks, feed_of(None, observed), names),
    ):
        assert off.context is None
        torch.testing.assert_close(off.logits(new.whole), off.line.logits(new.whole))


def test_other_classes_speak_of_calibrated_logits_of_the_looks_that_are_believed() -> None:
    looks, true, observed = companions(1500)
    rng = torch.Generator().manual_seed(2)
    noisy = looks.whole + 2 * torch.randn(looks.whole.shape, generator=rng)
    looks = Looks(6 * noisy, 6 * looks.whole + 3)  # far from probabilities, and to be believed from close by
    belief = believe(looks, feed_of(true, observed), names_like(observed))
    assert belief.weight > 0
    z = belief.line.logits(looks.combined(belief.weight))
    assert (z - looks.combined(belief.weight)).abs().mean() > 1
    counts = left_open(true, fit_preferences(true, torch.from_numpy((observed > 0).sum(0))))
    wanted = fit_context(z, true, counts=counts)
    assert wanted is not None
    assert belief.context is not None
    torch.testing.assert_close(belief.context.weights, wanted.weights)
    torch.testing.assert_close(belief.context.mean, wanted.mean)


def test_held_out_rows_are_asked_as_the_training_rows_would_be() -> None:
    """Of annotators who always say `a` where it is: a row's `a` is never open, and others beside it always are."""
    looks, true, observed = companions(1500)
    first = np.zeros_like(observed)
    first[np.arange(len(true)), true.numpy().argmax(1)] = 1  # the first in the alphabet is named
    told = [believe(looks, feed_of(true, observed), names_like(names)).context for names in (observed, first)]
    assert told[0] is not None
    assert told[1] is not None
    assert told[1].shift[0] < told[0].shift[0] - 0.5  # an open `a` is rarer
    none = believe(looks, feed_of(true, observed), names_like(np.zeros_like(observed))).context
    wanted = fit_context(believe(looks, feed_of(true, observed), names_like(observed)).line.logits(looks.whole), true)
    assert none is not None
    assert wanted is not None
    torch.testing.assert_close(none.weights, wanted.weights)  # nothing named, nothing to tell from


def test_names_are_of_rows_with_one() -> None:
    observed = np.array([[1, 0, 0], [1, 0, -1], [1, 1, 0], [0, 0, 0], [0, -1, 0]], np.int8)
    assert names_of(Labels.from_matrix(observed)).tolist() == [2, 0, 0]


def average_precision(scores: Tensor, true: Tensor) -> float:
    return float(average_precision_score(true.numpy(), scores.numpy()))


def test_a_teacher_looks_at_the_whole_and_at_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    torch.manual_seed(0)
    data: Any = scenes(n_train=20, n_validation=7, n_test=5)
    config = TrainConfig.make({**SMALL, "mode": "finetune", "eval_batch_size": 4}).resolved()
    fabric, made = make_fabric(config), build_classifier(10, backbone="small-cnn")
    feeds = {name: Feed(part, fabric.device, size=config.size) for name, part in data.parts.items()}
    criterion = onelabel.method("em").bind(data.train.observed)
    session = Session(made, criterion, feeds["train"], fabric, config, phases_of(config)[-1], None)
    looks = Looks.take(session, feeds["validation"])
    made.eval()
    with torch.no_grad():
        pictures = feeds["validation"].inputs
        assert pictures is not None
        whole = (torch.sigmoid(made(pictures)) + torch.sigmoid(made(pictures.flip(2)))) / 2
        closer = torch.stack([made(part) for part in parts_of(pictures)]).amax(0)
    torch.testing.assert_close(looks.whole, torch.logit(whole), rtol=1e-4, atol=1e-4)
    assert looks.closer is not None
    torch.testing.assert_close(looks.closer, closer, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(looks.combined(0.5), looks.whole + 0.5 * looks.closer)
    session.config = replace(config, augment="none")  # as for digits, of which a mirrored one is another
    plain = Looks.take(session, feeds["validation"], closer=False)
    assert plain.closer is None
    made.eval()
    with torch.no_grad():
        torch.testing.assert_close(plain.whole, made(pictures), rtol=1e-4, atol=1e-4)


def test_looks_can_be_kept_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    monkeypatch.setattr("onelabel.training.looking.parts_of", lambda *_: pytest.fail("looked closer"))
    data: Any = scenes(n_train=20, n_validation=12, n_test=5)
    settings: dict[str, Any] = {**SMALL, "mode": "finetune", "epochs": 1, "student_looks": "whole"}
    train(replace(data, test=None), method="roll-call", **settings)
