"""What every metric promises: kinds, stacks, devices, and a host that never waits."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onelabel import metrics
from onelabel.metrics._sorting import running_max

# name: what it needs beside scores and true
EXTRA = {
    "average_precision": {},
    "best_thresholds": {},
    "brier_score": {},
    "calibration_error": {},
    "cost_sensitive_hamming_loss": {},
    "coverage_error": {},
    "f1_score": {},
    "false_negative_share": {"observed": None},
    "hamming_loss": {},
    "label_ranking_average_precision": {},
    "label_recovery_ap": {"observed": None},
    "mean_average_precision": {},
    "one_error": {},
    "ppv_npv": {"tau": 0.5},
    "precision_at_k": {"k": 2},
    "precision_recall": {},
    "ranking_loss": {},
    "recall_at_k": {"k": 2},
    "reliability": {},
    "wasserstein": {"observed": None},
}
VARIANTS = {
    "average_precision": [{"micro": True}, {"empty": "skip"}],
    "precision_recall": [{"top": 2}],
    "mean_average_precision": [{"micro": True}, {"empty": "skip"}],
    "best_thresholds": [{"micro": True}],
    "f1_score": [{"average": "micro"}, {"average": None}],
    "brier_score": [{"average": "macro"}, {"average": None}],
    "calibration_error": [{"binning": "mass"}, {"norm": "l2", "average": None}, {"norm": "max", "average": "macro"}],
    "cost_sensitive_hamming_loss": [{"costs": (1.0, 2.0)}],
    "false_negative_share": [{"average": None}, {"average": "macro"}],
    "label_recovery_ap": [{"entries": "unknown"}],
    "ppv_npv": [{"average": "micro"}, {"average": None}],
    "reliability": [{"binning": "mass", "pool": False}],
    "wasserstein": [{"average": "micro"}, {"average": "macro"}],
}
CASES = [(name, variant) for name in EXTRA for variant in [{}, *VARIANTS.get(name, [])]]
every_case = pytest.mark.parametrize(("name", "variant"), CASES, ids=lambda x: str(x))


def call(name, variant, scores, true, mask):
    """The metric with all it takes; `mask` doubles as what is unknown."""
    metric = getattr(metrics, name)
    arguments = {**EXTRA[name], **variant}
    if "observed" in arguments:
        arguments["observed"] = 1 - mask * 1
    elif "mask" in inspect.signature(metric).parameters:
        arguments["mask"] = mask
    result = metric(scores, true, **arguments)
    return result if isinstance(result, tuple) else (result,)


def problem(shape=(3, 40, 6), dtype=np.float32):
    rng = np.random.default_rng(0)
    scores = (rng.integers(0, 20, shape) / 20).astype(dtype)
    return scores, rng.random(shape) < 0.3, rng.random(shape) < 0.8


def test_every_metric_is_here():
    public = {name for name in metrics.__all__ if inspect.isfunction(getattr(metrics, name))}
    assert public - {"mask_from"} == set(EXTRA)


class NoWaiting(TorchDispatchMode):
    """Refuse the operations for which the host waits for a GPU."""

    waits = ("_local_scalar_dense", "nonzero", "masked_select", "item", "is_nonzero", "equal", "bincount", "unique")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in self.waits or name.startswith("unique"):
            raise AssertionError(f"{func} makes the host wait")
        if name in ("index", "index_put", "index_put_") and any(
            i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]
        ):
            raise AssertionError(f"{func} with a boolean index makes the host wait")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Take tensors for a GPU's, whose values nobody may look at."""
    for name, module in list(sys.modules.items()):
        if name.startswith("onelabel.metrics") and hasattr(module, "on_host"):
            monkeypatch.setattr(module, "on_host", lambda _: False)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_case
