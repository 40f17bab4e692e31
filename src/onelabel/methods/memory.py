"""What methods remember: rows keyed by example index, on the training device, a block of N rows per stacked model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from onelabel.contract import Method, may_look
from onelabel.methods.optim import adam

if TYPE_CHECKING:
    from onelabel.labels import Labels


class Remembering(Method):
    """A method with memory or timing. It knows the epoch, its training set's size and which rows are a batch's.

    Bind first, then ``load_state_dict``: the memory of a run is restored into what `bind` allocated. The epoch is part
    of the state, so a run stopped in the middle of one goes on without calling `begin_epoch` again. Memory keeps its
    precision in a model that is converted whole, and what is learnt is not halved.
    """

    clock: Tensor
    starts: Tensor

    def __init__(self, *, stack: int | None = None, **hyper: Any) -> None:
        super().__init__(stack=stack, **hyper)
        self.epoch, self.epochs = 0, 1
        self.shape: tuple[int, int] | None = None
        self.register_buffer("clock", torch.tensor([0, 1]))
        self.register_buffer("starts", None, persistent=False)

    # -- size and time -----------------------------------------------------------------------------------------

    def bind(self, labels: Labels) -> Method:
        """Learn the training set's size and allocate memory for it, forgetting what was remembered before."""
        shape = tuple(getattr(labels, "shape", ()))
        if len(shape) != 2 or not hasattr(labels, "to_coo"):
            raise TypeError(f"bind needs onelabel.Labels of shape N×L, got {type(labels).__name__}: Labels.from_matrix")
        self.shape = (int(shape[0]), int(shape[1]))
        if self.stack is not None:
            self.starts = (torch.arange(self.stack, device=self.clock.device) * self.shape[0])[:, None]
        self.allocate(labels)
        return self

    def allocate(self, labels: Labels) -> None:
        """Make the memory for `labels`."""

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        if not 0 <= epoch < epochs:
            raise ValueError(f"epoch must lie in [0, {epochs}), the number of epochs, got {epoch}")
        self.epoch, self.epochs = int(epoch), int(epochs)
        self.clock.copy_(torch.tensor([epoch, epochs]), non_blocking=True)

    def optimizers(self, lr: float | Tensor) -> list[torch.optim.Optimizer]:
        own = [p for p in self.parameters() if p.requires_grad]
        return [adam(own, lr * self.lr_scale, models=self.stack or 1)] if own else []

    # -- rows --------------------------------------------------------------------------------------------------

    def remembered(self, fill: float, dtype: torch.dtype) -> Tensor:
        """Memory of one value per entry: N×L, or M×N×L in a stack."""
        lead = () if self.stack is None else (self.stack,)
        return torch.full((*lead, *self.size), fill, dtype=dtype, device=self.clock.device)

    @property
    def size(self) -> tuple[int, int]:
        """N and L of the bound labels."""
        self.check_bound()
        assert self.shape is not None
        return self.shape

    def check_bound(self) -> None:
        if self.shape is None:
            raise RuntimeError(f"{type(self).__name__} has no memory yet: call bind(labels) before training")

    def rows(self, index: Tensor) -> Tensor:
        """Which rows of the memory, its models one after another, belong to a batch: B, or M×B in a stack."""
        return index.long() if self.stack is None else index.long() + self.starts

    @staticmethod
    def recall(memory: Tensor, rows: Tensor) -> Tensor:
        return memory.flatten(0, -2)[rows]

    @staticmethod
    def remember(memory: Tensor, rows: Tensor, values: Tensor) -> None:
        """Write a batch's rows; where an example occurs twice its values must agree."""
        memory.flatten(0, -2).index_copy_(0, rows.flatten(), values.reshape(-1, values.shape[-1]).to(memory.dtype))

    def mark(self, memory: Tensor, labels: Labels, *, positive: float, negative: float) -> None:
        """Write one number where `labels` are positive, another where they are negative, for every model."""
        rows, cols, values = (torch.from_numpy(a.copy()).to(memory.device) for a in labels.to_coo())
        sign = torch.where(values > 0, positive, negative).to(memory.dtype)
        memory[..., rows.long(), cols.long()] = sign

    # -- checks and state --------------------------------------------------------------------------------------

    def _check(self, logits: Tensor, observed: Tensor, index: Tensor | None, *rest: Any) -> None:
        super()._check(logits, observed, index, *rest)
        if self.needs.index and index is not None:
            if logits.shape[-1] != self.size[1]:
                raise ValueError(f"logits must have the {self.size[1]} classes of bind(labels), got {logits.shape[-1]}")
            check_index(index, self.size[0], self.stack)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        if self.shape is None and self.missing(state_dict, prefix):
            raise RuntimeError(
                f"{type(self).__name__}: call bind(labels) before load_state_dict, its memory is missing"
            )
        for name, own in self.state_dict().items():
            if (given := state_dict.get(prefix + name)) is not None and given.shape != own.shape:
                shapes = f"{tuple(given.shape)} in the state, {tuple(own.shape)} here"
                remedy = "bind the labels it was trained with, and give it the same settings"
                raise RuntimeError(f"{type(self).__name__}: {name} has shape {shapes}: {remedy}")
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.epoch, self.epochs = self.clock.tolist()

    def missing(self, state_dict: Any, prefix: str) -> bool:
        """Whether the state holds what is only there after `bind`."""
        own = {prefix + name for name in self.state_dict()}
        return any(key.startswith(prefix) and key not in own for key in state_dict)


def check_index(index: Tensor, num_examples: int, stack: int | None) -> None:
    """Raise unless `index` holds positions in the training set, B or M×B. Values are looked at where that is free."""
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"index must hold integers, positions in the training set, got {index.dtype}")
    if index.ndim != 1 and (stack is None or index.ndim != 2 or index.shape[0] != stack):
        want = "B" if stack is None else f"B or {stack}×B"
        raise ValueError(f"index must have shape {want}, got {tuple(index.shape)}")
    if index.numel() and may_look(index):
        check_range(index, num_examples)


def check_range(index: Tensor, num_examples: int) -> None:
    low, high = (int(v) for v in index.aminmax())
    if low < 0 or high >= num_examples:
        raise IndexError(
            f"index must lie in [0, {num_examples}), the examples of bind(labels), got {low if low < 0 else high}; "
            "bind the labels of the set you train on"
        )
