"""What one phase trains with: network, criterion, optimisers and step, built from the config."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelabel.contract import Method
from onelabel.models import Classifier
from onelabel.system import say
from onelabel.training.config import TrainConfig
from onelabel.training.ema import Average
from onelabel.training.evaluate import score_flips, score_views
from onelabel.training.feeds import Feed
from onelabel.training.optim import Rates, classifier_optimizer, method_optimizers, schedule_table
from onelabel.training.plan import Plan
from onelabel.training.recording import Recorder
from onelabel.training.sharding import full_state, is_split
from onelabel.training.step import Network, Step


@dataclass(frozen=True)
class Phase:
    """A stretch of training with its own epochs, batch and learning rate; `head_only` trains the head on features."""

    name: str
    epochs: int
    batch_size: int
    lr: float
    head_only: bool = False


def phases_of(config: TrainConfig, *, student: bool = False) -> list[Phase]:
    """The phases of a resolved config; `student` adds the one that learns what the last found."""
    epochs, batch_size, lr = config.epochs or 1, config.batch_size or 1, config.lr or 0.0
    alone = config.mode == "linear"
    last = Phase("linear" if alone else "finetune", epochs, batch_size, lr, head_only=alone)
    first = Phase("linear", config.linear_epochs, config.linear_batch_size, config.linear_lr, head_only=True)
    again = [dataclasses.replace(last, name="student")] if student else []
    return [*([first] if config.mode == "linearinit" else []), last, *again]


class Session:
    """One phase under way.

    Attributes:
        classifier: what is trained (in the linear phase a head on an identity).
        network: the same as Fabric set it up. criterion, optimizers, average, step: what they say.
    """

    def __init__(
        self,
        classifier: Classifier,
        criterion: Method,
        train: Feed,
        fabric: Any,
        config: TrainConfig,
        phase: Phase,
        recorder: Recorder | None = None,
    ) -> None:
        self.classifier, self.criterion, self.train, self.fabric = classifier, criterion, train, fabric
        self.config, self.phase, self.device, self.recorder = config, phase, train.device, recorder
        linear = phase.head_only
        cuda = self.device.type == "cuda"
        classifier.to(self.device)
        if cuda and not linear:
            classifier.to(memory_format=torch.channels_last)
        criterion.to(self.device)
        if fabric.world_size > 1 and config.sync_batchnorm and not linear:
            classifier.backbone = _synced(classifier.backbone, cuda)
        self.raw = Network(classifier)
        self.network: nn.Module = self.raw
        if fabric.world_size > 1:
            self.network = fabric.setup_module(self.raw, move_to_device=False)
        self.split = any(is_split(p) for p in classifier.parameters())
        head = list(classifier.head.parameters())
        backbone = [] if linear else list(classifier.backbone.parameters())
        scale = 1.0 if config.head_lr_scale is None else config.head_lr_scale
        self.optimizers = [
            classifier_optimizer(head, backbone, lr=phase.lr, head_lr_scale=scale, weight_decay=config.weight_decay),
            *method_optimizers(criterion, phase.lr, self.device),
        ]
        self.average = Average(classifier, config.ema) if config.ema else None
        updates = len(self.plan(0).updates) * phase.epochs
        self.rates = Rates(self.optimizers, schedule_table(config, updates), self.device)
        fast = cuda and not linear and not self.split and config.compile == "auto"
        self.fast = _compiled(self.network, config) if fast else None
        self.frozen = False
        self.step = self._step()

    def _step(self) -> Step:
        pictures = not self.phase.head_only
        views = None
        if self.criterion.needs.views > 1 or (pictures and self.config.augment == "strong"):
            views = PictureViews(self.classifier, self.config) if pictures else FeatureViews()
        return Step(
            self.network,
            self.criterion,
            self.optimizers,
            self.train,
            self.fabric,
            self.config,
            batch_size=self.phase.batch_size,
            rates=self.rates,
            average=self.average,
            views=views,
            flip=pictures and self.config.augment != "none",
            fast=self.fast,
            recorder=self.recorder,
        )

    def plan(self, epoch: int) -> Plan:
        return Plan.make(
            self.train.rows,
            batch_size=self.phase.batch_size,
            accumulate=self.config.accumulate,
            drop_last=self.config.drop_last,
            seed=self.config.seed,
            phase=self.phase.name,
            epoch=epoch,
        )

    def begin_epoch(self, epoch: int) -> None:
        """Training mode, and the backbone frozen or thawed; a change of that needs another captured step."""
        self.network.train()
        frozen = not self.phase.head_only and epoch < self.config.freeze_epochs
        if frozen:
            self.classifier.backbone.eval()
        if frozen != self.frozen:
            self.frozen = frozen
            for p in self.classifier.backbone.parameters():
                p.requires_grad_(not frozen)
                p.grad = None
            buffers = self.step.buffers()
            self.step = self._step()
            for name, value in self.step.buffers().items():
                value.copy_(buffers[name])

    @property
    def forward(self) -> Any:
        """The fastest form of the network for evaluation."""
        return self.fast if self.fast is not None and self.step.fast is not None else None

    def scores(self, feed: Feed, *, flip: bool = False) -> Tensor:
        """Probabilities of a split with the network as it is; `flip` averages those of the mirrored pictures."""
        return self.scores_flips(feed, flip=flip)[-1]

    def scores_flips(self, feed: Feed, *, flip: bool = True) -> tuple[Tensor, ...]:
        """Those of the pictures and, with `flip`, also those averaged with the mirrored ones', in one pass."""
        size = self.config.eval_batch_size
        return score_flips(self.network, feed, self.fabric, batch_size=size, flip=flip, forward=self.forward)

    def scores_views(self, feed: Feed, views: Any, *, title: str = "") -> tuple[Tensor, ...]:
        """What `views` makes of a split's pictures: `evaluate.score_views`."""
        how = {"batch_size": self.config.eval_batch_size, "forward": self.forward, "title": title}
        return score_views(self.network, feed, self.fabric, views, **how)

    @contextlib.contextmanager
    def holding(self, track: str) -> Iterator[None]:
        """The classifier holds its weights ("plain") or their averages ("ema") inside this block."""
        if track == "ema" and self.average is not None:
            with self.average.swapped():
                yield
        else:
            yield

    def method_state(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.criterion.state_dict().items()}

    def weights(self) -> dict[str, Tensor]:
        return full_state(self.classifier)


