"""On a GPU: resident batches and augmentation synchronise nothing and can be captured as a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from onelabel.data import Augment, Splits, device_pictures, load_dataset, make_views

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module")
def scenes() -> Splits:
    return load_dataset("digits-scenes", size=32, n_train=100, n_validation=0, n_test=0)


@pytest.mark.parametrize("placement", ["device", "host", "stream", None])
def test_batches_arrive_on_the_device(scenes: Splits, placement: str | None) -> None:
    pictures = device_pictures(scenes.train, 32, "cuda", placement=placement)  # type: ignore[arg-type]
    assert pictures.placement == (placement or "device")
    order = torch.randperm(100)
    got = list(pictures.batches(order, 32))
    assert all(index.is_cuda and images.is_cuda for index, images in got)
    index = torch.cat([index for index, _ in got]).cpu()
    images = torch.cat([images for _, images in got]).permute(0, 2, 3, 1).cpu()
    assert torch.equal(index, order)
    assert torch.equal(images, torch.from_numpy(scenes.train.source.images)[order])


def test_no_synchronisation_and_a_graph(scenes: Splits) -> None:
    pictures = device_pictures(scenes.train, 32, "cuda", placement="device")
    plain, strong = Augment(flip=0.5).cuda(), Augment.strong().cuda()
    index = torch.arange(16, device="cuda")

    def step() -> torch.Tensor:
        return make_views(pictures.batch(index), plain, strong, 3)

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        views = step()
    graph.replay()
    first = views.clone()
    graph.replay()
    assert views.shape == (3, 16, 3, 32, 32)
    assert not torch.equal(first[1], views[1])  # every replay draws anew
