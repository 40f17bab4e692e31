"""200 epochs: memory and open files stay where they are."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import only_hostile

from onelabel.training.run import RunFolder

EPOCHS = 200


def _resident() -> int:
    """Bytes of memory this process holds (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("mode", ["linear", pytest.param("finetune", marks=only_hostile)])
def test_memory_and_files_are_flat(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from onelabel.data import load_dataset
    from onelabel.training import train

    monkeypatch.setenv("ONELABEL_QUIET", "1")
    torch.set_num_threads(1)
    memory: list[int] = []
    files: list[int] = []
    log = RunFolder.log

    def measured(self: RunFolder, row: dict[str, object], **how: Any) -> None:
        log(self, row, **how)
        if len(files) % 10 == 0:
            gc.collect()
        memory.append(_resident())
        files.append(len(os.listdir("/proc/self/fd")))

    monkeypatch.setattr(RunFolder, "log", measured)
    data = load_dataset("digits-scenes", size=16, n_train=16, n_validation=8, n_test=8)
    settings = {"backbone": "small-cnn", "size": 16, "epochs": EPOCHS, "batch_size": 16, "lr": 1e-3, "logger": "none"}
    settings["record"] = "off"  # histograms per epoch are kept on purpose: some 60 kB each here
    in_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # 200 checkpoints reach a slow disk slowly
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        train(data, method="role", hyper={"expected_positives": 2.0}, out=f"{folder}/run", mode=mode, **settings)
    assert len(memory) == EPOCHS
    assert max(files[20:]) <= files[20], "open files grow"
    # a line of metrics per epoch is kept, and the allocator keeps some pages
    quarter = EPOCHS // 4
    early, late = min(memory[quarter : 2 * quarter]), min(memory[-quarter:])
    assert late - early < 12 << 20, f"{(late - early) / 2**20:.1f} MiB more in {EPOCHS // 2} epochs"