class PictureViews:
    """The plain pictures and further random augmentations of each, one below the other: (views·B)×3×H×W floats."""

    def __init__(self, classifier: Classifier, config: TrainConfig) -> None:
        from onelabel.data import Augment

        mean, std = ((buffer.flatten() / 255).tolist() for buffer in (classifier.mean, classifier.std))
        self.plain, self.strong = Augment(mean=mean, std=std), Augment.strong()
        self.strong.mean.copy_(self.plain.mean)
        self.strong.std.copy_(self.plain.std)
        for module in (self.plain, self.strong):
            module.to(classifier.mean.device)
        self.first = self.strong if config.augment == "strong" else self.plain

    def __call__(self, pictures: Tensor, flips: Tensor | None, views: int) -> Tensor:
        if flips is not None:
            pictures = torch.where(flips[:, None, None, None], pictures.flip(2), pictures)
        images = pictures.permute(0, 3, 1, 2)
        made = torch.cat([self.first(images), *(self.strong(images) for _ in range(views - 1))])
        return made.contiguous(memory_format=torch.channels_last)


class FeatureViews:
    """In the linear phase a view is the features with a tenth of them dropped."""

    def __call__(self, features: Tensor, flips: Tensor | None, views: int) -> Tensor:
        dropped = [nn.functional.dropout(features, 0.1) for _ in range(views - 1)]
        return torch.cat([features, *dropped])


def _synced(backbone: nn.Module, cuda: bool) -> nn.Module:
    if not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in backbone.modules()):
        return backbone
    if not cuda:
        say("BatchNorm cannot be synchronised on CPU: each process uses its own statistics")
        return backbone
    return nn.SyncBatchNorm.convert_sync_batchnorm(backbone)


def _compiled(network: nn.Module, config: TrainConfig) -> Any:
    """The compiled network, kept on the classifier so that another run with it compiles nothing again."""
    inner: Any = network
    kept = getattr(inner, "classifier", None)
    cache = None if kept is None else kept.__dict__.get("_compiled")
    if cache is not None and cache[0] == config.compile_mode:
        return cache[1]
    mode = None if config.compile_mode == "default" else config.compile_mode
    made = torch.compile(network, dynamic=False, mode=mode)
    if kept is not None:
        kept.__dict__["_compiled"] = (config.compile_mode, made)
    return made