def test_the_host_never_waits(name, variant, dtype):
    scores, true, mask = (torch.from_numpy(x) for x in problem())
    expected = call(name, variant, *problem(dtype=np.float32))
    with NoWaiting():
        got = call(name, variant, scores.to(dtype), true, mask)
        call(name, variant, scores[0].to(dtype), true[0].to(torch.int8), mask[0].float())
    if dtype == torch.float32:
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("length", [64, 65, 127, 128, 200])
def test_long_rows_are_scanned_in_blocks(length):
    rows = torch.randint(0, 50, (3, length), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(running_max(rows, block=1), rows.cummax(1).values)
    rows = rows.repeat(1, 3)
    torch.testing.assert_close(running_max(rows, block=3), rows.cummax(1).values)


def test_the_test_for_waiting_can_fail():
    x = torch.ones(3)
    for wait in (lambda: bool(x.any()), lambda: x[x > 0], lambda: x.nonzero(), lambda: x.max().item()):
        with NoWaiting(), pytest.raises(AssertionError, match="makes the host wait"):
            wait()


@pytest.mark.usefixtures("as_on_a_gpu")
@every_case
def test_shapes_are_found_without_values(name, variant):
    """On the meta device there are no values at all to wait for."""
    scores, true, mask = (torch.from_numpy(x) for x in problem())
    expected = call(name, variant, scores, true, mask)
    got = call(name, variant, scores.to("meta"), true.to("meta"), mask.to("meta"))
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        assert a.device.type == "meta"


@every_case
def test_a_stack_is_its_models_one_by_one(name, variant):
    scores, true, mask = problem((2, 3, 40, 6))
    for y in (true, true[0, 0]):
        for m in (mask, mask[0, 0]):
            got = call(name, variant, scores, y, m)
            for i in np.ndindex(2, 3):
                one = call(name, variant, scores[i], y[i] if y.ndim > 2 else y, m[i] if m.ndim > 2 else m)
                for a, b in zip(got, one, strict=True):
                    if a.shape[:2] == (2, 3):  # the edges of bins are the same for all
                        np.testing.assert_allclose(a[i], b, rtol=1e-12)


@every_case
def test_the_kind_comes_back(name, variant):
    scores, true, mask = problem((40, 6))
    arrays = call(name, variant, scores, true, mask)
    tensors = call(name, variant, *(torch.from_numpy(x) for x in (scores, true, mask)))
    for a, t in zip(arrays, tensors, strict=True):
        assert isinstance(t, torch.Tensor)
        assert type(a) is (float if t.ndim == 0 else np.ndarray)
        np.testing.assert_allclose(a, t.numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@every_case
def test_every_floating_type(name, variant, dtype):
    scores, true, mask = (torch.from_numpy(x) for x in problem((40, 6)))
    scores = ((scores * 16).round() / 16).to(dtype)  # exact in all of them
    expected = call(name, variant, scores.double(), true, mask)
    for a, b in zip(call(name, variant, scores, true, mask), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (6, 1), (6, 2)])
@pytest.mark.parametrize("fill", [0, 1])
@every_case
def test_the_smallest_and_the_one_sided(name, variant, shape, fill):
    if "k" in EXTRA[name]:
        variant = {**variant, "k": 1}
    if "top" in variant:
        variant = {"top": 1}
    scores, true = np.full(shape, 0.25, np.float32), np.full(shape, fill)
    for mask in (np.ones(shape, bool), np.zeros(shape, bool)):
        for value in call(name, variant, scores, true, mask):
            assert not np.isinf(value).any() or name == "best_thresholds"


@every_case
def test_nan_and_shapes_are_refused(name, variant):
    scores, true, mask = problem((40, 6))
    with pytest.raises(ValueError, match=r"true has shape \(39, 6\); expected \(40, 6\)"):
        call(name, variant, scores, true[1:], mask)
    with pytest.raises(ValueError, match="true is 3 at row 0, class 0; expected 0 or 1"):
        call(name, variant, scores, np.full(true.shape, 3), np.ones_like(mask))
    scores[7, 2] = np.nan
    with pytest.raises(ValueError, match="scores is NaN at row 7, class 2"):
        call(name, variant, scores, true, mask)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_labels_above_zero_are_positive_where_nothing_is_checked():
    scores, true, _ = problem((40, 6))
    ternary = torch.from_numpy(np.where(true, 1, -1))
    got = metrics.mean_average_precision(torch.from_numpy(scores), ternary)
    assert got == metrics.mean_average_precision(torch.from_numpy(scores), torch.from_numpy(true))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_case
def test_on_a_gpu(name, variant):
    arrays = problem()
    gpu = [torch.from_numpy(x).cuda() for x in arrays]
    call(name, variant, *gpu)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        got = call(name, variant, *gpu)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for a, b in zip(got, call(name, variant, *arrays), strict=True):
        np.testing.assert_allclose(a.cpu(), b, rtol=1e-10)
