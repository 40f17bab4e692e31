"""The loop's helpers: building what a run starts from, handing over between phases, explaining what went wrong."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from onelabel.contract import Method, diagnose
from onelabel.data import DataError, FeatureDataset, Splits
from onelabel.data.own import only_class
from onelabel.losses.naming import NamingHead
from onelabel.methods import method as make_method
from onelabel.methods import method_info
from onelabel.models import Classifier, build_classifier, starting_weights
from onelabel.models.backbones import check_size
from onelabel.models.classifier import make_head
from onelabel.models.columns import Columns, columns_of
from onelabel.system import say
from onelabel.training.checkpoint import Position
from onelabel.training.config import BY_VALIDATION, TrainConfig
from onelabel.training.evaluate import draws, features_of
from onelabel.training.feeds import Feed
from onelabel.training.machine import TrainingError, seed_everything
from onelabel.training.plan import Plan
from onelabel.training.recording import Recorder, wanted
from onelabel.training.restore import feature_width
from onelabel.training.run import RunFolder
from onelabel.training.session import Phase, Session
from onelabel.training.sharding import fill_state
from onelabel.training.stopping import Best

#: Heads whose weight and bias mean the same.
LINEAR = (nn.Linear, NamingHead)

Feeds = dict[str, Feed]


def make_config(
    config: TrainConfig | Mapping[str, Any] | None,
    method: str | Method | None,
    settings: Mapping[str, Any],
    splits: Splits[Any],
) -> TrainConfig:
    """One resolved config from a whole one, single settings and the method; features are for a head alone."""
    if splits.origin and (nothing := only_class(splits)):  # splits made by hand are as their maker wants them
        raise DataError(nothing)
    given = dict(settings)
    if isinstance(method, Method):
        plain = {k: v for k, v in method._hyper.items() if isinstance(v, (int, float, str, bool))}
        given |= {"method": method.name, "hyper": plain}
    elif method is not None:
        given["method"] = method
    whole = dataclasses.asdict(config) if isinstance(config, TrainConfig) else dict(config or {})
    whole |= given
    if whole.get("mode") is None and isinstance(splits.train, FeatureDataset):
        whole["mode"] = "linear"
    made = TrainConfig.make(whole).resolved()
    found = method_info(made.method)  # an unknown name is answered before anything is written
    if "expected_positives" in {*found.defaults} - {*made.hyper} and not isinstance(method, Method):
        return expecting(made, splits, found.defaults["expected_positives"])
    return made


def expecting(config: TrainConfig, splits: Splits[Any], default: Any) -> TrainConfig:
    """With k, the labels that a row has on average, for a method that asks for it and was not told."""
    for part in (splits.train, splits.validation):
        if part is not None and part.true is not None and 0 < (k := float(part.true.sum(1).mean())) < part.num_classes:
            return dataclasses.replace(config, hyper={**config.hyper, "expected_positives": round(k, 4)})
    say(f"{config.method}: {default:g} labels a row are expected; say how many there are by expected_positives")
    return config


def make_classifier(
    config: TrainConfig, splits: Splits[Any], model: Classifier | None, head: tuple[Any, Any] | None
) -> Classifier:
    """The classifier a run starts from: the one given, or the backbone's; a head alone where the data are features."""
    classes = len(splits.class_names)
    if isinstance(splits.train, FeatureDataset):
        if config.mode != "linear":
            raise ValueError(f"mode: {config.mode!r} needs pictures; {splits.name} holds features: give mode='linear'")
        if model is not None and not model.takes_pictures:  # `auto` has looked at the columns
            body: nn.Module = model.backbone
        else:
            body = columns_of(splits.train.X) or nn.Identity()
            if isinstance(body, Columns):
                say(f"{splits.name}: columns in units of their own, each brought to mean 0 and deviation 1")
        return Classifier(body, make_head(splits.train.X.shape[1], classes, head))
    if model is None:
        made = build_classifier(
            classes,
            backbone=config.backbone,
            weights=starting_weights(config.backbone, config.weights),
            stride=config.stride,
            head=head,
        )
        check_size(made.backbone, config.size)
        return made
    if model.num_classes != classes:
        raise ValueError(f"model: {model.num_classes} classes, expected {classes} as in {splits.name}")
    if head is not None:
        model.head = make_head(model.head.in_features, classes, head)  # type: ignore[arg-type]
    return model


