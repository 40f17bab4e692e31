"""One readable loop, from a laptop to many GPUs."""

from onelabel.training.api import evaluate
from onelabel.training.config import TrainConfig
from onelabel.training.feeds import Feed
from onelabel.training.loop import train
from onelabel.training.machine import TrainingError
from onelabel.training.run import Run

__all__ = ["Feed", "Run", "TrainConfig", "TrainingError", "evaluate", "train"]
