"""`check_method` finds what is wrong with a method, and probes refuse one that forgets its stack."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from onelabel import Labels, contract
from onelabel.contract import Batch, Hyper, Method, Needs, register
from onelabel.losses.curves import nll
from onelabel.methods import Remembering, check_method
from onelabel.probes import ProbeSpec, engine, fit_probes, grid

ENTRY: dict[str, Any] = {"title": "t", "paper": "p", "year": 2026, "formula": "f"}


@pytest.fixture(autouse=True)
def _catalogue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(contract, "_REGISTRY", dict(contract._REGISTRY))
    monkeypatch.setattr(engine, "_SEEN", set())
    return


class Right(Method):
    """Assume negative, weighted."""

    hyper: ClassVar = {"beta": Hyper("weight of the unknown", 0, 10, (0.5, 2.0))}

    def __init__(self, *, beta: Any = 0.5, stack: int | None = None) -> None:
        super().__init__(beta=beta, stack=stack)

    def entries(self, batch: Batch) -> Tensor:
        return torch.where(batch.observed > 0, nll(batch.logits), self.beta * nll(-batch.logits))

    def compute(self, batch: Batch) -> Tensor:
        return self.reduce(self.entries(batch))


class RightMemory(Remembering):
    """Unknown entries cost by a running average of their probability."""

    hyper: ClassVar = {"decay": Hyper("of the average", 0, 1, (0.5, 0.9))}

    def __init__(self, *, decay: Any = 0.9, stack: int | None = None) -> None:
        super().__init__(decay=decay, stack=stack)
        self.register_buffer("average", None)

    @property
    def needs(self) -> Needs:
        return Needs(index=True)

    def allocate(self, labels: Labels) -> None:
        self.average = self.remembered(0.0, torch.float32)

    def compute(self, batch: Batch) -> Tensor:
        rows = self.rows(batch.index)
        average = self.recall(self.average, rows)
        if self.training:
            p = torch.sigmoid(batch.logits.detach())
            self.remember(self.average, rows, self.decay * average + (1 - self.decay) * p)
        return self.reduce(torch.where(batch.observed > 0, nll(batch.logits), (1 - average) * nll(-batch.logits)))


class Scalar(Right):
    def compute(self, batch: Batch) -> Tensor:
        return self.entries(batch).mean()


class WrongDimension(Right):
    def compute(self, batch: Batch) -> Tensor:
        return super().compute(batch) + (torch.sigmoid(batch.logits).sum(1).mean() - 1.5) ** 2


class OnlyTheFirst(Right):
    """Takes the first model's setting for all."""

    def compute(self, batch: Batch) -> Tensor:
        beta = self.beta.flatten()[0] if isinstance(self.beta, Tensor) else self.beta
        return self.reduce(torch.where(batch.observed > 0, nll(batch.logits), beta * nll(-batch.logits)))


class SharedMemory(Right):
    """Memory N×L, as if there were no stack."""

    @property
    def needs(self) -> Needs:
        return Needs(index=True)

    def bind(self, labels: Labels) -> Method:
        self.register_buffer("m", torch.zeros(labels.shape))
        return self

    def compute(self, batch: Batch) -> Tensor:
        m = self.m[batch.index]
        self.m[batch.index] = 0.9 * m + 0.1 * torch.sigmoid(batch.logits).detach().to(m.dtype)
        return self.reduce(torch.where(batch.observed > 0, 1.0, m) * nll(batch.logits) + self.beta * nll(-batch.logits))


class Unsaved(RightMemory):
    """Remembers in a plain attribute."""

    def allocate(self, labels: Labels) -> None:
        super().allocate(labels)
        self.register_buffer("average", self.average, persistent=False)


class Overflows(Right):
    def entries(self, batch: Batch) -> Tensor:
        return torch.where(batch.observed > 0, torch.log1p(torch.exp(-batch.logits)), self.beta * nll(-batch.logits))


class Half(Right):
    def compute(self, batch: Batch) -> Tensor:
        return super().compute(batch).half()


class Detached(Right):
    def entries(self, batch: Batch) -> Tensor:
        return torch.sigmoid(batch.logits).detach() * super().entries(batch)


class Undeclared(SharedMemory):
    @property
    def needs(self) -> Needs:
        return Needs()


class Schedule(Right):
    """Changes with the epoch and does not say so."""

    share = 0.0

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self.share = epoch / epochs

    def compute(self, batch: Batch) -> Tensor:
        return (1 + self.share) * super().compute(batch)


class Lenient(SharedMemory):
    """Takes a call without the index it declares."""

    def _check(self, *given: Any) -> None:
        pass

    def compute(self, batch: Batch) -> Tensor:
        return self.reduce(self.entries(batch))


class ByPosition(Right):
    def compute(self, batch: Batch) -> Tensor:
        return self.reduce(self.entries(batch)[..., :1, :])


class InLabelsDtype(Right):
    def entries(self, batch: Batch) -> Tensor:
        return super().entries(batch) * (batch.observed / 3 + 1).to(batch.observed.dtype)


class Unchecked(Right):
    def __init__(self, *, beta: Any = 0.5, stack: int | None = None) -> None:
        Method.__init__(self, stack=stack)
        self.beta = beta


class NoStack(Right):
    def __init__(self, *, beta: Any = 0.5) -> None:
        super().__init__(beta=beta)


class NoCopy(RightMemory):
    def __deepcopy__(self, memo: Any) -> Method:
        return self


