"""Resident and streamed pictures, the square cache, and where pictures go."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from onelabel.data import DataError, Dataset, device_pictures, load_dataset
from onelabel.data.memory import choose_placement, free_host_memory


@pytest.fixture
def data(class_folder: Path) -> Dataset:
    (class_folder / "cat" / "cat9.jpg").write_bytes((class_folder / "cat" / "cat0.jpg").read_bytes()[:-150])
    return load_dataset(class_folder, validation=0).train  # headers are fine, so the truncated one is still in


def _expected(data: Dataset, size: int) -> np.ndarray:
    """Squares by torchvision's own published transform; grey where the picture is broken."""
    from PIL import Image
    from torchvision.transforms import Resize

    squares = []
    for row, path in enumerate(data.source.paths):
        try:
            with Image.open(str(data.source.raw(row))) as image:
                squares.append(np.asarray(Resize((size, size))(image.convert("RGB"))))
        except OSError:
            assert path == "cat/cat9.jpg"
            squares.append(np.full((size, size, 3), 128, np.uint8))
    return np.stack(squares)


@pytest.mark.parametrize("placement", ["host", "stream", None])
@pytest.mark.parametrize("cached", [False, True])
def test_batches_are_the_published_squares(placement: str | None, cached: bool, data: Dataset, tmp_path: Path) -> None:
    cache = tmp_path / "cache" if cached else None
    pictures = device_pictures(data, 24, placement=placement, cache=cache, workers=2)  # type: ignore[arg-type]
    expected = _expected(data, 24)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    for epoch in range(2):  # workers stay, and the order changes
        along = order.flip(0) if epoch else order
        got = list(pictures.batches(along, 5))
        assert [len(index) for index, _ in got] == [5, 5, 3]
        index = torch.cat([index for index, _ in got])
        images = torch.cat([images for _, images in got])
        assert torch.equal(index, along)
        assert got[0][1].is_contiguous(memory_format=torch.channels_last)
        np.testing.assert_array_equal(images.permute(0, 2, 3, 1).numpy(), expected[along])
    assert [len(index) for index, _ in pictures.batches(order, 5, drop_last=True)] == [5, 5]
    assert list(pictures.batches(order[:0], 5)) == []
    np.testing.assert_array_equal(pictures.batch(torch.tensor([3, 3])).permute(0, 2, 3, 1).numpy(), expected[[3, 3]])
    bad = data.source.paths.index("cat/cat9.jpg")
    assert bad not in pictures.rows.tolist()
    assert len(pictures.rows) == 12
    assert pictures.report.names("truncated") == ["cat/cat9.jpg"]
    assert pictures.report.counts == {"truncated": 1}


def test_host_batches_for_a_device_come_from_a_thread(data: Dataset) -> None:
    pictures = device_pictures(data, 16, placement="host")
    got = list(pictures._from_host(torch.arange(13), 4))
    assert torch.equal(torch.cat([index for index, _ in got]), torch.arange(13))
    whole = torch.cat([images for _, images in got]).permute(0, 2, 3, 1)
    assert torch.equal(whole, pictures.squares)
    stopped = pictures._from_host(torch.arange(13), 1)
    next(stopped)
    stopped.close()  # leaves no thread behind
    with pytest.raises(IndexError):
        list(pictures._from_host(torch.tensor([99]), 1))


def test_cache_is_read_again_and_follows_the_data(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, picture: Callable[..., bytes]
) -> None:
    first = device_pictures(data, 16, cache=tmp_path)
    files = sorted(p.name for p in tmp_path.glob("*.npy"))
    assert len(files) == 1
    with monkeypatch.context() as patched:
        patched.setattr("onelabel.data.decode.decode_rows", lambda *a, **k: pytest.fail("decoded again"))
        again = device_pictures(data, 16, cache=tmp_path)
    assert torch.equal(first.squares, again.squares)
    assert again.report.names("truncated") == ["cat/cat9.jpg"]
    path = Path(str(data.source.raw(0)))
    path.write_bytes(picture(99))
    changed = device_pictures(data, 16, cache=tmp_path)
    assert not torch.equal(changed.squares[0], first.squares[0])
    assert torch.equal(changed.squares[1:], first.squares[1:])


def test_strict_raises(data: Dataset) -> None:
    with pytest.raises(DataError, match="cat9"):
        device_pictures(data, 16, strict=True)


def test_placement_is_decided_from_free_memory_and_said(
    data: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu, cpu, gib = torch.device("cuda"), torch.device("cpu"), 1 << 30
    free = {"device_free": 10 * gib, "host_free": 40 * gib}
    assert choose_placement(4 * gib, gpu, **free)[0] == "device"
    assert choose_placement(6 * gib, gpu, **free)[0] == "host"
    assert choose_placement(6 * gib, gpu, share=0.7, **free)[0] == "device"
    assert choose_placement(21 * gib, gpu, **free)[0] == "stream"
    assert choose_placement(4 * gib, cpu, **free)[0] == "host"
    assert "10.00 GiB" in choose_placement(6 * gib, gpu, **free)[1]
    assert 0 < free_host_memory() < 1 << 50
    monkeypatch.delenv("ONELABEL_QUIET")
    pictures = device_pictures(data, 16)
    said = capsys.readouterr().err
    assert re.search(r"13 pictures of 16×16, 0.00 GiB, kept in memory \(\d+.\d\d GiB free\)\n", said)
    assert pictures.why in said
    monkeypatch.setattr("onelabel.data.memory.free_host_memory", lambda: 100)
    assert device_pictures(data, 16).placement == "stream"
