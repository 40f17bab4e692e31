"""A run folder as training leaves it, with weights nobody trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from onelabel.models import build_classifier
from onelabel.training import TrainConfig
from onelabel.training.files import write_tensors
from onelabel.training.restore import weights_metadata


@pytest.fixture(scope="session")
def untrained_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str]], Path]:
    """Makes one of a small-cnn at 32 px for the classes it is given."""

    def make(names: Sequence[str]) -> Path:
        folder = tmp_path_factory.mktemp("runs") / "run"
        folder.mkdir()
        torch.manual_seed(0)
        config = TrainConfig(backbone="small-cnn", size=32, mode="finetune")
        classifier = build_classifier(len(names), backbone="small-cnn").eval()
        (folder / "config.toml").write_text(config.to_toml())
        (folder / "metrics.jsonl").write_text("")
        metadata = weights_metadata(classifier, config, tuple(names))
        write_tensors(folder / "weights-best.safetensors", classifier.state_dict(), metadata)
        return folder

    return make
