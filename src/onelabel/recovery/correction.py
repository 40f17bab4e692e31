"""What an audit's answers change about calibrated probabilities: Platt with class offsets, or isotonic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["auto", "platt", "isotonic"]
#: Audited present-but-unknown entries from which "auto" uses isotonic regression.
ISOTONIC_FROM = 500
#: Prior deviations of the slope (about 1) and the offset (about 0), in logits; and those tried for class offsets.
PRIOR, CLASS_PRIOR = (0.5, 2.0), (0.1, 0.25, 0.5, 1.0, 1.5)


def logit(q: Any) -> Floats:
    """Log odds; probabilities of 0 and 1 become ±log(10⁶)."""
    p = np.clip(np.asarray(q, np.float64), 1e-6, 1 - 1e-6)
    out: Floats = np.log(p) - np.log1p(-p)
    return out


def sigmoid(z: Any) -> Floats:
    out: Floats = 0.5 * (1 + np.tanh(np.asarray(z, np.float64) / 2))
    return out


@dataclass(frozen=True)
class Correction:
    """q → corrected q, per entry; and how uncertain that leaves sums of them.

    Platt: logit q′ = slope·logit q + offset + class_offset_l, with covariance of the 2 + L numbers. Isotonic: a step
    function of q through `xs`, `ys`.
    """

    kind: str
    entries: int
    present: int
    slope: float = 1.0
    offset: float = 0.0
    class_offset: Floats | None = None
    covariance: Floats | None = None
    information: NDArray[Any] | float = 0.0  #: on each class's own offset: Σ q(1−q) of its audited entries
    xs: Floats | None = None
    ys: Floats | None = None

    def apply(self, q: NDArray[Any]) -> NDArray[Any]:
        """Corrected probabilities of N×L entries."""
        if self.kind == "isotonic":
            assert self.xs is not None
            assert self.ys is not None
            return np.interp(q, self.xs, self.ys).astype(q.dtype)
        assert self.class_offset is not None
        return sigmoid(self.slope * logit(q) + self.offset + self.class_offset).astype(q.dtype)

    def gradient(self, q: NDArray[Any], corrected: NDArray[Any]) -> Floats:
        """Σ over rows of ∂q′/∂(slope, offset + own offset) per class, L×2: what `variance` wants."""
        curve = corrected.astype(np.float64) * (1 - corrected)
        return np.stack([(curve * logit(q)).sum(0), curve.sum(0)], 1)

    def variance(self, gradient: Floats) -> Floats:
        """Variance of each class's expected count, from :meth:`gradient`; 0 for isotonic, which has no covariance."""
        if self.covariance is None:
            return np.zeros(len(gradient))
        classes = len(gradient)
        G = np.zeros((classes, 2 + classes))
        G[:, :2] = gradient
        G[np.arange(classes), 2 + np.arange(classes)] = gradient[:, 1]
        out: Floats = np.einsum("li,ij,lj->l", G, self.covariance, G)
        return out


def fit_correction(
    q: Any, y: Any, classes: Any, *, num_classes: int, weights: Any = None, kind: Kind = "auto"
) -> Correction:
    """Learn from audited entries that were unknown: probability before, answer (0/1), class, design weight.

    Platt is a penalised logistic regression (`PRIOR`), so that ten answers move it little and a thousand decide; how
    far classes may differ is what makes the answers likeliest (Laplace's evidence over `CLASS_PRIOR`).
    """
    q, y, at = np.asarray(q, np.float64), np.asarray(y, np.float64), np.asarray(classes, np.int64)
    if not len(q):
        raise ValueError("audit: no unknown entry was answered; expected at least one")
    w = np.ones(len(q)) if weights is None else np.asarray(weights, np.float64)
    w = w / w.mean()
    present = int(y.sum())
    if kind not in ("auto", "platt", "isotonic"):
        raise ValueError(f"kind must be 'auto', 'platt' or 'isotonic', got {kind!r}")
    if kind == "isotonic" or (kind == "auto" and present >= ISOTONIC_FROM):
        try:
            from sklearn.isotonic import IsotonicRegression
        except ImportError:
            raise ImportError("isotonic calibration needs scikit-learn: pip install 'onelabel[sklearn]'") from None
        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(q, y, w)
        steps = {"xs": fitted.X_thresholds_, "ys": fitted.y_thresholds_}
        return Correction("isotonic", len(q), present, information=np.bincount(at, q * (1 - q), num_classes), **steps)
    x = logit(q)
    fits = [_platt(x, y, at, w, num_classes, spread) for spread in CLASS_PRIOR]
    _, theta, H = max(fits, key=lambda fit: fit[0])
    slope = max(float(theta[0]), 1e-3)  # the order of the scores is never turned round
    p = sigmoid(slope * x + theta[1] + theta[2 + at])
    known = np.bincount(at, p * (1 - p), num_classes)
    covariance = np.asarray(np.linalg.inv(H), np.float64)
    return Correction("platt", len(q), present, slope, float(theta[1]), theta[2:], covariance, known)


def _platt(
    x: Floats, y: Floats, at: NDArray[np.int64], w: Floats, classes: int, spread: float
) -> tuple[float, Floats, Floats]:
    """Log evidence, parameters and curvature for one prior deviation of class offsets."""
    size = 2 + classes
    precision = np.concatenate([[PRIOR[0] ** -2, PRIOR[1] ** -2], np.full(classes, spread**-2)])
    centre = np.zeros(size)
    centre[0] = 1.0
    theta = centre.copy()
    H = np.diag(precision)

    def value(t: Floats) -> float:
        z = t[0] * x + t[1] + t[2 + at]
        return float((w * (y * z - np.logaddexp(0, z))).sum() - 0.5 * (precision * (t - centre) ** 2).sum())

    for _ in range(50):
        p = sigmoid(theta[0] * x + theta[1] + theta[2 + at])
        r, h = w * (y - p), w * p * (1 - p)
        gradient = np.concatenate([[r @ x, r.sum()], np.bincount(at, r, classes)]) - precision * (theta - centre)
        H = np.diag(precision)
        H[0, 0] += h @ (x * x)
        H[0, 1] += h @ x
        H[1, 1] += h.sum()
        by = np.bincount(at, h, classes)
        H[0, 2:] += np.bincount(at, h * x, classes)
        H[1, 2:] += by
        H[2:, 2:] += np.diag(by)
        H = np.triu(H) + np.triu(H, 1).T
        step, here = np.linalg.solve(H, gradient), value(theta)
        while value(theta + step) < here and np.abs(step).max() > 1e-9:  # concave: a shorter step always gains
            step = step / 2
        theta = theta + step
        if np.abs(step).max() < 1e-8:
            break
    fit = value(theta)
    evidence = fit + 0.5 * float(np.log(precision).sum() - np.linalg.slogdet(H)[1])
    return evidence, theta, H
