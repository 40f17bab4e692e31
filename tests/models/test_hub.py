"""Pretrained weights without a network: a copy is used, and what is missing is said at once."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from onelabel.models import build_backbone
from onelabel.models.hub import _next_hop, kept_copy, reachable

NAME = "mobilenetv3_small_050.lamb_in1k"


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub at a port that nobody listens on, an empty cache, and no patience; gives the cache."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    def impatient(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s to try again")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(_http.time, "sleep", impatient)
    return tmp_path


def test_missing_weights_are_said_without_trying_again(away: Path) -> None:
    from huggingface_hub import constants

    said = r"could not be had \(127\.0\.0\.1 cannot be reached, and this machine has no copy\); "
    said += rf"give weights=FILE \(--weights\), such as model\.safetensors of timm/{NAME} on"
    with pytest.raises(RuntimeError, match=said):
        build_backbone(NAME, weights="pretrained")
    assert constants.HF_HUB_OFFLINE is False  # as it was


def copied(away: Path) -> dict[str, Any]:
    """Weights put where the hub's client keeps its copies."""
    import timm

    state: dict[str, Any] = timm.create_model(NAME, pretrained=False).state_dict()
    folder = away / f"models--timm--{NAME}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(state, folder / "snapshots" / ("0" * 40) / "model.safetensors")
    return state


def test_whether_there_is_a_copy_is_known_without_asking_anybody(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(away / "torch"))
    assert kept_copy(NAME) is None
    copied(away)
    assert str(kept_copy(NAME)).endswith("model.safetensors")
    assert kept_copy("resnet50") is None  # that of another
    elsewhere = timm.models.get_pretrained_cfg("tf_mixnet_l")  # has an address and no place on the hub
    monkeypatch.setattr(elsewhere, "hf_hub_id", None)
    monkeypatch.setattr(timm.models, "get_pretrained_cfg", lambda name: elsewhere)
    assert kept_copy("tf_mixnet_l") is None
    (away / "torch" / "checkpoints").mkdir(parents=True)
    (away / "torch" / "checkpoints" / elsewhere.url.rpartition("/")[2]).touch()
    assert kept_copy("tf_mixnet_l") is not None
    monkeypatch.undo()
    with pytest.raises(ValueError, match="timm has no pretrained weights of efficientnet_b8; give --weights FILE"):
        kept_copy("efficientnet_b8")


def test_a_copy_is_used_without_the_hub(away: Path) -> None:
    state = copied(away)
    found = build_backbone(NAME, weights="pretrained").state_dict()
    torch.testing.assert_close(found["conv_stem.weight"], state["conv_stem.weight"], rtol=0, atol=0)


def test_reachable_is_whether_somebody_listens(away: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reachable(f"http://127.0.0.1:{port}")
    assert not reachable(f"http://127.0.0.1:{port}")
    assert not reachable("https://name.invalid", seconds=0.5)


def test_a_proxy_is_what_must_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    assert _next_hop("https://hub.example") == "http://proxy.example:3128"
    monkeypatch.setenv("no_proxy", "hub.example")
    assert _next_hop("https://hub.example") == "https://hub.example"
