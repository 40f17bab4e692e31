"""`check_method`: whether a method keeps the promises that trainers and probes rely on, without pytest."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onelabel.contract import Method, method, method_info
from onelabel.methods.trial import EPOCHS, Subject, Trial, draw

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class BrokenPromise(AssertionError):
    """A method does not do what the contract says."""


def check_method(name: str, /, *, differences: bool = True, **hyper: Any) -> None:
    """Raise a `BrokenPromise` that names the first promise of the contract which a method breaks.

        check_method("soft-an")                       # its defaults, stacked with what its `hyper` says to search
        check_method("soft-an", beta=[0.25, 0.75])    # the settings of the models of a stack

    Args:
        name: the name it is registered by.
        differences: compare the gradient with differences of the loss; False where a part is detached on purpose.
        hyper: settings, as for `onelabel.method`.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        subject = Subject.of(name, hyper)
        for promise, check in PROMISES.items():
            if check is not _differences or differences:
                try:
                    check(subject)
                except Exception as error:
                    told = next(iter(str(error).strip().splitlines()), "")
                    kind = "" if isinstance(error, (BrokenPromise, ValueError)) else f"{type(error).__name__}: "
                    raise BrokenPromise(f"{name}: {promise}: {kind}{told}") from error


# -- the promises --------------------------------------------------------------------------------------------------


def _ranges(subject: Subject) -> None:
    info = method_info(subject.name)
    for key, setting in info.hyper.items():
        if key not in info.defaults:
            raise BrokenPromise(f"{key} is no keyword argument of __init__ with a default")
        bad = setting.low - 1 if math.isfinite(setting.low) else setting.high + 1
        if math.isfinite(bad):
            try:
                method(subject.name, **{**subject.common, key: bad})
            except ValueError:
                continue
            raise BrokenPromise(
                f"{key}={bad:g} was taken, outside [{setting.low:g}, {setting.high:g}]: pass it on to super().__init__"
            )


def _needs(subject: Subject) -> None:
    trial = subject.one().until(2)
    logits, observed, call = trial.inputs(2)
    for key in call:
        try:
            trial.made(logits, observed, **{k: v for k, v in call.items() if k != key})
        except ValueError:
            continue
        raise BrokenPromise(f"{key} is declared, and a call without it is not refused")
    if not trial.made.needs.epoch:
        first, last = (subject.one().until(2) for _ in range(2))
        first.made.begin_epoch(0, EPOCHS)
        last.made.begin_epoch(EPOCHS - 1, EPOCHS)
        _same(
            first.loss(logits, observed, call), last.loss(logits, observed, call), "another epoch", "needs epoch=True"
        )


def _finite(subject: Subject) -> None:
    start = subject.one().until(3)
    for dtype in DTYPES:
        trial = copy.deepcopy(start)
        logits, observed, call = trial.inputs(3, dtype)
        with torch.no_grad():
            logits.copy_(
                torch.tensor([-100.0, -30.0, 0.0, 30.0, 100.0])[torch.arange(logits.numel()) % 5].view_as(logits)
            )
        loss, slope = trial.loss(logits, observed, call)
        want = torch.promote_types(dtype, torch.float32)
        if loss.dtype != want:
            raise BrokenPromise(f"logits in {dtype} must give a loss in {want}, got {loss.dtype}")
        grads = [slope, *(p.grad.to_dense() for p in trial.made.parameters() if p.grad is not None)]
        for what, value in (("loss", loss), *(("gradient", g) for g in grads)):
            if not value.isfinite().all():
                raise BrokenPromise(f"logits within ±100 in {dtype} give a {what} that is not finite")


def _empty(subject: Subject) -> None:
    for trial in (subject.one().until(1), subject.stacked().until(1)):
        logits, observed, call = trial.inputs(1)
        call = {k: _cut(k, v, trial.made.stack) for k, v in call.items()}
        lead = logits.shape[:-2]
        loss, _ = trial.loss(logits.detach()[..., :0, :].requires_grad_(), observed[..., :0, :], call)
        if loss.shape != lead or loss.any():
            raise BrokenPromise(f"no rows must cost nothing, shape {tuple(lead)}, got {loss.tolist()}")


def _cut(key: str, value: Any, stack: int | None) -> Any:
    if key == "views":
        return [v[..., :0, :] for v in value]
    return value if key == "weights" else value[:0] if stack is None else value[:, :0]


def _order(subject: Subject) -> None:
    one, two = (subject.one(noise=False).until(3) for _ in range(2))
    logits, observed, call = one.inputs(3)
    by = torch.arange(len(logits)).flip(0)
    turned = {k: [x[by] for x in v] if k == "views" else v if k == "weights" else v[by] for k, v in call.items()}
    loss, slope = one.loss(logits, observed, call)
    again, other = two.loss(logits.detach()[by].requires_grad_(), observed[by], turned)
    if not one.drew:
        _same((loss, slope[by]), (again, other), "its rows in another order", "take no row for another")


