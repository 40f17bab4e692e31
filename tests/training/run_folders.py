"""Comparing two run folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file


def assert_same_run(one: Path, other: Path, *, recording: bool = True) -> None:
    """Everything that holds numbers, bit for bit."""
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    recorded = ("recording", "labels") if recording else ()
    for name in ("weights-best", "weights-last", "method-best", *recorded):
        first, second = (load_file(folder / f"{name}.safetensors") for folder in (one, other))
        assert first.keys() == second.keys()
        for key in first:
            assert torch.equal(first[key], second[key]), (name, key)
    for part in ("train", "validation", "test"):
        first, second = (np.load(folder / f"scores-{part}.npy") for folder in (one, other))
        np.testing.assert_array_equal(first, second)
