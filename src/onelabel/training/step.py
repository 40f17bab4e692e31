"""One update: pictures → logits → loss → gradients → weights, from tensors on the device alone.

Everything a step reads lies on the device: the epoch's order, the flips, a cursor into them, the update's number. The
host only says "again", so the whole update can be captured in one CUDA graph and replayed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from onelabel.contract import Method
from onelabel.system import say
from onelabel.training.config import TrainConfig
from onelabel.training.ema import Average
from onelabel.training.feeds import Feed
from onelabel.training.machine import gather_rows
from onelabel.training.optim import Rates
from onelabel.training.recording import Recorder


class Network(nn.Module):
    """What is compiled and distributed: the classifier behind the flip; gives logits and features."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, inputs: Tensor, flips: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if flips is not None:  # B×H×W×3
            inputs = torch.where(flips[:, None, None, None], inputs.flip(2), inputs)
        result: tuple[Tensor, Tensor] = self.classifier.with_features(inputs)  # type: ignore[operator]
        return result


class Step:
    """Calling it makes one update; `loss_sum / rows` is the epoch's mean loss so far.

    Args:
        network: the module as Fabric set it up. fast: a compiled form of it for full batches, or None.
        parameters: what is clipped. views: makes the further views, or None.
    """

    def __init__(
        self,
        network: nn.Module,
        criterion: Method,
        optimizers: list[torch.optim.Optimizer],
        feed: Feed,
        fabric: Any,
        config: TrainConfig,
        *,
        batch_size: int,
        rates: Rates,
        average: Average | None = None,
        views: Any = None,
        flip: bool = False,
        fast: Any = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.network, self.criterion, self.optimizers, self.feed = network, criterion, optimizers, feed
        self.fabric, self.config, self.batch_size, self.rates = fabric, config, batch_size, rates
        self.average, self.views, self.flip, self.fast = average, views, flip, fast
        self.recorder = recorder
        self.needs = criterion.needs
        self.regular = (batch_size,) * config.accumulate
        self.graph: torch.cuda.CUDAGraph | None = None
        self.captured = False
        self.staged: list[Tensor] = []
        device = feed.device
        self.offsets = torch.arange(batch_size, device=device)
        self.order = torch.zeros(feed.rows, dtype=torch.int64, device=device)
        self.flips = torch.zeros(feed.rows, dtype=torch.bool, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.bad = torch.full((1,), -1, dtype=torch.int64, device=device)
        self.bad_logits = torch.zeros(batch_size, feed.num_classes, device=device)

    # -- what a step keeps on the device ---------------------------------------------------------------------------

    def begin(self, order: Tensor, flips: Tensor, position: int = 0) -> None:
        """Start an epoch, or go on in its middle: `position` rows of `order` are done."""
        self.order.copy_(order)
        self.flips.copy_(flips)
        self.cursor.fill_(position)
        if position == 0:
            self.loss_sum.zero_()
        self.bad.fill_(-1)

    def buffers(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides weights, optimisers and method."""
        return {"count": self.count, "loss_sum": self.loss_sum}

    # -- one update ------------------------------------------------------------------------------------------------

    def __call__(self, sizes: tuple[int, ...]) -> None:
        """Make the update of the next `sizes` rows: one batch, or several to accumulate."""
        if sizes == self.regular and not self.captured:
            self._prepare()
        if sizes == self.regular and self.graph is not None:
            self.graph.replay()
        else:
            self._update(sizes, self.fast if sizes == self.regular and self.fast is not None else self.network)

    def _update(self, sizes: tuple[int, ...], network: Any) -> None:
        self.rates.move(self.count)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        total = sum(sizes)
        for i, size in enumerate(sizes):
            last = i == len(sizes) - 1
            with self._no_sync(not last):
                loss = self._loss(size, network)
                self.fabric.backward(loss * (self.fabric.world_size * size / total))
        if self.config.clip:
            weights = [p for p in self.network.parameters() if p.grad is not None]
            torch.nn.utils.clip_grad_norm_(weights, self.config.clip, foreach=True)
        for optimizer in self.optimizers:
            optimizer.step()
        if self.average is not None:
            self.average.update()
        self.count += 1

    def _loss(self, size: int, network: Any) -> Tensor:
        at = self.cursor + self.offsets[:size]
        index = self.order.index_select(0, at)
        mine = self._own(at, size)
        inputs, flips = self._inputs(mine)
        with self.fabric.autocast():
            logits, features = network(inputs, flips)
        rows = len(mine)
        views = tuple(gather_rows(logits[i * rows : (i + 1) * rows], self.fabric, size) for i in range(1, self._views))
        logits = gather_rows(logits[:rows], self.fabric, size)
        needs: dict[str, Any] = {}
        if self.needs.index:
            needs["index"] = index
        if self.needs.features:
            needs["features"] = gather_rows(features[:rows].float(), self.fabric, size)
        if self.needs.weights:
            needs["weights"] = [self._shared(p) for p in self.network.parameters() if p.requires_grad and p.ndim > 1]
        observed = self.feed.observed.rows(index)
        loss: Tensor = self.criterion(logits, observed, views=views, **needs)
        self._note(loss.detach(), logits.detach(), size)
        if self.recorder is not None:
            true = None if self.feed.true is None else self.feed.true.index_select(0, index)
            self.recorder.add(logits.detach(), observed, true)
        self.cursor += size
        return loss

    def _shared(self, weight: Tensor) -> Tensor:
        """The weight, giving back only this process's share of a gradient that all of them compute alike."""
        world = self.fabric.world_size
        return weight if world == 1 else weight / world + weight.detach() * (1 - 1 / world)

    @property
    def _views(self) -> int:
        return max(1, self.needs.views)

    def _own(self, at: Tensor, size: int) -> Tensor:
        """This process's rows of the batch; the last process repeats a row where they do not divide evenly."""
        if self.fabric.world_size > 1:
            share = -(-size // self.fabric.world_size)
            first = self.fabric.global_rank * share
            places = torch.arange(first, first + share, device=at.device).clamp(max=size - 1)
            at = at.index_select(0, places)
        return at

    def _inputs(self, at: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.feed.inputs is None:
            inputs = self.staged.pop(0)
        else:
            inputs = self.feed.inputs.index_select(0, self.order.index_select(0, at))
        flips = self.flips.index_select(0, at) if self.flip else None
        if self.views is not None:
            return self.views(inputs, flips, self._views), None
        return inputs, flips

    def _note(self, loss: Tensor, logits: Tensor, size: int) -> None:
        self.loss_sum += loss.double() * size
        first = ~torch.isfinite(loss) & (self.bad < 0)
        torch.where(first, self.cursor, self.bad, out=self.bad)
        kept = self.bad_logits[:size]
        kept.copy_(torch.where(first[:, None], logits.float(), kept))

    def _no_sync(self, skip: bool) -> Any:
        if skip and self.fabric.world_size > 1:
            return self.fabric.no_backward_sync(self.network)
        return contextlib.nullcontext()

    # -- compiling and capturing -----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Warm up the compiled network and capture the update, changing nothing that training sees."""
        self.captured = True
        if self.feed.device.type != "cuda":
            return
        graph = self.config.cuda_graph == "auto" and self.fabric.world_size == 1 and self.feed.inputs is not None
        if self.fast is None and not graph:
            return
        with self._unchanged():
            if self.fast is not None:
                try:
                    self._warm_up(self.fast)
                except Exception as error:  # the compiler may fail in any way; training must not
                    say(f"torch.compile failed, going on without it ({_line(error)})")
                    self.fast = None
            if graph:
                try:
                    self.graph = self._capture(self.fast if self.fast is not None else self.network)
                except Exception as error:
                    say(f"CUDA graph capture failed, going on without it ({_line(error)})")
                    self.graph = None

    def _warm_up(self, network: Any, times: int = 3) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(times):
                self.cursor.zero_()
                self._update(self.regular, network)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()

    def _capture(self, network: Any) -> torch.cuda.CUDAGraph:
        self._warm_up(network)
        self.cursor.zero_()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._update(self.regular, network)
        return graph

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Put back, in place, every tensor that an update changes, and the random generators."""
        before = [(tensor, tensor.clone()) for tensor in self._changing()]
        known = {id(tensor) for tensor, _ in before}
        device = self.feed.device
        random = torch.cuda.get_rng_state(device)
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)
                for tensor in self._optimizer_state():
                    if id(tensor) not in known:  # made by the first update; every one of them starts at zero
                        tensor.zero_()
            torch.cuda.set_rng_state(random, device)

    def _changing(self) -> list[Tensor]:
        own = [self.cursor, self.count, self.loss_sum, self.bad, self.bad_logits, *self._optimizer_state()]
        own += [group["lr"] for o in self.optimizers for group in o.param_groups if isinstance(group["lr"], Tensor)]
        own += self.recorder.tensors().values() if self.recorder is not None else []
        modules: tuple[nn.Module, ...] = (self.network, self.criterion)
        for module in modules:
            own += [p.detach() for p in module.parameters()] + list(module.buffers())
        return own + (self.average.mean if self.average is not None else [])

    def _optimizer_state(self) -> list[Tensor]:
        states = [state for optimizer in self.optimizers for state in optimizer.state.values()]
        return [value for state in states for value in state.values() if isinstance(value, Tensor)]


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]
