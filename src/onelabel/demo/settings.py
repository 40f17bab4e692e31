"""How large the demo is, and what it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DemoSettings:
    """Chosen so that it takes under four minutes on two CPU cores and methods differ by more than chance.

    docs/demo.md has the numbers over seeds.
    """

    size: int = 32  #: pixels of a side
    scenes: int = 12000  #: training scenes, one observed label each
    test: int = 2000
    before: int = 4000  #: other scenes, on which the backbone was trained before
    before_epochs: int = 8
    epochs: int = 8
    batch_size: int = 64
    lr: float = 3e-3
    probe_lr: tuple[float, ...] = (1e-2, 1e-3)
    probe_epochs: int = 15
    methods: tuple[str, ...] = ("an", "em", "gr")  #: trained as CNNs, beside full labels and the chosen one
    probes: tuple[str, ...] = ("an", "an-ls", "wan", "em", "gr", "role", "roll-call")

    @property
    def loader(self) -> dict[str, Any]:
        """What `load_dataset("digits-scenes")` is given."""
        return {"size": self.size, "n_train": self.scenes, "n_validation": self.scenes // 8, "n_test": self.test}

    @property
    def training(self) -> dict[str, Any]:
        """What `train` is given, whatever the method."""
        return {
            "mode": "finetune",
            "backbone": "small-cnn",
            "size": self.size,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "lr": self.lr,
            "head_lr_scale": 1.0,
            "schedule": "cosine",
            "augment": "none",  # a mirrored digit is another one
        }


FULL = DemoSettings()
#: For tests of the way itself; its numbers mean nothing.
TINY = DemoSettings(
    size=16, scenes=240, test=60, before=120, before_epochs=1, epochs=1, probe_lr=(1e-2,), probe_epochs=2,
    methods=("an", "gr"), probes=("an", "em"),
)  # fmt: skip