WRONG: list[tuple[Callable[..., Method], str]] = [
    (Scalar, r"a stack is its members alone: compute of x must give 2 losses for logits M×B×L, got shape \(\)"),
    (
        WrongDimension,
        r"a stack .*with another model beside it \(step 1\): logits are M×B×L .*count dimensions from the",
    ),
    (OnlyTheFirst, r"a stack .*the loss is another .*with another model beside it"),
    (SharedMemory, r"a stack .*beside it \(step 2\): memory is M×N×L there: keep it with Remembering's remembered"),
    (Unsaved, "a restored state goes on alike: it goes on differently: what it remembers must be buffers"),
    (Overflows, "finite in every precision: logits within ±100 in torch.float16 give a loss that is not finite"),
    (Half, "finite in every precision: logits in torch.float16 must give a loss in torch.float32, got torch.float16"),
    (Detached, r"the gradient: the loss rises by \S+ where its gradient says \S+ \(differences=False where"),
    (Undeclared, "it trains on what it needs: "),
    (Schedule, "it trains on what it needs: the loss is another .* with another epoch: needs epoch=True"),
    (Lenient, "it trains on what it needs: index is declared, and a call without it is not refused"),
    (ByPosition, "rows in any order: the loss is another .* with its rows in another order"),
    (InLabelsDtype, "labels of any number type: the loss is another .* with observed in"),
    (Unchecked, r"settings are checked: beta=-1 was taken, outside \[0, 10\]: pass it on to super\(\).__init__"),
    (NoStack, "a stack .*method 'x' cannot be stacked: give its __init__ an argument stack=None and pass it on"),
    (NoCopy, "a copy goes on alike: training a copy changes the original"),
]


@pytest.mark.parametrize(("cls", "message"), WRONG, ids=[cls.__name__ for cls, _ in WRONG])
def test_what_is_wrong_is_named(cls: type[Method], message: str) -> None:
    register("x", **ENTRY)(cls)
    with pytest.raises(AssertionError, match=f"^x: {message}") as caught:
        check_method("x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cls", [Right, RightMemory])
def test_what_is_right_passes(cls: type[Method]) -> None:
    register("x", **ENTRY)(cls)
    check_method("x")
    key = next(iter(cls.hyperparameters()))
    check_method("x", **{key: [0.1, 0.2, 0.9]})
    check_method("x", **{key: 0.3})


def test_what_is_detached_on_purpose() -> None:
    register("x", **ENTRY)(Detached)
    check_method("x", differences=False)


def test_settings_are_those_of_the_method() -> None:
    with pytest.raises(TypeError, match="method 'em' has no setting 'zz'"):
        check_method("em", zz=1)
    with pytest.raises(ValueError, match="all stacked hyperparameters need one length"):
        check_method("roll-call", alpha=[0.1, 0.2], gamma=[0.1, 0.2, 0.3])


def test_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    check_method("an")
    assert torch.equal(before, torch.get_rng_state())


def test_needs_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; from onelabel.methods import check_method; check_method('an')"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- probes ---------------------------------------------------------------------------------------------------------


def probes(specs: list[ProbeSpec], **how: Any) -> Any:
    X, z = torch.randn(24, 4, generator=torch.Generator().manual_seed(0)), torch.eye(6).repeat(4, 1)
    return fit_probes(X, Labels.from_matrix(z.to(torch.int8)), specs, progress=False, **how)


@pytest.mark.parametrize("cls", [SharedMemory, WrongDimension])
def test_probes_refuse_a_method_that_forgets_the_stack(cls: type[Method]) -> None:
    register("x", **ENTRY)(cls)
    specs = grid({"x": {"beta": [0.25, 0.75]}}, lr=1e-2, batch_size=8, epochs=2)
    for _ in range(2):  # not only the first time
        with pytest.raises(ValueError, match=r"^x cannot train beside others: the loss is another .*or give block=1"):
            probes(specs)
    apart, alone = probes(specs, block=1), probes(specs[:1])
    assert torch.equal(torch.as_tensor(apart.weight[0]), torch.as_tensor(alone.weight[0]))


def test_probes_refuse_one_loss_for_all() -> None:
    register("x", **ENTRY)(Scalar)
    with pytest.raises(ValueError, match=r"compute of x must give 2 losses for logits M×B×L, got shape \(\)"):
        probes(grid({"x": {"beta": [0.25, 0.75]}}, lr=1e-2, batch_size=8, epochs=2))


def test_probes_leave_what_a_method_asks_of_its_data_to_training() -> None:
    class Picky(RightMemory):
        def allocate(self, labels: Labels) -> None:
            assert labels.num_examples == 24, "made for 24 rows"
            super().allocate(labels)

    register("x", **ENTRY)(Picky)
    probes(grid({"x": {"decay": [0.5, 0.9]}}, lr=1e-2, batch_size=8, epochs=1))


def test_probes_look_once_and_leave_the_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    register("x", **ENTRY)(RightMemory)
    looked: list[Any] = []
    real = engine.check_stack
    monkeypatch.setattr(engine, "check_stack", lambda subject: (looked.append(subject), real(subject)))
    specs = grid({"x": {"decay": [0.5, 0.9]}, "em": {}}, lr=1e-2, batch_size=8, epochs=1)
    specs.append(ProbeSpec("x", {}, lr=1e-3, batch_size=8, epochs=1))  # which leaves its setting out
    before = torch.get_rng_state()
    for _ in range(2):
        probes(specs)
    assert torch.equal(before, torch.get_rng_state())
    assert [(s.name, dict(s.columns)) for s in looked] == [("x", {"decay": [0.5, 0.9]})]