def make_feeds(config: TrainConfig, splits: Splits[Any], device: torch.device) -> Feeds:
    """Every part on the device."""
    return {name: Feed(part, device, size=config.size) for name, part in splits.parts.items()}


def selecting(config: TrainConfig, feed: Feed | None) -> TrainConfig:
    """With what the best epoch goes by, for the validation rows there are; says where that is not what was asked."""
    if feed is None:
        if config.select in BY_VALIDATION:
            say("there is no validation part: the last epoch is taken")
        return config
    if config.select == "likelihood" and not draws(feed):
        raise ValueError("select: 'likelihood' needs validation rows with exactly one observed positive; take 'mAP'")
    if feed.true is not None:
        return config
    unasked = config.select == "mAP" and draws(feed)
    likely = ", and the best epoch the one that makes them likeliest" if unasked else ""
    several = int((feed.part.observed.positives_per_row() > 1).sum())
    remedy = "are not asked; if they have all their labels, -o complete=held-out says so"
    more = f"; {several:,} of {len(feed.part):,} rows have several and {remedy}" if several else ""
    say(f"validation has no true labels: mAP is that of the observed positives{likely}{more}")
    return dataclasses.replace(config, select="likelihood") if unasked else config


def fresh_method(
    config: TrainConfig, given: str | Method | None, splits: Splits[Any], classifier: Classifier
) -> Method:
    """The method without memory of any training, and the head it insists on, if any, in the classifier.

    Its draws are seeded apart from the network's.
    """
    state = torch.get_rng_state()
    seed_everything(config.seed)
    width = feature_width(classifier)
    if isinstance(given, Method):
        made = copy.deepcopy(given)
    else:
        asked = inspect.signature(method_info(config.method).cls.__init__).parameters
        extra = {"feature_dim": width} if "feature_dim" in asked and "feature_dim" not in config.hyper else {}
        made = make_method(config.method, **config.hyper, **extra)
    made.bind(splits.train.observed)
    classifier.head = _fresh_head(made.head(width, classifier.num_classes), classifier.head)
    torch.set_rng_state(state)
    return made


def _fresh_head(asked: nn.Module | None, old: Any) -> nn.Module:
    """The head that a method asks for, with what an earlier one of its kind learned: of linear ones weight and bias.

    Where it asks for none the old one stays, but not what another method had it do to its outputs.
    """
    if asked is None and not isinstance(old, NamingHead):
        return old
    head: Any = nn.Linear(old.in_features, old.out_features) if asked is None else asked
    if type(head) in LINEAR and type(old) in LINEAR:
        with torch.no_grad():
            head.weight.copy_(old.weight)
            head.bias.copy_(old.bias)
    elif type(head) is type(old):
        head.load_state_dict(old.state_dict())
    return head


def make_recorder(config: TrainConfig, splits: Splits[Any], folder: RunFolder, fabric: Any) -> Recorder | None:
    """Who records the run, in the process that writes it; None where nothing is recorded."""
    rows, classes = splits.train.observed.shape
    if not folder.writes or not wanted(config, rows, classes, kept=folder.path is not None):
        return None
    return Recorder(splits, fabric.device)


