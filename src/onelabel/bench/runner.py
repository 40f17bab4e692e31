"""`run`: make the runs of a plan that nobody has made, each once, and write a row for each."""

from __future__ import annotations

import copy
import dataclasses
import gc
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from onelabel.bench import measure, probing
from onelabel.bench.claims import LEASE, beating, claim
from onelabel.bench.draws import observe, subset, with_labels
from onelabel.bench.plan import UNSAID, Planned, expected
from onelabel.bench.results import Row
from onelabel.bench.store import Store, open_store
from onelabel.contract import method_info
from onelabel.data import verify_splits
from onelabel.system import say
from onelabel.training.readable import leave_out_unreadable

Trainer = Callable[..., Any]


@dataclass
class Tally:
    """What a worker did: runs made, failed, had by others or before, and left for want of time."""

    made: int = 0
    failed: int = 0
    skipped: int = 0
    left: int = 0

    def __str__(self) -> str:
        return f"{self.made} runs made, {self.failed} failed, {self.skipped} skipped, {self.left} left"


def run(
    plan: Iterable[Planned],
    splits: Any,
    *,
    out: str | Path | Store,
    feeds: Mapping[str, Any] | None = None,
    fabric: Any = None,
    model: Any = None,
    trainers: Mapping[str, Trainer] | None = None,
    settings: Mapping[str, Any] | None = None,
    weights: str = "",
    device: str | None = None,
    beside: int = 0,
    seconds: float | None = None,
    lease: float = LEASE,
    retry: bool = False,
    probes: bool = True,
    told: Callable[[Row], None] | None = None,
) -> Tally:
    """Make every run of `plan` that has no result and that no living worker has claimed.

    A run that fails becomes a row that says why, and the next one begins. Interrupted or killed workers leave nothing
    half done: start again, here or anywhere that sees `out`, to go on.

    Args:
        plan: see `make_plan`.
        splits: with the true labels of the training rows where draws or full labels ask for them.
        out: a results folder, or the URL of a database.
        feeds, fabric, model: passed on to `train`; the model's weights are put back in place before every run, its head
            drawn from the run's seed, so that compiled code serves all of them.
        trainers: who trains a method, by name, instead of `training.train` or as a probe, with `train`'s arguments.
        settings: settings of `train` for this machine (device, compile, eval_batch_size …): they are no part of a run's
            identity.
        weights: what the backbone started from, in words, for the rows.
        beside: other workers that use the same device: the rows say so, for their seconds are not a lone worker's.
        seconds: begin nothing that would end after so many seconds from now.
        retry: make failed runs again. probes: train linear runs together where they can be.
        told: called with every new row.
    """
    check_parts(splits)
    store, began, tally = open_store(out), time.monotonic(), Tally()
    wanted = {planned.run_id: planned for planned in plan}
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    about = {**measure.place(where), "weights": weights, "classes": splits.class_names}
    about["hardware"] += f", {beside + 1} runs at once" if beside else ""
    known = {row.run_id: row for row in store.find().rows}
    todo = [p for p in wanted.values() if (row := known.get(p.run_id)) is None or (retry and not row.done)]
    tally.skipped = len(wanted) - len(todo)
    if todo and not feeds:  # a run's scores are compared with the labels of these splits, row by row
        splits = verify_splits(splits)
    feeds = dict(feeds or {})
    splits = leave_out_unreadable(splits, feeds, fabric)
    context = _Context(splits, feeds, fabric, model, trainers or {}, dict(settings or {}))
    own = set(context.trainers) if probes and probing.possible(splits) else {p.method for p in todo}
    together, alone = probing.group([p for p in todo if p.method not in own])
    alone += [p for p in todo if p.method in own]
    longest = pace = 0.0
    queue = deque([*((group, True) for group in together), *(([p], False) for p in alone)])
    while queue:
        group, as_probes = queue.popleft()
        if as_probes and len(group) > (size := probing.at_once(pace, where)):
            queue.appendleft((group[size:], True))
            group = group[:size]
        guess = sum(expected(p, list(known.values()), about["hardware"]) or longest for p in group)
        if seconds is not None and time.monotonic() - began + guess > seconds:
            tally.left += len(group)
            say(f"no time left for {group[0]}" + (f" and {len(group) - 1} more" if len(group) > 1 else ""))
            continue
        held = [(p, gen) for p in group if (gen := claim(store, p.run_id, lease=lease, retry=retry)) is not None]
        tally.skipped += len(group) - len(held)
        if not held:
            continue
        clock = time.monotonic()
        try:
            with beating(store, [(p.run_id, gen) for p, gen in held], lease=lease):
                mine = [p for p, _ in held]
                made = _together(mine, context, where) if as_probes else [_alone(mine[0], context)]
                rows = [_with(row, about) for row in made]
                for row in rows:
                    store.put(row)
        except BaseException:
            for p, gen in held:  # free for others at once; whoever took it over meanwhile keeps it
                if store.latest(p.run_id) == gen and store.row(p.run_id) is None:
                    store.clear(p.run_id)
            raise
        pace = (time.monotonic() - clock) / len(rows)
        longest = max(longest, pace)
        for row in rows:
            store.clear(row.run_id)
            known[row.run_id] = row
            tally.made, tally.failed = tally.made + row.done, tally.failed + (not row.done)
            if told is not None:
                told(row)
    return tally


