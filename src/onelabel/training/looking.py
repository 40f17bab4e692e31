"""How a teacher looks at pictures that a student is to learn: the whole, closer at its parts, and what goes with what.

A class is as present as in the part that shows it most, so the closer look is the largest of the parts' scores. It sees
small things that the whole does not, and takes parts of things for others; how far it is to be believed is asked of
the held-out rows, with or without true labels. Those with true labels also say which classes keep company, and what
annotators who prefer some therefore left out (docs/roll-call.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from onelabel.labels import Labels
from onelabel.losses.annotators import fit_preferences, left_open
from onelabel.losses.calibrate import Calibration, fit_calibration, log_likelihood
from onelabel.losses.context import Context, fit_context
from onelabel.losses.sample import draw_sample, known_sample
from onelabel.training.evaluate import Probabilities, to_logits
from onelabel.training.feeds import Feed

if TYPE_CHECKING:
    from onelabel.training.session import Session

#: Overlapping parts along a side, each half of it long.
PARTS = 3
#: How much the closer look may count beside the whole.
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)


def parts_of(pictures: Tensor) -> list[Tensor]:
    """The PARTS² parts of B×S×S×3 pictures, each brought to S×S."""
    side = pictures.shape[1]
    half = side - side // 2
    corners = torch.linspace(0, side - half, PARTS).round().int().tolist()
    found = []
    for y in corners:
        for x in corners:
            part = pictures[:, y : y + half, x : x + half].permute(0, 3, 1, 2).float()
            part = interpolate(part, size=(side, side), mode="bilinear", align_corners=False)
            found.append(part.round().to(pictures.dtype).permute(0, 2, 3, 1).contiguous())
    return found


@dataclass(frozen=True)
class Looks:
    """A split's logits N×L: of the whole pictures (mean probability of both flips), and of their parts if asked."""

    whole: Tensor
    closer: Tensor | None = None

    @classmethod
    def take(cls, session: Session, feed: Feed, *, closer: bool = True) -> Looks:
        """With the network as it is; mirrored pictures count only where training mirrors."""
        mirrors = session.config.augment != "none" and not session.phase.head_only

        def views(inputs: Tensor, p: Probabilities) -> tuple[Tensor, ...]:
            whole = (p(inputs) + p(inputs.flip(2))) / 2 if mirrors else p(inputs)
            return (whole, torch.stack([p(part) for part in parts_of(inputs)]).amax(0)) if closer else (whole,)

        found = session.scores_views(feed, views, title=f"teacher looks at {feed.name}")
        return cls(*map(to_logits, found))

    def combined(self, weight: float) -> Tensor:
        return self.whole if self.closer is None else self.whole + weight * self.closer


@dataclass(frozen=True)
class Belief:
    """What held-out rows make of a teacher's looks: how much the closer one counts, a line, and the other classes."""

    weight: float
    line: Calibration
    context: Context | None = None

    def logits(self, looks: Tensor) -> Tensor:
        """Of looks combined by `weight`, N×L, calibrated logits."""
        z = self.line.logits(looks)
        return z if self.context is None else self.context.logits(z)


def believe(looks: Looks, feed: Feed, train: Labels, *, context: bool = True, show: bool = False) -> Belief:
    """The closer look's weight, and σ(a·s + b_l) of the sum, by maximum likelihood on held-out rows.

    Of their true labels where they have them, else of their one observed label as a draw from those present. True
    labels also tell what other classes say of each, if asked for `context`; of one label a row it is too little. They
    are asked as the training set would be: there one label is named, which takes no part, by what annotators prefer.
    """
    best: tuple[float, Belief] | None = None
    for weight in WEIGHTS if looks.closer is not None else (0.0,):
        scores = looks.combined(weight)
        if feed.true is not None:
            sample, doubt = known_sample(scores, feed.true), "both"
        else:
            sample, doubt = draw_sample(scores, feed.part.observed), "either"
        line = fit_calibration(sample, knots=(), doubt=doubt)
        found = log_likelihood(line, sample, doubt=doubt)
        if best is None or found > best[0]:
            best = found, Belief(weight, line)
            learned = sample
    assert best is not None
    belief = best[1]
    if context and feed.true is not None:
        true, names = (learned.observed > 0).double(), names_of(train)
        counts = left_open(true, fit_preferences(true, names)) if names.any() else None
        told = fit_context(belief.line.logits(learned.scores), true, counts=counts, show=show)
        belief = replace(belief, context=told)
    return belief


def names_of(labels: Labels) -> Tensor:
    """How often each class is a row's one observed positive, L."""
    one = labels.take(np.flatnonzero(labels.positives_per_row() == 1))
    return torch.from_numpy(one.counts().positives)
