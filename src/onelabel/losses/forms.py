"""Which curves each element-wise method is made of: the forms that kernels evaluate in place of its `entries`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from onelabel.contract import Method, check_k
from onelabel.kernels import form as f
from onelabel.kernels.form import Curve, Form, focal, mix, nll
from onelabel.losses.baselines import ANLS, BCE, IU, WAN
from onelabel.losses.entropy import EM, EntMin
from onelabel.losses.focal import ASL, SPLC, Focal, Hill
from onelabel.losses.lasd import LASD, balanced_weight
from onelabel.losses.robust import GR

Mode = Literal["auto", "on", "off", "compile"]
NEGATIVE = nll().mirrored()
NONE = Curve()


Seen = Callable[[], Tensor]
Builder = Callable[[Any, int, Seen], Form | None]


def form_of(method: Method, logits: Tensor, observed: Tensor) -> Form | None:
    """The form of a method for a batch, or None."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return make_form(method, logits.shape[-1], lambda: (observed != 0).sum(-1, dtype=wide))


def make_form(method: Method, num_classes: int, seen: Seen) -> Form | None:
    """The form of a method for so many classes; `seen` counts the observed entries of each row, where it asks for them.

    A subclass that overrides `entries` or `compute` is not taken for its parent.
    """
    kind = type(method)
    if kind not in _BUILDERS:
        same = (
            build
            for cls, build in _FORMS.items()
            if issubclass(kind, cls)
            and all(getattr(kind, name) is getattr(cls, name) for name in ("entries", "compute", "reduce"))
        )
        _BUILDERS[kind] = next(same, None)
    build = _BUILDERS[kind]
    return None if build is None else build(method, num_classes, seen)


def _bce(m: Any, num_classes: int, seen: Seen) -> Form:
    curve = mix(m.smoothing, _share(m), eps=m.eps)
    return Form(curve, NONE, curve.mirrored())


def _iu(m: Any, num_classes: int, seen: Seen) -> Form:
    rows = None
    if m.normalise == "observed":
        share = num_classes / seen().clamp(min=1)
        rows = share.expand(3, *share.shape)
    return Form(nll(eps=m.eps), NONE, nll(eps=m.eps).mirrored(), rows=rows)


def _anls(m: Any, num_classes: int, seen: Seen) -> Form:
    return Form(
        mix(m.positive_smoothing, _share(m), eps=m.eps),
        mix(m.unknown_smoothing, _share(m), eps=m.eps).mirrored(),
        nll(eps=m.eps).mirrored(),
    )


def _wan(m: Any, num_classes: int, seen: Seen) -> Form:
    gamma = 1.0 / max(num_classes - 1, 1) if m.gamma is None else m.gamma
    return Form(nll(eps=m.eps), nll(gamma, eps=m.eps).mirrored(), nll(eps=m.eps).mirrored())


def _em(m: Any, num_classes: int, seen: Seen) -> Form:
    return _entropy(m, -m.alpha)


def _entmin(m: Any, num_classes: int, seen: Seen) -> Form:
    return _entropy(m, m.alpha)


def _entropy(m: Any, weight: Any) -> Form:
    unknown = Curve(f.ENTROPY_EPS, (weight, m.eps)) if m.eps else Curve(f.ENTROPY, (weight,))
    return Form(nll(eps=m.eps), unknown, nll(eps=m.eps).mirrored())


def _focal(m: Any, num_classes: int, seen: Seen) -> Form:
    if m.alpha is None:
        return Form(focal(m.gamma), focal(m.gamma).mirrored(), NEGATIVE)
    return Form(focal(m.gamma, m.alpha), focal(m.gamma, 1 - m.alpha).mirrored(), NEGATIVE)


def _asl(m: Any, num_classes: int, seen: Seen) -> Form:
    fourth = not m.detach_focus and not isinstance(m.gamma_negative, Tensor) and m.gamma_negative == 4
    if not isinstance(m.margin, Tensor) and m.margin == 0:
        unknown = focal(m.gamma_negative, detached=m.detach_focus).mirrored()
    elif fourth and not isinstance(m.margin, Tensor):
        unknown = Curve(f.SHIFTED_FOURTH, (4.0, m.margin))
    else:
        unknown = Curve(f.SHIFTED_DETACHED if m.detach_focus else f.SHIFTED, (m.gamma_negative, m.margin))
    return Form(focal(m.gamma_positive, detached=m.detach_focus), unknown, NEGATIVE)


def _margin(m: Any) -> Curve:
    return nll() if m.margin is None else Curve(f.MARGIN, (m.gamma, m.margin))


def _hill(m: Any, num_classes: int, seen: Seen) -> Form:
    return Form(_margin(m), Curve(f.HILL, (m.lam,)), NEGATIVE)


def _splc(m: Any, num_classes: int, seen: Seen) -> Form:
    if m.negative == "hill":
        unknown = Curve(f.THRESHOLD_HILL, (m.tau, m.started, m.gamma, 1.0, 1.5))
    else:
        unknown = Curve(f.THRESHOLD_SAME, (m.tau, m.started, m.gamma))
    return Form(_margin(m), unknown, NEGATIVE)


def _lasd(m: Any, num_classes: int, seen: Seen) -> Form:
    weight = m.lam_negative
    if weight is None:
        check_k(m.each("expected_positives"), num_classes, below=True)
        weight = balanced_weight(m.expected_positives, num_classes, m.lam_positive)
    if isinstance(m.tau, Tensor) or m.tau < 1:
        unknown = Curve(f.THRESHOLD, (m.tau, 1.0, m.gamma_positive, m.lam_positive, m.gamma_negative, weight))
    else:
        unknown = focal(m.gamma_negative, weight).mirrored()
    return Form(focal(m.gamma_positive), unknown, NEGATIVE, by_rows=True)


def _gr(m: Any, num_classes: int, seen: Seen) -> Form | None:
    if m.trainable:
        return None
    kind = f.ROBUST
    if not isinstance(m.q3, Tensor) and m.q3 == 1:
        kind = f.ROBUST_GENTLE if m.gentle else f.ROBUST_LINEAR
    now = [getattr(m, f"{name}_now") for name in ("w", "b", "mu", "sigma")]
    positive = nll(eps=m.eps) if m.eps else Curve(f.GENERALISED, (m.q1,))
    return Form(positive, Curve(kind, (m.q2, m.q3, *now)), NEGATIVE)


def _share(m: Any) -> float:
    """Papers flip ε/2, published programs ε."""
    return 1.0 if m.variant == "reference" else 0.5


_FORMS: dict[type[Any], Builder] = {
    BCE: _bce,
    IU: _iu,
    ANLS: _anls,
    WAN: _wan,
    EM: _em,
    EntMin: _entmin,
    Focal: _focal,
    ASL: _asl,
    Hill: _hill,
    SPLC: _splc,
    LASD: _lasd,
    GR: _gr,
}
#: Which of them a class takes, found once.
_BUILDERS: dict[type[Any], Builder | None] = {}
