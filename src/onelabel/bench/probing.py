"""Linear runs as probes: hundreds trained at once on frozen features."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from onelabel.bench import measure
from onelabel.bench.draws import observe, subset
from onelabel.bench.plan import Planned
from onelabel.bench.results import Row
from onelabel.data import FeatureDataset

#: Settings that a probe, or the features it is trained on, has; a run that asks for more is trained by itself.
SETTINGS = {"mode", "lr", "batch_size", "epochs", "drop_last", "weight_decay", "backbone", "size"}
#: Probes of one group: enough to share work, few enough that a kill loses little. On a CPU a group is cut into so many
#: at first, then into so many seconds' worth.
GROUP, FIRST, SECONDS = 48, 8, 20.0


def possible(splits: Any) -> bool:
    """Whether the data are features."""
    return isinstance(splits.train, FeatureDataset)


def is_probe(planned: Planned) -> bool:
    """Whether a run can be one of many; one that must be seen to its last epoch cannot."""
    return planned.mode == "linear" and set(planned.settings) <= SETTINGS


def group(plan: Sequence[Planned]) -> tuple[list[list[Planned]], list[Planned]]:
    """Runs that train together, method by method; and the rest."""
    alone = [p for p in plan if not is_probe(p)]
    alike: dict[Any, list[Planned]] = defaultdict(list)
    for p in plan:
        if is_probe(p):
            # other rows are another matrix of features
            rows = (p.fraction, p.seed if p.fraction != 1 else None)
            alike[p.settings.get("drop_last", False), p.settings.get("epochs"), rows].append(p)
    together = []
    first = {p.name: i for i, p in reversed(list(enumerate(plan)))}
    for members in alike.values():
        members.sort(key=lambda p: first[p.name])  # in the plan's order, a method's runs together
        together += [members[i : i + GROUP] for i in range(0, len(members), GROUP)]
    return together, alone


def at_once(pace: float, device: str) -> int:
    """How many probes to train before they are written; `pace` is the seconds each of the last took, 0 at first."""
    if device != "cpu":
        return GROUP
    return max(1, int(SECONDS / pace)) if pace else FIRST


def fit(members: Sequence[Planned], splits: Any, *, device: str = "cpu") -> list[Row]:
    """Train a group and measure every probe at its best epoch by validation mAP."""
    from onelabel.probes import ProbeSpec, fit_probes

    started, clock = measure.now(), time.perf_counter()
    train, first = splits.train, members[0]
    rows = subset(len(train), first.fraction, first.seed)
    sets, specs = {}, []
    for p in members:
        key = f"{p.draw}|{p.supervision}"
        if key not in sets:
            labels = observe(train, p.draw, p.supervision, validation=splits.validation)
            sets[key] = labels.take(rows) if p.fraction != 1 else labels
        s = p.settings
        rate, size, epochs = float(s.get("lr", 1e-3)), int(s.get("batch_size", 16)), int(s.get("epochs", 25))
        specs.append(ProbeSpec(p.method, p.hyper, rate, size, p.seed, epochs, float(s.get("weight_decay", 0.0)), key))
    X, true = (train.X[rows], train.true[rows]) if first.fraction != 1 else (train.X, train.true)
    held = splits.validation
    last = bool(first.settings.get("drop_last", False))
    found = fit_probes(X, sets, specs, validation=(held.X, held.true), device=device, drop_last=last)
    made = []
    history = found.history["validation"]
    parts = {"train": len(X), "validation": len(held), "test": len(splits.test)}
    # on the device once: every probe is measured there
    test_X, train_X = (torch.as_tensor(part).to(device) for part in (splits.test.X, X))
    test_true, train_true = (torch.as_tensor(part).to(device) for part in (splits.test.true, true))
    for i, p in enumerate(members):
        best = int(found.best_epoch[i])
        values: dict[str, Any] = {"best_epoch": best, "validation_map": 100 * float(history[i, best])}
        scores = torch.sigmoid(found.scores(test_X, i, device=device))
        if bool(torch.isfinite(scores).all()):
            values |= measure.of_test(p.method, scores, test_true)
            values["test_ap_of"] = "plain"
            values["test_map"] = 100 * sum(values["test_ap"]) / len(values["test_ap"])
            values["train_map"] = measure.percent_map(found.scores(train_X, i, device=device), train_true)
            values["history"] = [
                {"phase": "linear", "epoch": e, "validation_mAP": round(100 * float(v), 4)}
                for e, v in enumerate(history[i])
            ]
        else:
            values |= {"status": "failed", "error": "the scores are not finite: the learning rate is too high"}
        made.append((p, values))
    share = (time.perf_counter() - clock) / len(members)
    return [p.row(**values, started=started, seconds=share, together=len(members), rows=parts) for p, values in made]
