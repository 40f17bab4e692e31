"""The one observed label as a draw from the labels present: its likelihood, and the method that maximises it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from onelabel.contract import Batch, Hyper, Method, register
from onelabel.losses.annotators import fit_slope
from onelabel.losses.curves import entropy, nll, same, unified
from onelabel.losses.naming import NamingHead, with_naming

if TYPE_CHECKING:
    from onelabel.labels import Labels

Rule = tuple[tuple[float, float], ...]


def _rule(n: int) -> Rule:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return tuple(((1 - float(t)) / 2, math.log(float(w) / 2)) for t, w in zip(nodes, weights, strict=True))


#: 1−t and the logarithm of the weight of every node t of ∫₀¹ dt. n nodes are exact for 2n classes; 32 of them are for
#: 64, and beyond that to 1e-10 while at most 150 of the classes are expected to be present.
RULES = tuple(_rule(n) for n in range(1, 33))
#: Nodes that weights take at least: their powers of t are no polynomial, and 10 nodes see them to 5e-4 while the
#: largest is at most NEAR times the smallest, all 32 while it is at most FAR times.
WEIGHTED_NODES = 10
NEAR, FAR = 11.0, 150.0
#: Entries, of nodes, rows and classes, that a CPU is given at once: a step's loss takes a third to two thirds of what
#: it takes node by node (`benchmarks/draw.py`). Where fewer than four nodes fit, they come one by one.
TOGETHER = 300_000


def draw_log_likelihood(
    logits: Tensor,
    observed: Tensor,
    *,
    weights: Tensor | None = None,
    nodes: int = WEIGHTED_NODES,
    exact: int | None = None,
) -> Tensor:
    """log P(observed | x) of every row, …×B, where y_l ~ Bernoulli(σ(logit_l)) are independent given x.

    A row with one positive o had it drawn evenly from its R+1 positives:

        P(o | x) = p_o·E[1/(1+R)],   E[1/(1+R)] = ∫₀¹ Π_{l unknown} (1 − p_l + p_l·t) dt.

    Several positives, or none, say that they are present and nothing of a draw. Known negatives are absent.
    Its derivative by a logit is P(y_l=1 | x, observed) − p_l: :func:`posterior`.

    With `weights` w the draw is not even, class l of those present is named in proportion to w_l:

        P(o | x) = p_o·E[w_o / (w_o + Σ w_l·y_l)] = p_o·∫₀¹ w_o·t^(w_o−1)·Π_{l unknown} (1 − p_l + p_l·t^w_l) dt.

    Args:
        weights: …×L numbers of 1 or more, the smallest best 1; only their ratios matter. They exclude `exact`.
        nodes: of the integral with weights, at least: 32 where one is more than NEAR times another.
        exact: of more than 2·exact classes only a row's `exact` likeliest enter one by one, the others by their sum,
            log(1−p+p·t) ≈ −p·(1−t), off by p²/2 at most: for thousands of classes, of which few are likely.
    """
    positive, negative = observed > 0, observed < 0
    known = -unified(observed, positive=nll(logits), unknown=torch.zeros_like(logits), negative=nll(-logits)).sum(-1)
    p = torch.sigmoid(logits).masked_fill(positive | negative, 0.0)
    one = positive.sum(-1) == 1
    if weights is None:
        terms = _at_nodes(p, exact)[0]
    else:
        own = torch.where(one, (weights * positive).sum(-1), 1.0)
        rule = RULES[min(max((p.shape[-1] + 1) // 2, nodes), len(RULES)) - 1]
        terms = _weighted(p, weights, own, rule)
    return known + torch.logsumexp(terms, -1).masked_fill(~one, 0.0)


def _weighted(p: Tensor, weights: Tensor, own: Tensor, rule: Rule) -> Tensor:
    """log(weight·w_o·t^(w_o−1)·Π(1−p+p·t^w)) at every node t, …×B×T."""

    def at(p: Tensor, weights: Tensor, own: Tensor, log_t: Any, log_weight: Any) -> Tensor:
        power = (weights * log_t).clamp(min=-14)  # a factor of exactly 0, at p = 1, would have no slope
        return torch.log1p(p * torch.expm1(power)).sum(-1, keepdim=True) + own.log() + (own - 1) * log_t + log_weight

    # A GPU compiles them into one kernel, and nothing may be sent to it while a graph is captured.
    if p.device.type != "cpu" or p.numel() > TOGETHER // 4:
        return torch.cat([at(p, weights, own[..., None], math.log1p(-missed), weight) for missed, weight in rule], -1)
    nodes = p.new_tensor([(math.log1p(-missed), weight) for missed, weight in rule])[..., None]
    wide = p[..., None, :], weights[..., None, :], own[..., None, None]
    some = nodes.split(TOGETHER // max(p.numel(), 1))
    return torch.cat([at(*wide, part[:, 0], part[:, 1]) for part in some], -2).squeeze(-1)


@torch.no_grad()
def posterior(logits: Tensor, observed: Tensor, *, exact: int | None = None) -> Tensor:
    """P(y_l=1 | x, observed) of every entry: 1 and 0 where it is known.

    q_l = p_l·Σ_t W_t·t/(1−p_l+p_l·t), with W the share of each node t in the integral of :func:`draw_log_likelihood`,
    which explains `exact`. Rows without a draw keep p.
    """
    z = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    p = torch.sigmoid(z)
    unknown = p.masked_fill(observed != 0, 0.0)
    terms, rule, top, at = _at_nodes(unknown, exact)
    nodes = torch.softmax(terms, -1) * terms.new_tensor([1 - missed for missed, _ in rule])
    share, one = torch.zeros_like(top), top.new_ones(())
    for i, (missed, _) in enumerate(rule):
        share.addcdiv_(nodes[..., i, None], torch.sub(one, top, alpha=missed))
    q = top * share
    if at is not None:
        rest = unknown * nodes.sum(-1, keepdim=True)
        q = (rest / (rest + 1 - unknown)).scatter(-1, at, q)
    q = torch.where((observed > 0).sum(-1, keepdim=True) == 1, q.clamp(max=1), unknown)
    return torch.where(observed > 0, 1.0, q).to(logits.dtype)


def log_any(logits: Tensor) -> Tensor:
    """log P(a row has any label at all) = log(1 − Π(1−p_l)), …×B; finite where no label has a chance."""
    none = -nll(-logits).sum(-1)
    return torch.log(-torch.expm1(none.clamp(max=-torch.finfo(none.dtype).tiny)))


def _at_nodes(p: Tensor, exact: int | None) -> tuple[Tensor, Rule, Tensor, Tensor | None]:
    """log(weight·Π(1−p+p·t)) at every node, …×B×T, by a rule; the entries that entered one by one, and their places."""
    classes, top, at, rest = p.shape[-1], p, None, None
    if exact is not None and classes > 2 * exact:
        top, at = p.topk(exact, -1, sorted=False)
        rest, classes = (p.sum(-1) - top.sum(-1)).clamp(min=0), 2 * exact
    rule = RULES[min((classes + 1) // 2, len(RULES)) - 1]
    # 1−p+p·t = 1−p·(1−t); a product takes half the time of a sum of logarithms, where it cannot underflow
    if p.dtype == torch.float64 and top.shape[-1] <= 2 * len(RULES) and not p.requires_grad:
        one = p.new_ones(())
        terms = [torch.sub(one, top, alpha=missed).prod(-1).log() + weight for missed, weight in rule]
    else:
        terms = [torch.log1p(top * -missed).sum(-1) + weight for missed, weight in rule]
    if rest is not None:
        terms = [term - rest * missed for term, (missed, _) in zip(terms, rule, strict=True)]
    return torch.stack(terms, -1), rule, top, at


@register(
    "roll-call",
    title="Roll call: the observed label as a draw from the labels present",
    paper="onelabel, docs/roll-call.md",
    year=2026,
    formula="−(1/L)·log(p_o·E[w_o/(w_o+Σ w·y)]) − (α/L)·Σ_{z=0} ½·log(p·(1−p)); then a student of its probabilities",
)
class RollCall(Method):
    """Roll call: maximum likelihood of the draw, and a coin for what it leaves open.

        −(1/L)·log P(o | x) + (α/L)·Σ_{l: z=0} ½·(−log p_l − log(1−p_l)),   P(o | x) = p_o·E[w_o / (w_o + Σ w_l·y_l)]

    with w_l = n_l^(γ+β), n_l how often class l is observed in training: to have named a common class says less against
    the others (docs/roll-call.md). EM has −log p_o in the likelihood's place, as if o had been asked about; a picture
    in which o had rivals says more about the rivals. A student follows.

    Args:
        alpha: weight of the pull of unknown entries to ½; None is √(0.2/L), 0.1 for VOC's 20 classes. Which is best
            depends on the features more than on L: `trials` are around it.
        gamma: γ, the weights of an even draw; all are 1 before `bind` has counted, and kept within a factor of FAR.
        preference: β, how much sooner annotators name common classes. A student's teacher takes what held-out rows say
            of it (`read_off`).
        naming: share λ of the naming distribution in a label's logit, (1−λ)·s_l + λ·log softmax(s)_l. The draw leaves
            open what is added to all of a row's scores; λ takes so much of it away. The classifier does it (`head`),
            and on frozen features `trials` have 0, ½ and 1; a network that is fine-tuned is better left at 0.
        pull: "coin", the cross-entropy to ½ above, or EM's −H(p), which lets go of what is far from ½.
    """

    hyper: ClassVar = {
        "alpha": Hyper("weight of the pull of unknown entries to ½, None for √(0.2/L)", 0, 10, (0.05, 0.1, 0.2)),
        "gamma": Hyper("how much a common class counts as a rival", 0, 1, (0.0, 0.3, 0.6)),
        "preference": Hyper("how much sooner annotators name a common class", 0, 4),
        "naming": Hyper("share of log softmax in the classifier's logits", 0, 1, (0.0, 0.5, 1.0)),
    }
    student = True

    def __init__(
        self,
        *,
        alpha: Any = None,
        gamma: Any = 0.3,
        preference: Any = 0.0,
        naming: Any = 0.0,
        pull: Literal["coin", "entropy"] = "coin",
        stack: int | None = None,
    ) -> None:
        if pull not in ("coin", "entropy"):
            raise ValueError(f"pull must be 'coin' or 'entropy', got {pull!r}")
        super().__init__(alpha=alpha, gamma=gamma, preference=preference, naming=naming, pull=pull, stack=stack)
        self.sooner: Tensor
        self.far: Tensor
        self._wide = [False]
        self.register_buffer("sooner", torch.zeros(0, dtype=torch.float64), persistent=False)
        self.register_buffer("far", torch.zeros(0, dtype=torch.bool), persistent=False)

    def bind(self, labels: Labels) -> Method:
        named = torch.from_numpy(labels.counts().positives).clamp(min=1).double()
        self.sooner = torch.log(named / named.amin()).to(self.sooner.device)
        spread = float(self.sooner.max())
        powers = map(sum, zip(self.each("gamma"), self.each("preference"), strict=True))
        self._wide = [power * spread > math.log(NEAR) for power in powers]
        self.far = torch.tensor(self._wide, device=self.sooner.device)
        return self

    def compute(self, batch: Batch) -> Tensor:
        logits, observed = batch.logits, batch.observed
        pull = -entropy(logits) if self.pull == "entropy" else nll(logits.abs()) + logits.abs() / 2
        alpha = _alpha(logits.shape[-1]) if self.alpha is None else self.alpha
        likelihood = self._log_likelihood(logits, observed)
        return self.reduce(alpha * pull.masked_fill(observed != 0, 0.0)) - (likelihood / logits.shape[-1]).mean(-1)

    def _log_likelihood(self, logits: Tensor, observed: Tensor) -> Tensor:
        """With as many nodes as each model's weights take, whatever the others of its stack do."""
        rules = [WEIGHTED_NODES] * (not all(self._wide)) + [len(RULES)] * any(self._wide)
        weights = self._weights(logits)
        few, *many = (draw_log_likelihood(logits, observed, weights=weights, nodes=nodes) for nodes in rules)
        return torch.where(self.far[:, None], many[0], few) if many else few

    def presence(self, outputs: Tensor) -> Tensor:
        return outputs if same(self.naming, 0.0) else with_naming(outputs, self.naming)

    def head(self, feature_dim: int, num_classes: int) -> nn.Module | None:
        share = max(self.each("naming"))  # a stack has no classifier of its own: probes ask `presence`
        return NamingHead(feature_dim, num_classes, share=share) if share else None

    @classmethod
    def trials(cls, num_classes: int, *, frozen: bool = True) -> dict[str, tuple[float, ...]]:
        alpha = tuple(float(f"{factor * _alpha(num_classes):.4g}") for factor in (0.25, 0.5, 1, 2, 4))
        return {"alpha": alpha, "naming": (0.0, 0.5, 1.0)} if frozen else {"alpha": alpha}

    @classmethod
    def read_off(cls, names: Tensor, true: Tensor) -> dict[str, float]:
        """What annotators prefer, as far as they prefer common classes."""
        return {"preference": round(max(0.0, fit_slope(true, names)), 3)}

    def _weights(self, logits: Tensor) -> Tensor | None:
        """w_l = (n_l / min n)^(γ+β), the least brought within FAR of the largest; None where all are the same."""
        if not self.sooner.numel() or (same(self.gamma, 0.0) and same(self.preference, 0.0)):
            return None
        log_w = (self.gamma + self.preference) * self.sooner.to(logits.dtype)
        beyond = (log_w.amax(-1, keepdim=True) - math.log(FAR)).clamp(min=0)
        return (log_w - beyond).clamp(min=0).exp()


def _alpha(num_classes: int) -> float:
    return math.sqrt(0.2 / num_classes)
