"""Scores of a split, batched on the device and exact over all processes, and the metrics of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onelabel.data import Dataset, FileSource
from onelabel.data.cache import default_cache
from onelabel.losses.calibrate import fitted_log_likelihood
from onelabel.losses.sample import draw_sample
from onelabel.metrics import mean_average_precision
from onelabel.models import Classifier
from onelabel.system import progress
from onelabel.training.config import TrainConfig
from onelabel.training.feeds import Feed
from onelabel.training.machine import all_parts

Forward = Callable[..., tuple[Tensor, Tensor]]
Probabilities = Callable[[Tensor], Tensor]
#: Entries of validation that a likelihood is calibrated on, every epoch: 10,000 rows of 20 classes, half a second.
LIKELIHOOD_ENTRIES = 200_000


def score(
    module: nn.Module, feed: Feed, fabric: Any, *, batch_size: int, flip: bool = False, forward: Forward | None = None
) -> Tensor:
    """Probabilities N×L of a split in its own order, in eval mode; `flip` averages those of the mirrored pictures."""
    return score_flips(module, feed, fabric, batch_size=batch_size, flip=flip, forward=forward)[-1]


def score_flips(
    module: nn.Module, feed: Feed, fabric: Any, *, batch_size: int, flip: bool = True, forward: Forward | None = None
) -> tuple[Tensor, ...]:
    """Probabilities N×L of the pictures and, with `flip`, also averaged with those of the mirrored ones."""

    def views(inputs: Tensor, p: Probabilities) -> tuple[Tensor, ...]:
        plain = p(inputs)
        if not flip:
            return (plain,)
        return plain, (plain + p(inputs.flip(2))) / 2 if inputs.ndim == 4 else plain

    return score_views(module, feed, fabric, views, batch_size=batch_size, forward=forward)


@torch.no_grad()
def score_views(
    module: nn.Module,
    feed: Feed,
    fabric: Any,
    views: Callable[[Tensor, Probabilities], tuple[Tensor, ...]],
    *,
    batch_size: int,
    forward: Forward | None = None,
    title: str = "",
) -> tuple[Tensor, ...]:
    """What `views(inputs, p)` makes of every batch of a split with p, the network's probabilities; N×L each, in order.

    Every process scores its share of the rows and gets all of them back. Batches are padded to one shape, so that a
    compiled `forward` is compiled once. title: of a progress bar.
    """
    call = module if forward is None else forward
    was, wanted = module.training, _share(feed.rows, fabric)
    share = len(wanted)
    size = min(batch_size, share)
    wanted = torch.cat([wanted, wanted[-1:].expand(-share % size)])
    module.eval()
    parts: list[tuple[Tensor, ...]] = []
    try:
        with progress(title, len(wanted), wanted=bool(title) and fabric.is_global_zero) as advance, fabric.autocast():
            for inputs in feed.batches(wanted, size):
                parts.append(views(inputs, lambda x: torch.sigmoid(call(x)[0].float())))
                advance(len(inputs))
    finally:
        module.train(was)
    return tuple(_everything(torch.cat(each)[:share], feed.rows, fabric) for each in zip(*parts, strict=True))


def truth(feed: Feed) -> tuple[Tensor, bool]:
    """What scores are compared with: true labels, or the observed positives where nobody knows the true ones."""
    if feed.true is not None:
        return feed.true, True
    return (feed.all_observed() > 0).to(torch.uint8), False


def mean_ap(scores: Tensor, feed: Feed, *, empty: str = "skip") -> float:
    """mAP in percent; of the observed positives, unknown entries counted as absent, where nobody knows more."""
    found = 100 * float(mean_average_precision(scores, truth(feed)[0], empty=empty))  # type: ignore[arg-type]
    return 0.0 if math.isnan(found) else found  # no class has a positive


def draws(feed: Feed) -> bool:
    """Whether any row has exactly one observed positive, so that there is a draw to have a likelihood."""
    return bool((feed.part.observed.positives_per_row() == 1).any())


def draw_likelihood(probabilities: Tensor, feed: Feed) -> float:
    """Mean log P(the one observed label | x) of the rows that have one, after calibration: no true label is needed.

    mAP of the observed labels, each row's others counted as absent, prefers a network that says the name and nothing
    else; a likelihood of the name as one of several labels does not (docs/roll-call-measured.md). It is the probes'
    criterion, to the end of its EM (`probes.criteria.draw_likelihood` says why it is not that of a row known to have a
    label).
    """
    sample = draw_sample(to_logits(probabilities), feed.part.observed, entries=LIKELIHOOD_ENTRIES)
    return float(fitted_log_likelihood(sample, doubt="both"))


def to_logits(probabilities: Tensor) -> Tensor:
    """The logit, within what float32 probabilities tell apart."""
    return torch.logit(probabilities.float().clamp(1e-7, 1 - 1e-7))


@torch.no_grad()
def features_of(classifier: Classifier, feed: Feed, fabric: Any, config: TrainConfig) -> Tensor:
    """Pooled float32 features N×D of a split's pictures in eval mode.

    Through the data room's cache where a folder is given for it. By itself ("auto") the common one is taken for
    pictures in files on a CPU, where features are most of the work: a run that is resumed, `compare` and `recover`
    then find them made.
    """
    backbone, place = classifier.backbone, config.feature_cache
    if place == "auto":
        place = _common_cache(feed)
    if place != "off" and isinstance(feed.part, Dataset):
        from onelabel.data import features

        mean, std = ((b.flatten() / 255).tolist() for b in (classifier.mean, classifier.std))
        options: dict[str, Any] = {"size": config.size, "mean": mean, "std": std, "cache": place}
        with fabric.rank_zero_first():
            found = features(feed.part, backbone, device=feed.device, **options)
        return torch.from_numpy(np.array(found.array, dtype=np.float32)).to(feed.device)
    was, rows = backbone.training, _share(feed.rows, fabric)
    backbone.eval()
    parts, shown = [], fabric.is_global_zero and isinstance(feed.part, Dataset)
    with (
        torch.autocast(feed.device.type, enabled=False),
        progress(f"features of {feed.name}", len(rows), wanted=shown) as advance,
    ):
        for x in feed.batches(rows, config.eval_batch_size):
            parts.append(backbone(classifier.normalise(x)).float())
            advance(len(x))
    backbone.train(was)
    return _everything(torch.cat(parts), feed.rows, fabric)


def _common_cache(feed: Feed) -> str:
    files = isinstance(feed.part, Dataset) and isinstance(feed.part.source, FileSource)
    if not files or feed.device.type != "cpu":
        return "off"
    folder = default_cache()
    try:  # nobody asked for it, so a home that cannot be written to is no reason to stop
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return "off"
    return str(folder) if os.access(folder, os.W_OK) else "off"


def _share(rows: int, fabric: Any) -> Tensor:
    """This process's rows: equal shares, the last row repeated where they do not divide evenly."""
    share = -(-rows // fabric.world_size)
    first = fabric.global_rank * share
    return torch.arange(first, first + share).clamp(max=rows - 1)


def _everything(local: Tensor, rows: int, fabric: Any) -> Tensor:
    if fabric.world_size == 1:
        return local[:rows]
    return torch.cat(all_parts(local, fabric))[:rows]
