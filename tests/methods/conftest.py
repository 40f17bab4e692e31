"""A small training run, by plain loops, that any method can be put through."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onelabel
from onelabel import Labels

N, L, D, B = 30, 5, 6, 7

#: name → (method, settings in common, settings of three models). `seed` fixes what a method draws at bind.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, list[float]]]] = {
    "role": ("role", {}, {"expected_positives": [1.2, 2.0, 3.0], "lam": [1.0, 0.5, 2.0], "seed": [1, 2, 3]}),
    "role-reference": ("role", {"variant": "reference"}, {"expected_positives": [1.2, 2.0, 3.0], "seed": [1, 2, 3]}),
    "role-factorised": ("role", {"estimator": "factorised", "rank": 3}, {"lam": [1.0, 0.5, 2.0], "seed": [1, 2, 3]}),
    "role-network": (
        "role",
        {"estimator": "network", "feature_dim": D, "hidden": 8},
        {"lam": [1.0, 0.5, 2.0], "seed": [1, 2, 3]},
    ),
    "role-bfloat16": ("role", {"dtype": "bfloat16"}, {"lam": [1.0, 0.5, 2.0], "seed": [1, 2, 3]}),
    "ll-r": ("ll-r", {}, {"delta": [5.0, 10.0, 20.0]}),
    "ll-ct": ("ll-ct", {}, {"delta": [5.0, 10.0, 20.0]}),
    "ll-cp": ("ll-cp", {}, {"delta": [5.0, 10.0, 20.0]}),
    "em-apl": ("em-apl", {}, {"alpha": [0.1, 0.2, 0.4], "beta": [0.1, 0.9, 0.5], "warmup": [1, 2, 1]}),
    "em-apl-current": (
        "em-apl",
        {"count": "current", "positive_proportion": 0.2, "soft": False, "variant": "reference"},
        {"warmup": [1, 2, 1], "proportion": [0.9, 0.5, 0.3]},
    ),
    "en": (
        "en",
        {"alpha": 0.3},
        {"expected_positives": [1.2, 2.0, 3.0], "decay": [0.5, 0.8, 0.9], "warmup": [1, 2, 0]},
    ),
    "mime": ("mime", {"width": 4}, {"tau": [0.5, 0.6, 0.7], "beta": [0.1, 0.2, 0.3], "warmup": [1, 2, 1]}),
    "smile": ("smile", {"feature_dim": D, "hidden": 8}, {"mix": [0.1, 0.5, 0.9], "seed": [1, 2, 3]}),
}


def make_labels(seed: int = 0, n: int = N, classes: int = L) -> Labels:
    """One positive a row, a few negatives, one row with nothing known, one with everything."""
    rng = torch.Generator().manual_seed(seed)
    z = torch.zeros(n, classes, dtype=torch.int8)
    z[torch.rand(n, classes, generator=rng) < 0.05] = -1
    z[torch.arange(n), torch.randint(classes, (n,), generator=rng)] = 1
    z[0] = 0
    z[1] = torch.where(torch.arange(classes) % 2 == 0, 1, -1)
    return Labels.from_matrix(z)


class Run:
    """A linear classifier trained by a method, step by step, stoppable anywhere."""

    def __init__(
        self,
        criterion: Any,
        *,
        epochs: int = 3,
        seed: int | list[int] = 0,
        lr: Any = 0.01,
        noise: bool = True,
        device: str = "cpu",
    ) -> None:
        self.criterion, self.epochs, self.labels, self.noise = criterion.to(device), epochs, make_labels(), noise
        seeds = seed if isinstance(seed, list) else [seed]
        self.stacked = criterion.stack is not None
        self.features = torch.randn(N, D, generator=torch.Generator().manual_seed(9)).to(device)
        criterion.bind(self.labels)
        criterion.bind_features(self.features)
        self.head = criterion.head(D, L) or nn.ParameterDict({"weight": torch.empty(D, L)})
        if self.stacked and isinstance(self.head, nn.ParameterDict):
            self.head["weight"] = torch.empty(len(seeds), D, L)
        with torch.no_grad():
            for p in self.head.parameters():
                drawn = [torch.randn(p.shape[-2:], generator=torch.Generator().manual_seed(s)) for s in seeds]
                p.copy_(torch.stack(drawn) if self.stacked else drawn[0])
        self.head.to(device).train(noise)
        criterion.train(noise)
        self.observed = self.labels.rows(slice(None), device=device)
        self.orders = [self._orders(s) for s in seeds]
        self.steps = epochs * len(self.orders[0][0])
        self.optimizers = [torch.optim.Adam(self.head.parameters(), lr=0.05), *criterion.optimizers(lr)]
        self.at, self.losses = 0, []

    def _orders(self, seed: int) -> list[tuple[Tensor, ...]]:
        rng = torch.Generator().manual_seed(100 + seed)
        return [torch.randperm(N, generator=rng).split(B) for _ in range(self.epochs)]

    def batch(self, epoch: int, i: int) -> Tensor:
        index = torch.stack([o[epoch][i] for o in self.orders]) if self.stacked else self.orders[0][epoch][i]
        return index.to(self.features.device)

    def logits(self, x: Tensor) -> Tensor:
        return self.head(x) if not isinstance(self.head, nn.ParameterDict) else x @ self.head["weight"]

    def score(self) -> Tensor:
        self.head.eval()
        with torch.no_grad():
            scores = torch.sigmoid(self.logits(self.features))
        self.head.train(self.noise)
        return scores

    def step(self) -> None:
        epoch, i = divmod(self.at, len(self.orders[0][0]))
        if i == 0:
            self.criterion.begin_epoch(epoch, self.epochs)
        index = self.batch(epoch, i)
        x = self.features[index]
        loss = self.criterion(self.logits(x), self.observed[index], index=index, features=x)
        loss.sum().backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.losses.append(loss.detach())
        self.at += 1
        if i + 1 == len(self.orders[0][0]):
            self.criterion.end_epoch(self.score)

    def until(self, step: int | None = None) -> Run:
        while self.at < (self.steps if step is None else step):
            self.step()
        return self

    def state(self) -> dict[str, Any]:
        return copy.deepcopy(
            {
                "at": self.at,
                "head": self.head.state_dict(),
                "criterion": self.criterion.state_dict(),
                "optimizers": [o.state_dict() for o in self.optimizers],
                "rng": torch.get_rng_state(),
            }
        )

    def load(self, state: dict[str, Any]) -> Run:
        self.at = state["at"]
        self.head.load_state_dict(state["head"])
        self.criterion.load_state_dict(state["criterion"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        torch.set_rng_state(state["rng"])
        return self


def single(case: str, model: int = 1) -> Any:
    name, common, varied = CASES[case]
    return onelabel.method(name, **common, **{k: v[model] for k, v in varied.items()})


def stacked(case: str) -> Any:
    name, common, varied = CASES[case]
    return onelabel.method(name, **common, **varied)


def pytest_generate_tests(metafunc: Any) -> None:
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(CASES))


@pytest.fixture
def kit() -> SimpleNamespace:
    """The helpers above, for test modules, which cannot import this file."""
    made: dict[str, Callable[..., Any]] = {"Run": Run, "single": single, "stacked": stacked, "make_labels": make_labels}
    return SimpleNamespace(N=N, L=L, D=D, B=B, CASES=CASES, **made)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def labels() -> Labels:
    return make_labels()
