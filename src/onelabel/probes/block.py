"""A block of probes: S seeds × P cells trained as one product of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from onelabel.contract import Batch, Method
from onelabel.labels import DeviceLabels, Labels
from onelabel.probes.features import Features, SparseRows
from onelabel.probes.plan import RANDOM, Block, Slice
from onelabel.probes.spec import presence

#: Bytes of scores held at a time when many probes score many rows.
SCORES_HOST, SCORES_DEVICE = 64 << 20, 2 << 30
#: Entries below which a method's `compute` is called without the checks of its `forward`.
SMALL = 1 << 17


class BlockTrainer:
    """Weights, methods and one training step of a block.

    W = lr·U is kept as U (S×D×P·L): Adam's step does not depend on the gradient's scale, so with U in its place every
    probe takes steps of size 1 and one fused Adam serves all learning rates; logits are lr·(X·U) + b. Only the loss
    goes through autograd, from logits M×B×L; the gradient of U is one more product, Xᵀ·∂loss/∂logits.
    """

    def __init__(
        self,
        block: Block,
        features: Features,
        labels: Mapping[str, Labels],
        on_device: Mapping[str, DeviceLabels],
        *,
        device: torch.device,
    ) -> None:
        self.block, self.features, self.device = block, features, device
        self.labels = {part.cells[0].labels: on_device[part.cells[0].labels] for part in block.slices}
        self.rows, self.classes = next(iter(labels.values())).shape
        seeds, cells = len(block.seeds), len(block.cells)
        self.shape = (seeds, cells, self.classes, features.shape[1])
        rates = torch.tensor([cell.lr for cell in block.cells], dtype=torch.float32, device=device)
        self.lr = rates.view(1, cells, 1, 1)
        self.decay = self._decay()
        self.U, self.b = self._initial()
        # Fixed buffers: pages of a large tensor made anew each step would cost as much as its arithmetic.
        self.grad = self.U.grad = torch.zeros_like(self.U)
        self.buffers: dict[int, Tensor] = {}
        capturable = device.type == "cuda"
        self.adam = torch.optim.Adam([self.U, self.b], lr=1.0, fused=True, capturable=capturable)
        self.methods: list[tuple[Slice, Method, list[torch.optim.Optimizer]]] = []
        for part in block.slices:
            made = part.make(block.seeds, (self.shape[3], self.classes))
            made.bind(labels[part.cells[0].labels])
            made.to(device).train()
            if type(made).bind_features is not Method.bind_features:
                if isinstance(features, SparseRows):
                    raise ValueError(f"{part.cells[0].method} looks at all features at once: give dense ones")
                made.bind_features(features)
            own = rates[part.start : part.stop].repeat(seeds)
            optimizers = made.optimizers(own) if any(p.requires_grad for p in made.parameters()) else []
            if capturable:
                for group in (g for o in optimizers for g in o.param_groups if "capturable" in g):
                    group["capturable"] = True
            self.methods.append((part, made, optimizers))

    def _decay(self) -> Tensor | None:
        values = [cell.weight_decay for cell in self.block.cells]
        return torch.tensor(values, device=self.device).view(1, -1, 1, 1) * self.lr if any(values) else None

    def _initial(self) -> tuple[Tensor, Tensor]:
        """The same first weights for all probes of a seed: those of nn.Linear, uniform within ±1/√D."""
        seeds, cells, classes, dim = self.shape
        U = torch.empty(seeds, dim, cells, classes)
        b = torch.empty(seeds, cells, 1, classes)
        bound = 1 / math.sqrt(dim)
        for s, seed in enumerate(self.block.seeds):
            generator = torch.Generator().manual_seed(seed)
            U[s] = torch.empty(classes, dim).uniform_(-bound, bound, generator=generator).T[:, None, :]
            b[s] = torch.empty(classes).uniform_(-bound, bound, generator=generator)
        rate = self.lr.cpu()
        U.div_(rate.view(1, 1, cells, 1))
        b.div_(rate)
        return U.view(seeds, dim, cells * classes).to(self.device), b.to(self.device)

    # -- training ----------------------------------------------------------------------------------------------

    @property
    def changes(self) -> bool:
        """Whether a captured step must be captured anew each epoch, for a method's schedule."""
        return any(m.needs.epoch or m.needs.scores for _, m, _ in self.methods)

    def order(self, epoch: int) -> Tensor:
        """The order of the rows in an epoch, S×N: it depends on the seed alone."""
        each = []
        for seed in self.block.seeds:
            generator = torch.Generator().manual_seed((seed + 1) * 1_000_003 + epoch)
            each.append(torch.randperm(self.rows, generator=generator))
        return torch.stack(each).to(self.device)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        for _, made, _ in self.methods:
            made.begin_epoch(epoch, epochs)

    def end_epoch(self) -> None:
        for part, made, _ in self.methods:
            made.end_epoch(self._score(part) if made.needs.scores else None)

    def step(self, index: Tensor, *, tick: int = 0, streams: list[torch.cuda.Stream] | None = None) -> None:
        """One step of every probe on rows `index`, S×B. `tick` numbers the steps; `streams` run the losses abreast."""
        seeds, cells, classes, _ = self.shape
        X = self._rows(index)
        raw = torch.bmm(X, self.U).view(seeds, -1, cells, classes).transpose(1, 2)
        logits = (raw + self.b) * self.lr
        observed = {name: held.rows(index) for name, held in self.labels.items()}
        slope = torch.empty_like(logits)
        extra: list[tuple[Slice, Tensor, Tensor]] = []
        main = torch.cuda.current_stream() if streams else None
        for i, (part, made, optimizers) in enumerate(self.methods):
            if streams and main is not None:
                stream = streams[i % len(streams)]
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    self._loss(part, made, optimizers, X, logits, observed, index, slope, extra, tick)
            else:
                self._loss(part, made, optimizers, X, logits, observed, index, slope, extra, tick)
        if streams and main is not None:
            for stream in streams[: len(self.methods)]:  # one that took no part must not be waited for in a capture
                main.wait_stream(stream)
        torch.bmm(X.transpose(1, 2), slope.transpose(1, 2).reshape(seeds, X.shape[1], -1), out=self.grad)
        self.b.grad = slope.sum(2, keepdim=True)
        dU = self._wide(self.grad)
        for part, dW, db in extra:
            dU[:, :, part.start : part.stop] += dW
            self.b.grad[:, part.start : part.stop] += db
        if self.decay is not None:
            dU.addcmul_(self._wide(self.U), self.decay.transpose(1, 2))
            self.b.grad.addcmul_(self.b, self.decay)
        self.adam.step()

    def _rows(self, index: Tensor) -> Tensor:
        """The features of rows S×B as float32, S×B×D."""
        seeds, size = index.shape
        if not isinstance(self.features, SparseRows) and self.features.dtype != torch.float32:
            return self.features.index_select(0, index.view(-1)).float().view(seeds, size, -1)
        if size not in self.buffers:
            self.buffers[size] = torch.empty(seeds * size, self.shape[3], device=self.device)
        out = self.buffers[size]
        chosen = index.view(-1)
        if isinstance(self.features, SparseRows):
            return self.features.index_select(0, chosen, out=out).view(seeds, size, -1)
        return torch.index_select(self.features, 0, chosen, out=out).view(seeds, size, -1)

    def _loss(
        self,
        part: Slice,
        made: Method,
        optimizers: list[torch.optim.Optimizer],
        X: Tensor,
        logits: Tensor,
        observed: Mapping[str, Tensor],
        index: Tensor,
        slope: Tensor,
        extra: list[tuple[Slice, Tensor, Tensor]],
        tick: int,
    ) -> None:
        """The slope of one slice's losses with respect to its logits, written into `slope`."""
        seeds, _, classes, _ = self.shape
        cells, size = len(part.cells), index.shape[1]
        mine = logits[:, part.start : part.stop].reshape(-1, size, classes).detach().requires_grad_()
        seen = _spread(observed[part.cells[0].labels], cells)
        needs = made.needs
        rows = _spread(index, cells) if needs.index else None
        features = _spread(X, cells) if needs.features else None
        weights: tuple[Tensor, ...] = ()
        if needs.weights:
            W = (self._wide(self.U)[:, :, part.start : part.stop] * self._rate(part)).permute(0, 2, 3, 1)
            b = (self.b * self.lr)[:, part.start : part.stop]
            weights = tuple(w.reshape(-1, *w.shape[2:]).detach().requires_grad_() for w in (W.flatten(3), b.squeeze(2)))
        if part.cells[0].method in RANDOM and self.device.type == "cpu":
            torch.manual_seed((self.block.seeds[0] + 1) * 1_000_003 + tick)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cpu" and mine.numel() < SMALL:
            # forward's checks cost as much as a small loss; the engine looks for NaN once an epoch instead
            loss = made.check_loss(made.compute(Batch(made.presence(mine), seen, rows, features, weights=weights)))
        else:
            loss = made(made.presence(mine), seen, index=rows, features=features, weights=weights)
        loss.sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        slope[:, part.start : part.stop] = mine.grad.view(seeds, cells, size, classes)  # type: ignore[union-attr]
        if weights:
            dW, db = (w.grad for w in weights)
            assert dW is not None and db is not None  # noqa: PT018
            extra.append(
                (part, dW.view(seeds, cells, classes, -1).permute(0, 3, 1, 2), db.view(seeds, cells, 1, classes))
            )

    def _rate(self, part: Slice) -> Tensor:
        return self.lr[:, None, part.start : part.stop, :, 0]

    def _wide(self, U: Tensor) -> Tensor:
        """S×D×P·L as S×D×P×L."""
        seeds, cells, classes, dim = self.shape
        return U.view(seeds, dim, cells, classes)

    # -- scoring -----------------------------------------------------------------------------------------------

    def weights(self) -> tuple[Tensor, Tensor]:
        """W and b as S×P×L×D and S×P×L."""
        W = self._wide(self.U).permute(0, 2, 3, 1) * self.lr
        return W, (self.b * self.lr).squeeze(2)

    def scores(self, X: Features, part: slice = slice(None)) -> Iterator[tuple[int, int, Tensor]]:
        """(seed, first cell, logits of some cells C×N×L), a few cells at a time."""
        cells, classes = range(*part.indices(self.shape[1])), self.classes
        room = SCORES_HOST if self.device.type == "cpu" else SCORES_DEVICE
        step = max(1, room // max(1, len(X) * classes * 4))
        for s in range(self.shape[0]):
            for c in range(cells.start, cells.stop, step):
                stop = min(c + step, cells.stop)
                W = self.U[s, :, c * classes : stop * classes]
                raw = product(X, W, self.device).view(len(X), stop - c, classes).transpose(0, 1)
                yield s, c, presence((raw + self.b[s, c:stop]) * self.lr[0, c:stop], self.block.cells[c:stop])

    def _score(self, part: Slice) -> Callable[[], Tensor]:
        def score() -> Tensor:
            seeds, cells = self.shape[0], len(part.cells)
            out = torch.empty(seeds, cells, self.rows, self.classes, device=self.device)
            for s, c, logits in self.scores(self.features, slice(part.start, part.stop)):
                torch.sigmoid(logits, out=out[s, c - part.start : c - part.start + len(logits)])
            return out.view(-1, self.rows, self.classes)

        return score


def product(X: Features, W: Tensor, device: torch.device, rows: int = 1 << 16) -> Tensor:
    """X·W in float32, for X of any float type and place (a memory map too, or sparse), some rows at a time."""
    if isinstance(X, SparseRows):
        return (X @ W.cpu()).to(device)
    if len(X) <= rows:
        return X.to(device, torch.float32) @ W
    out = torch.empty(len(X), W.shape[1], device=device)
    for start in range(0, len(X), rows):
        torch.mm(X[start : start + rows].to(device, torch.float32), W, out=out[start : start + rows])
    return out


def _spread(value: Tensor, cells: int) -> Tensor:
    """S×B… for S·P models, the cells of a seed next to one another."""
    if cells == 1:
        return value
    return value.unsqueeze(1).expand(-1, cells, *value.shape[1:]).reshape(-1, *value.shape[1:])
