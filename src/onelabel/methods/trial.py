"""A small training run, on labels and logits of its own, that any method can be put through."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelabel.contract import _numbers, method, method_info
from onelabel.labels import Labels

ROWS, CLASSES, DIM, EPOCHS = 8, 5, 6, 3


def example_labels(classes: int, *, negatives: bool = True) -> Labels:
    """One positive a row and a few negatives; one row with nothing known, one with everything."""
    rng = torch.Generator().manual_seed(0)
    z = torch.where(torch.rand(ROWS, classes, generator=rng) < 0.1, -1, 0)
    z[torch.arange(ROWS), torch.randint(classes, (ROWS,), generator=rng)] = 1
    z[0], z[1] = 0, torch.where(torch.arange(classes) % 2 == 0, 1, -1)
    return Labels.from_matrix((z if negatives else z.clamp(min=0)).to(torch.int8))


@dataclass(frozen=True)
class Subject:
    """A method to look at: settings in common, those of each model of a stack, labels, and the features' width."""

    name: str
    common: Mapping[str, Any]
    columns: Mapping[str, Sequence[Any]]
    models: int
    labels: Labels
    dim: int

    @classmethod
    def of(cls, name: str, hyper: Mapping[str, Any], labels: Labels | None = None, dim: int = DIM) -> Subject:
        """Where `hyper` stacks nothing there are two models: with what is given, and with what is worth searching."""
        info = method_info(name)
        known = inspect.signature(info.cls.__init__).parameters
        common = {"feature_dim": dim, **hyper} if "feature_dim" in known else dict(hyper)
        made = method(name, **common)  # which says what is wrong with them
        stackable = (set(info.hyper) | {"seed"}) & set(made._hyper)
        columns: dict[str, Sequence[Any]] = {k: common[k] for k in stackable & set(common) if _numbers(common[k])}
        for key in stackable & set(info.hyper) if not columns else ():
            value = made._hyper[key]
            if isinstance(value, (int, float)):
                columns[key] = [value, next((v for v in info.hyper[key].search if v != value), value)]
        models = max(map(len, columns.values()), default=2)
        if made._hyper.get("seed", 0) is None:  # of what it draws at its start
            columns["seed"] = range(models)
        labels = labels or example_labels(common.get("num_classes") or CLASSES)
        return cls(name, common, columns, models, labels, common.get("feature_dim", dim))

    def one(self, model: int = 0, *, noise: bool = True, seed: int = 0) -> Trial:
        """One model alone."""
        own = {key: column[model] for key, column in self.columns.items()}
        return Trial(self, {**self.common, **own}, [model], noise=noise, seed=seed)

    def stacked(self, *, noise: bool = True, seed: int = 0) -> Trial:
        """All of them in a stack."""
        settings = {**self.common, **self.columns, "stack": self.models}
        return Trial(self, settings, range(self.models), noise=noise, seed=seed)


class Trial:
    """A method in training, two steps an epoch: given what it says it needs, and no more."""

    def __init__(
        self, subject: Subject, settings: Mapping[str, Any], models: Sequence[int], *, noise: bool, seed: int
    ) -> None:
        self.labels, self.dim, self.models, self.at = subject.labels, subject.dim, models, 0
        self.losses: list[Tensor] = []
        self.slopes: list[Tensor] = []
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        self.made = made = method(subject.name, **settings)
        made.train(noise).bind(self.labels)
        self.features = draw(0, self.labels.num_examples, self.dim)
        made.bind_features(self.features)
        #: Whether it draws random numbers of its own: then a stack draws others.
        self.drew = not torch.equal(before, torch.get_rng_state())
        head = made.head(self.dim, self.labels.num_classes)
        if head is not None:
            for p in head.parameters():
                p.data = self._join([draw(m, *(p.shape if made.stack is None else p.shape[1:])) for m in models])
        own = any(p.requires_grad for p in made.parameters())
        self.optimizers = made.optimizers(0.01) if own else []

    def _join(self, each: list[Tensor]) -> Tensor:
        return each[0] if self.made.stack is None else torch.stack(each)

    def inputs(self, step: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Logits, observed labels and whatever the method needs; they depend on the step and the model alone."""
        epoch, half = divmod(step, 2)
        needs, classes, size = self.made.needs, self.labels.num_classes, self.labels.num_examples // 2
        rngs = [torch.Generator().manual_seed(100 * m + epoch) for m in self.models]
        orders = [torch.randperm(2 * size, generator=rng)[half * size : (half + 1) * size] for rng in rngs]
        index = self._join(orders)

        def drawn(*shape: int, seed: int) -> Tensor:
            return self._join([2 * draw(1000 * m + 10 * step + seed, *shape) for m in self.models]).to(dtype)

        call: dict[str, Any] = {}
        if needs.index:
            call["index"] = index
        if needs.features:
            call["features"] = self.features[index]
        if needs.weights:
            call["weights"] = [drawn(classes, self.dim, seed=1), drawn(classes, seed=2)]
        if needs.views > 1:
            call["views"] = [drawn(size, classes, seed=2 + v) for v in range(1, needs.views)]
        return drawn(size, classes, seed=0).requires_grad_(), self.labels.rows(index), call

    def loss(self, logits: Tensor, observed: Tensor, call: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Of a batch, and its slope by the logits."""
        torch.manual_seed(self.at)
        before = torch.get_rng_state()
        loss = self.made(logits, observed, **call)
        slope = torch.zeros_like(logits)
        if loss.requires_grad:
            logits.grad = None
            loss.sum().backward()
            slope = slope if logits.grad is None else logits.grad
        self.drew = self.drew or not torch.equal(before, torch.get_rng_state())
        return loss.detach(), slope.detach()

    def scores(self) -> Tensor:
        shape = (self.labels.num_examples, self.labels.num_classes)
        return torch.sigmoid(self._join([3 * draw(100 * m + self.at, *shape) for m in self.models]))

    def until(self, step: int) -> Trial:
        """Train up to a step."""
        while self.at < step:
            if self.at % 2 == 0:
                self.made.begin_epoch(self.at // 2, EPOCHS)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss, slope = self.loss(*self.inputs(self.at))
            for optimizer in self.optimizers:
                optimizer.step()
            self.losses.append(loss)
            self.slopes.append(slope)
            self.at += 1
            if self.at % 2 == 0:
                self.made.end_epoch(self.scores if self.made.needs.scores else None)
        return self


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
