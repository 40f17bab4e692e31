"""`fit_probes`: hundreds of linear classifiers trained at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.contract import Method, method_info
from onelabel.labels import DeviceLabels, Labels
from onelabel.methods.check import BrokenPromise, check_stack
from onelabel.methods.trial import Subject, example_labels
from onelabel.probes.block import SCORES_HOST, BlockTrainer
from onelabel.probes.criteria import BESIDE_ENTRIES, Held, held_out
from onelabel.probes.features import SparseRows, as_features, available_memory, on_device
from onelabel.probes.graph import epoch_runner
from onelabel.probes.plan import RANDOM, Block, Slice, plan
from onelabel.probes.progress import Board
from onelabel.probes.results import ProbeResults
from onelabel.probes.spec import ProbeSpec

#: Methods of others that were seen to give in a stack what they give alone.
_SEEN: set[type[Method]] = set()


def fit_probes(
    features: Any,
    labels: Labels | Mapping[str, Labels],
    specs: Sequence[ProbeSpec],
    *,
    validation: tuple[Any, Any] | None = None,
    criterion: str = "auto",
    monitors: Mapping[str, tuple[Any, Any] | tuple[Any, Any, str]] | None = None,
    device: torch.device | str | None = None,
    drop_last: bool = False,
    block: int | None = None,
    memory: int | None = None,
    workers: int | None = None,
    graph: bool | None = None,
    streams: int = 4,
    progress: bool = True,
) -> ProbeResults:
    """Train every probe of `specs` on frozen features and keep, for each, its best epoch.

    Each probe gets what it would get alone, whatever its company: its own loss, memory, schedule and Adam; probes of
    one seed see the rows in one order.

    Args:
        features: N×D, an array, memory map or tensor of any float type; read in place on a CPU, moved to a GPU. A SciPy
            sparse matrix trains on the CPU, its rows made dense batch by batch.
        labels: the observed labels, or several sets by name, of which `ProbeSpec.labels` chooses.
        specs: what to train, see `grid`.
        validation: features and labels held out: a 0/1 matrix or fully observed `Labels` where they are clean, else
            `Labels` of single positives. Without it every probe keeps its last epoch.
        criterion: what the best epoch is chosen by, a name of `list_criteria()`; "auto" is "clean" on clean labels,
            and the default of `choose` on others.
        monitors: further held-out sets (X, labels[, criterion]) by name, evaluated each epoch and only recorded.
        device: "cpu", "cuda" …; a GPU where there is one.
        drop_last: leave out a last incomplete batch, as ROLE's program does.
        block: probes that train together; chosen so that they stay in the cache (CPU) or in memory (GPU).
        memory: bytes that may be used; 80% of what is free unless given.
        workers: blocks that train abreast on a CPU, one thread each; as many as torch has threads.
        graph: replay steps as CUDA graphs (GPU only; the default there).
        streams: how many losses run abreast inside a graph.
        progress: show a bar with the highest criterion so far, on a terminal; a mean over seeds, as in the leaderboard.
    """
    specs = list(specs)
    if not specs:
        raise ValueError("specs must hold at least one probe, got none")
    X = as_features(features, "features")
    gpu = torch.cuda.is_available() and not isinstance(X, SparseRows)
    where = torch.device(device) if device is not None else torch.device("cuda" if gpu else "cpu")
    sets = {"": labels} if isinstance(labels, Labels) else dict(labels)
    for name, each in sets.items():
        if each.num_examples != len(X):
            raise ValueError(f"labels {name!r} has {each.num_examples} rows, features {len(X)}: they must be equal")
    limit = int(memory if memory is not None else 0.8 * available_memory(where))
    X = on_device(X, where, limit)
    held: dict[str, Held] = {}
    if validation is not None:
        held["validation"] = held_out(*validation, criterion, sets, where)
    for name, given in (monitors or {}).items():
        held[name] = held_out(given[0], given[1], given[2] if len(given) > 2 else "auto", sets, where)
    abreast = 1 if where.type != "cpu" else workers or torch.get_num_threads()
    blocks = plan(specs, sets, X.shape[1], device=where, limit=limit, block=block, workers=abreast)
    abreast = max(1, min(abreast, limit // max(each.nbytes for each in blocks)))
    for company in blocks:
        for part in company.slices if len(company) > 1 else ():
            _check_foreign(part, sets[part.cells[0].labels], X.shape[1])
    stored: dict[str, DeviceLabels] = {name: each.on(where) for name, each in sets.items()}
    results = ProbeResults.empty(specs, X.shape[1], next(iter(sets.values())), held)
    started = time.perf_counter()
    with Board(specs, held.get("validation"), progress) as board, torch.random.fork_rng(devices=[]):

        def train(each: Block) -> None:
            trainer = BlockTrainer(each, X, sets, stored, device=where)
            _train(trainer, results, held, board, drop_last=drop_last, graph=graph, streams=streams)

        _run(train, blocks, abreast)
        if validation is not None:
            results.beside = measure_beside(results, held["validation"], where)
    results.seconds = time.perf_counter() - started
    return results


def _check_foreign(part: Slice, labels: Labels, dim: int) -> None:
    """Raise where a method of others, which may have forgotten the stack, gives another loss in company than alone."""
    name, first, last = part.cells[0].method, part.cells[0].hyper, part.cells[-1].hyper
    cls = method_info(name).cls
    if cls in _SEEN or cls.__module__.startswith("onelabel."):
        return
    try:
        hyper = {key: value if value == last.get(key, value) else [value, last[key]] for key, value in first.items()}
        examples = example_labels(labels.num_classes, negatives=not labels.is_positive_only)
        with torch.random.fork_rng(devices=[]):
            check_stack(Subject.of(name, hyper, examples, dim))
    except BrokenPromise as error:
        raise ValueError(f"{name} cannot train beside others: {error}; or give block=1, a probe at a time") from error
    except Exception:  # what it asks of its data is not known here; training will tell
        return
    _SEEN.add(cls)


def _run(train: Callable[[Block], None], blocks: list[Block], workers: int) -> None:
    """Blocks one after another, or several abreast, each on one thread: small products share no work worth sharing.

    Probes that draw random numbers train alone: they seed the one generator there is.
    """
    random = [block for block in blocks if any(cell.method in RANDOM for cell in block.cells)]
    others = [block for block in blocks if block not in random]
    if workers < 2 or len(others) < 2:
        random, others = blocks, []
    if others:
        # long ones first, so that no worker is left with one at the end
        others.sort(key=lambda block: -len(block) * block.cells[0].epochs / block.cells[0].batch_size)
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for future in [pool.submit(train, block) for block in others]:
                future.result()
    for block in random:
        train(block)


def _train(
    trainer: BlockTrainer,
    results: ProbeResults,
    held: Mapping[str, Held],
    board: Board,
    *,
    drop_last: bool,
    graph: bool | None,
    streams: int,
) -> None:
    """All epochs of one block; the best weights stay on the device until the end."""
    block = trainer.block
    epochs, size = block.cells[0].epochs, block.cells[0].batch_size
    where = np.array(block.where)
    best = torch.full(where.shape, -torch.inf, dtype=torch.float64, device=trainer.device)
    epoch_of = torch.full(where.shape, epochs - 1, device=trainer.device)
    kept: tuple[Tensor, Tensor] | None = None
    runner = epoch_runner(trainer, size, drop_last=drop_last, graph=graph, streams=streams)
    for epoch in range(epochs):
        trainer.begin_epoch(epoch, epochs)
        runner(epoch)
        trainer.end_epoch()
        for name, part in held.items():
            values = evaluate(trainer, part)
            results.record(name, where, epoch, values)
            if name == "validation":
                better = values > best
                best = torch.where(better, values, best)
                epoch_of = torch.where(better, epoch, epoch_of)
                wide = better[:, None, :, None]
                if kept is None:
                    kept = trainer.U.clone(), trainer.b.clone()
                else:
                    U = trainer._wide(trainer.U)
                    torch.where(wide, U, trainer._wide(kept[0]), out=trainer._wide(kept[0]))
                    torch.where(better[:, :, None, None], trainer.b, kept[1], out=kept[1])
        board.advance(where, epoch, epochs, best if "validation" in held else None)
    if kept is not None:
        trainer.U, trainer.b = kept
    results.keep(where, *trainer.weights(), epoch_of)


def measure_beside(results: ProbeResults, held: Held, device: torch.device) -> NDArray[np.float64] | None:
    """What the criterion has beside it, of every probe's best epoch, on no more than BESIDE_ENTRIES scores each."""
    if held.criterion.beside is None:
        return None
    classes = held.labels.shape[1]
    named = torch.nonzero((held.labels > 0).any(1))[:, 0]
    most = min(len(named), max(200, BESIDE_ENTRIES // classes))
    rows = named[torch.linspace(0, len(named) - 1, most, device=device, dtype=torch.float64).round().long()]
    X, labels = held.X[rows], held.labels[rows]
    values = np.full(len(results), np.nan)
    step = max(1, SCORES_HOST // (4 * len(rows) * classes))
    for start in range(0, len(results), step):
        which = range(start, min(start + step, len(results)))
        scores = results.scores(X, which, device=device)
        finite = scores.isfinite().all(-1).all(-1)
        found = held.criterion.beside(torch.where(finite[:, None, None], scores, 0.0), labels)
        values[start : which.stop] = torch.where(finite, found.to(finite.device), torch.nan).cpu().numpy()
    return values


def evaluate(trainer: BlockTrainer, held: Held) -> Tensor:
    """The criterion of every probe of a block, S×P float64; NaN for a probe whose scores are not finite."""
    seeds, cells = trainer.shape[:2]
    values = torch.full((seeds, cells), torch.nan, dtype=torch.float64, device=trainer.device)
    for s, c, logits in trainer.scores(held.X):
        finite = logits.isfinite().all(-1).all(-1)
        logits = torch.where(finite[:, None, None], logits, 0.0)
        values[s, c : c + len(logits)] = torch.where(finite, held.measure(logits), torch.nan)
    return values