def _types(subject: Subject) -> None:
    start = subject.one().until(3)
    logits, observed, call = start.inputs(3)
    want = copy.deepcopy(start).loss(logits, observed, call)
    for dtype in (torch.int16, torch.int64, torch.float16, torch.float32, torch.float64):
        got = copy.deepcopy(start).loss(logits, observed.to(dtype), call)
        _same(want, got, f"observed in {dtype}", "compare observed with 0, do not calculate in its dtype")


def _differences(subject: Subject, step: float = 1e-4) -> None:
    start = subject.one().until(3)
    logits, observed, call = start.inputs(3, torch.float64)
    way = draw(7, *logits.shape).double()

    def at(g: Tensor) -> tuple[Tensor, Tensor]:
        return copy.deepcopy(start).loss(g.detach().requires_grad_(), observed, call)

    slope = float((at(logits)[1] * way).sum())
    rise = float(at(logits + step * way)[0] - at(logits - step * way)[0]) / (2 * step)
    if not math.isclose(slope, rise, rel_tol=1e-3, abs_tol=1e-5):
        raise BrokenPromise(
            f"the loss rises by {rise:.6g} where its gradient says {slope:.6g} "
            "(differences=False where a part is detached on purpose)"
        )


def check_stack(subject: Subject) -> None:
    """Raise unless models in a stack get what each gets alone; what draws random numbers is not compared."""
    for noise in (True, False):
        many = subject.stacked(noise=noise).until(4)
        ones = [subject.one(m, noise=noise).until(4) for m in many.models]
        if many.drew or any(one.drew for one in ones):
            continue
        for m, one in enumerate(ones):
            for step in range(4):
                mine = (many.losses[step][m], many.slopes[step][m])
                remedy = (
                    "logits are M×B×L and index M×B there: count dimensions from the end, as in sum(-1), mean((-2, -1))"
                    if step == 0
                    else "memory is M×N×L there: keep it with Remembering's remembered, rows, recall and remember"
                )
                _same((one.losses[step], one.slopes[step]), mine, f"another model beside it (step {step + 1})", remedy)
            _same_state(one.made, many.made, m)
        return


def _same_state(one: Method, many: Method, model: int) -> None:
    state = many.state_dict()
    for key, mine in one.state_dict().items():
        if key not in state:
            raise BrokenPromise(f"a stack's state has no {key}")
        theirs = state[key]
        if theirs.shape != mine.shape and theirs.numel() == mine.numel() * (many.stack or 1):
            theirs = theirs.reshape(-1, *mine.shape)[model]
        loose = 2**-6 if mine.dtype == torch.bfloat16 else 1e-4
        if theirs.shape != mine.shape or not torch.allclose(
            theirs.double(), mine.double(), loose, loose, equal_nan=True
        ):
            raise BrokenPromise(
                f"{key} is another with a model beside it: a stack's is M×{'×'.join(map(str, mine.shape))}"
            )


def _copies(subject: Subject) -> None:
    trial = subject.one().until(3)
    before = {k: v.clone() for k, v in trial.made.state_dict().items()}
    copied = copy.deepcopy(trial).until(2 * EPOCHS)
    if not all(torch.equal(v, before[k]) for k, v in trial.made.state_dict().items()):
        raise BrokenPromise("training a copy changes the original")
    _go_on(trial.until(2 * EPOCHS), copied)


def _restored(subject: Subject) -> None:
    for make in (subject.one, subject.stacked):
        trial, again = make().until(3), make(seed=1)
        again.made.load_state_dict(copy.deepcopy(trial.made.state_dict()))
        for new, old in zip(again.optimizers, trial.optimizers, strict=True):
            new.load_state_dict(copy.deepcopy(old.state_dict()))
        again.at = trial.at
        _go_on(trial.until(2 * EPOCHS), again.until(2 * EPOCHS))


def _go_on(one: Trial, two: Trial) -> None:
    """Raise unless the last three steps agree bit for bit."""
    for a, b in zip(one.losses[3:] + one.slopes[3:], two.losses[-3:] + two.slopes[-3:], strict=True):
        if not torch.equal(a, b):
            raise BrokenPromise("it goes on differently: what it remembers must be buffers, what it learns parameters")


def _same(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor], what: str, remedy: str) -> None:
    for name, a, b in zip(("loss", "gradient"), one, two, strict=True):
        if a.dtype != b.dtype:
            raise BrokenPromise(f"the {name} is in {b.dtype} instead of {a.dtype} with {what}: {remedy}")
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-5):
            numbers = f" ({a.item():.6g}, {b.item():.6g})" if a.ndim == 0 else ""
            raise BrokenPromise(f"the {name} is another{numbers} with {what}: {remedy}")


PROMISES: dict[str, Callable[[Subject], None]] = {
    "settings are checked": _ranges,
    "it trains on what it needs": _needs,
    "a copy goes on alike": _copies,
    "a stack is its members alone": check_stack,
    "finite in every precision": _finite,
    "an empty batch": _empty,
    "rows in any order": _order,
    "labels of any number type": _types,
    "the gradient": _differences,
    "a restored state goes on alike": _restored,
}