def check_parts(splits: Any) -> None:
    """Whether there are true labels to measure by."""
    for part in ("validation", "test"):
        if part not in splits.parts or splits.parts[part].true is None:
            raise ValueError(
                f"{splits.name}: a benchmark needs a {part} part with its true labels, and there is none; give a "
                "split column or folders train/, val/ and test/ with -o complete=held-out, or true, X_test and "
                "true_test in an .npz"
            )


def _with(row: Row, about: Mapping[str, Any]) -> Row:
    return dataclasses.replace(row, **{k: v for k, v in about.items() if not getattr(row, k)})


@dataclass
class _Context:
    """What all runs of a worker share."""

    splits: Any
    feeds: dict[str, Any]
    fabric: Any
    model: Any
    trainers: Mapping[str, Trainer]
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        self.head = None if self.model is None else self.model.head
        self.start = None if self.model is None else {k: v.clone() for k, v in self.model.state_dict().items()}

    def fresh_model(self, seed: int) -> Any:
        """The model as it was, weights put back in place, its head drawn from `seed`."""
        if self.model is None:
            return None
        self.model.head = self.head  # a method may have brought its own
        self.model.load_state_dict(self.start)
        torch.manual_seed(seed)
        if self.head is not None:
            self.head.reset_parameters()
        return self.model

    def data(self, planned: Planned) -> tuple[Any, dict[str, Any] | None]:
        """The splits and feeds of a run: its labels, its share of the rows, the same pictures."""
        splits, part = self.splits, self.splits.train
        labels = observe(part, planned.draw, planned.supervision, validation=splits.validation)
        rows = None
        if planned.fraction != 1:
            rows = subset(len(part), planned.fraction, planned.seed)
            part, labels = part.take(rows), labels.take(rows)
        part = with_labels(part, labels)
        made = dataclasses.replace(splits, train=part)
        if not self.feeds:
            return made, None
        return made, {**self.feeds, "train": _relabelled(self.feeds["train"], part, rows)}


def _relabelled(feed: Any, part: Any, rows: Any) -> Any:
    """A feed of the same pictures with other labels, or of some of them."""
    if rows is not None:
        inputs = None if feed.inputs is None else feed.inputs[torch.as_tensor(rows, device=feed.inputs.device)]
        some = type(feed)(part, feed.device, size=0 if inputs is not None else feed.pictures.size, inputs=inputs)
        some.checked = feed.checked
        return some
    made = copy.copy(feed)
    made.part, made.observed = part, part.observed.on(feed.device)
    return made


def _untried(name: str) -> dict[str, Any]:
    """Defaults of what training would try on held-out rows: a plan says what is compared, here as among probes."""
    info = method_info(name)
    return {setting: info.defaults[setting] for setting in info.cls.trials(2) if setting in info.hyper}


def _alone(planned: Planned, context: _Context) -> Row:
    """One training; whatever goes wrong in it becomes a failed row."""
    from onelabel.training import train

    started, clock = measure.now(), time.perf_counter()
    try:
        splits, feeds = context.data(planned)
        trainer = context.trainers.get(planned.method, train)
        model = context.fresh_model(planned.seed)
        heads = {"student": "off"} if planned.mode == "linear" else {}  # as among probes
        ready = time.perf_counter()
        made = trainer(
            splits,
            method=planned.method,
            hyper={**_untried(planned.method), **planned.hyper},
            feeds=feeds,
            fabric=context.fabric,
            model=model,
            seed=planned.seed,
            **{**UNSAID, **heads, **planned.settings, **context.settings},
        )
        trained = time.perf_counter()
        parts = {name: len(part) for name, part in splits.parts.items()}
        numbers = measure.of_run(made, splits)
        updates = sum(parts["train"] / speed for speed in numbers["extra"]["images_per_second"])
        spent = {"preparing": ready - clock, "updates": updates, "scoring and the rest": trained - ready - updates}
        spent |= {"measuring": time.perf_counter() - trained}
        numbers["extra"]["seconds"] = {name: round(value, 4) for name, value in spent.items()}
        numbers["extra"]["machine"] = {**context.settings, "precision": made.config.precision}
        row = planned.row(**numbers, started=started, rows=parts)
    except Exception as error:  # any failure of one run must leave the others
        row = _failed(planned, error, started, None)
    made = feeds = None
    gc.collect()  # captured graphs and optimisers hold the device's memory in cycles
    if not row.done and torch.cuda.is_available():
        torch.cuda.empty_cache()
    return dataclasses.replace(row, seconds=time.perf_counter() - clock)


def _failed(planned: Planned, error: Exception, started: str, seconds: float | None) -> Row:
    told = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}{measure.place_of(error)}"
    return planned.row(status="failed", error=told, started=started, seconds=seconds)


def _together(group: Sequence[Planned], context: _Context, device: str) -> list[Row]:
    """Probes trained at once; where that fails they are tried one by one, so that one bad setting costs only itself."""
    try:
        return probing.fit(group, context.splits, device=device)
    except Exception as error:
        if len(group) == 1:
            return [_failed(group[0], error, measure.now(), None)]
    middle = len(group) // 2
    return [*_together(group[:middle], context, device), *_together(group[middle:], context, device)]
