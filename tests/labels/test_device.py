"""Labels on a device: the same rows, without waiting for the host."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from onelabel.labels import DeviceLabels, Labels


def sparse_matrix(n: int = 40, width: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dense = rng.choice([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, -1], (n, width)).astype(np.int8)
    dense[3] = 0
    dense[-1] = 0
    return dense


@pytest.fixture(params=["csr", "dense"])
def case(request: pytest.FixtureRequest) -> tuple[np.ndarray, DeviceLabels]:
    dense = sparse_matrix()
    on_device = Labels.from_matrix(dense).on("cpu", dense_limit=0 if request.param == "csr" else 1 << 20)
    assert on_device.layout == request.param
    return dense, on_device


@pytest.mark.parametrize("shape", [(), (7,), (0,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_rows(case: tuple[np.ndarray, DeviceLabels], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    dense, on_device = case
    index = torch.randint(0, len(dense), shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    batch = on_device.rows(index)
    assert batch.dtype == torch.int8
    assert batch.is_contiguous()
    np.testing.assert_array_equal(batch.numpy(), dense[index.numpy()])


def test_every_row_and_plain_lists(case: tuple[np.ndarray, DeviceLabels]) -> None:
    dense, on_device = case
    np.testing.assert_array_equal(on_device.rows(torch.arange(len(dense))).numpy(), dense)
    np.testing.assert_array_equal(on_device.rows([5, 3]).numpy(), dense[[5, 3]])
    assert len(on_device) == len(dense)
    assert on_device.shape == dense.shape
    assert "\n" not in repr(on_device)


def test_nothing_observed() -> None:
    on_device = Labels.from_matrix(np.zeros((50, 30), np.int8)).on("cpu", dense_limit=0)
    assert on_device.layout == "csr"
    assert not on_device.rows([0, 49]).any()


def test_dense_is_taken_where_it_is_smaller() -> None:
    assert Labels.from_true(np.eye(30)).on("cpu", dense_limit=0).layout == "dense"


@pytest.mark.parametrize("bad", [[True, False], [0.0]])
def test_bad_index(case: tuple[np.ndarray, DeviceLabels], bad: list) -> None:
    with pytest.raises(TypeError, match="index must hold integers"):
        case[1].rows(bad)
    with pytest.raises((IndexError, RuntimeError)):
        case[1].rows([case[1].num_examples + 1])


def test_shapes_never_depend_on_data(case: tuple[np.ndarray, DeviceLabels]) -> None:
    """Fake tensors have no data, so anything that would ask the device for a value raises."""
    _, on_device = case
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        index = mode.from_tensor(torch.tensor([[1, 2, 3]]))
        assert on_device.rows(index).shape == (1, 3, on_device.num_classes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_no_synchronisation_on_a_gpu(limit: int) -> None:
    dense = sparse_matrix()
    on_device = Labels.from_matrix(dense).on("cuda", dense_limit=limit)
    index = torch.tensor([[1, 39, 3], [5, 5, 0]], device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = on_device.rows(index)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    np.testing.assert_array_equal(batch.cpu().numpy(), dense[index.cpu().numpy()])