def subject(
    classifier: Classifier, feeds: Feeds, criterion: Method, fabric: Any, config: TrainConfig, phase: Phase
) -> tuple[Classifier, Feeds]:
    """What a phase trains on what: the classifier on pictures, or its head on features computed once."""
    looks = type(criterion).bind_features is not Method.bind_features
    if fabric.world_size > 1 and type(criterion.head(1, 1)) not in (*LINEAR, type(None)):
        raise ValueError(f"{config.method} brings its own head, which several processes would train wrongly: use one")
    if isinstance(feeds["train"].part, FeatureDataset):
        classifier.to(fabric.device)
        values = {name: classifier.backbone(feed.inputs) for name, feed in feeds.items()}
    elif phase.head_only or looks:
        classifier.to(fabric.device)
        wanted = feeds if phase.head_only else {"train": feeds["train"]}
        values = {name: features_of(classifier, feed, fabric, config) for name, feed in wanted.items()}
    if looks:
        found = values["train"]
        assert found is not None
        criterion.to(fabric.device).bind_features(found)
    if not phase.head_only:
        return classifier, feeds
    made = {name: Feed(feeds[name].part, fabric.device, inputs=value) for name, value in values.items()}
    return Classifier(nn.Identity(), classifier.head, num_classes=classifier.num_classes), made


def hand_over(
    classifier: Classifier,
    best: Best,
    criterion: Method,
    config: TrainConfig,
    given: str | Method | None,
    splits: Splits[Any],
) -> Method:
    """From linear to fine-tuning: the best head, and for a method that learns (ROLE) its best estimates."""
    load_weights(classifier, best.weights, strict=False)
    learns = any(p.requires_grad for p in criterion.parameters())
    made = fresh_method(config, given, splits, classifier)
    if learns:
        made.load_state_dict(best.method)
    return made


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], *, strict: bool = True) -> None:
    """In place, so that compiled code and captured graphs stay valid."""
    fill_state(module, weights, strict=strict)


def staged_inputs(session: Session, plan: Plan, update: int) -> Iterator[Tensor] | None:
    """This process's batches from `update` on, where pictures are not on the device; None where they are."""
    if session.train.inputs is not None:
        return None
    world, rank = session.fabric.world_size, session.fabric.global_rank
    share = -(-session.phase.batch_size // world)
    return session.train.batches(plan.own(update, rank, world), share)


def check_loss(session: Session, plan: Plan, position: Position) -> float:
    """The epoch's mean loss so far; raises where a loss was not finite, naming the first such batch. Waits."""
    loss = float(session.step.loss_sum) / max(plan.done[position.update], 1)
    bad = int(session.step.bad)
    if math.isfinite(loss) and bad < 0:
        return loss
    start = max(bad, 0)
    rows = plan.order[start : start + session.phase.batch_size]
    observed = session.train.observed.rows(rows.to(session.device))
    where = f"{session.phase.name} epoch {position.epoch + 1}, rows {start}–{start + len(rows) - 1} of its order"
    try:
        diagnose(session.step.bad_logits[: len(rows)], observed)
    except ValueError as error:
        raise TrainingError(f"{where} ({_names(session, rows)}): {error}{_advice(position)}") from None
    raise TrainingError(
        f"{where} ({_names(session, rows)}): the loss of {session.config.method} is not finite though the logits are; "
        f"look at its settings{_advice(position)}"
    )


def explained(error: Exception, session: Session, plan: Plan, position: Position) -> Exception:
    """A step's error with its place; what is not about the step is given back as it is."""
    start = plan.done[position.update]
    rows = plan.order[start : start + session.phase.batch_size]
    if isinstance(error, torch.OutOfMemoryError):
        return TrainingError(
            f"out of memory on {session.device} at batch_size {session.phase.batch_size}, size {session.config.size}; "
            f"lower one of them, or batch_size with accumulate raised{_advice(position)}"
        )
    if "not finite" in str(error):
        try:
            check_loss(session, plan, position)  # an earlier batch may have broken the weights
        except TrainingError as earlier:
            return earlier
        where = f"{session.phase.name} epoch {position.epoch + 1}, update {position.update + 1}"
        return TrainingError(f"{where} ({_names(session, rows)}): {error}{_advice(position)}")
    return error


def _names(session: Session, rows: Tensor) -> str:
    names = [session.train.example(int(row)) for row in rows[:2]]
    return ", ".join(names) + (f" and {len(rows) - 2} more" if len(rows) > 2 else "")


def _advice(position: Position) -> str:
    return f"; the last checkpoint (before it, {position.epoch} epochs done) is intact" if position.history else ""
