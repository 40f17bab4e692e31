"""Teacher and student: the targets, the loss, and a run through all three phases, cut in each of them."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import assert_same_run
from safetensors.torch import load_file, save_file
from torch import Tensor
from training_workers import SMALL, scenes

import onelabel
from onelabel.labels import Labels
from onelabel.losses.calibrate import Calibration
from onelabel.losses.context import Context
from onelabel.training import Run, TrainConfig, TrainingError, prepare, teaching, train
from onelabel.training.feeds import Feed
from onelabel.training.looking import Belief
from onelabel.training.step import Step
from onelabel.training.student import Student, targets
from onelabel.training.teaching import HEAD, Start, wants_student

TINY = {**SMALL, "epochs": 2, "linear_epochs": 2, "linear_batch_size": 16, "checkpoint_steps": 2, "ema": 0.9}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")


# -- the targets ----------------------------------------------------------------------------------------------------


def simulated(rows: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, float, Tensor]:
    """Logits s, labels with chances σ(0.6·s + b), and one of each row's labels drawn; rows without any left out."""
    rng = torch.Generator().manual_seed(seed)
    slope, intercept = 0.6, torch.tensor([-2.5, -1.5, -1.0, -2.0, -0.5, -1.8, -2.2, -1.2])
    s = 3 * torch.randn(rows, 8, generator=rng) + 1
    true = (torch.rand(rows, 8, generator=rng) < torch.sigmoid(slope * s + intercept)).to(torch.uint8)
    some = true.any(1).bool()
    s, true = s[some], true[some]
    drawn = torch.multinomial(true.float(), 1, generator=rng)
    observed = torch.zeros(true.shape, dtype=torch.int8).scatter_(1, drawn, 1)
    return s, true, observed, slope, intercept


@pytest.mark.parametrize("k", [1.5, 2.5, 6.0])
@pytest.mark.parametrize("rows_at_a_time", [64, 65_536])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("context", [False, True])
def test_targets(
    k: float, rows_at_a_time: int, smoothing: float, context: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onelabel.training.student.ROWS", rows_at_a_time)
    s, _, observed, slope, intercept = simulated(300)
    observed[::3, 0] = torch.where(observed[::3, 0] == 0, -1, 1).to(torch.int8)
    told = None
    z = slope * s + intercept
    if context:
        rng = torch.Generator().manual_seed(1)
        told = Context(torch.randn(8, 8, generator=rng).fill_diagonal_(0), torch.rand(8, generator=rng), torch.ones(8))
        z = z + (torch.sigmoid(z) - told.mean) @ told.weights + 1
    belief = Belief(0.5, Calibration(np.array([slope]), np.zeros(0), intercept.numpy(), k), told)
    q = targets(belief, s, Labels.from_matrix(observed.numpy()).on("cpu"), smoothing=smoothing)
    assert q.min() >= smoothing / 2
    q = (q - smoothing / 2) / (1 - smoothing)
    assert q.sum(1).mean().item() == pytest.approx(k, abs=1e-4)
    torch.testing.assert_close(q[observed > 0], torch.ones(int((observed > 0).sum())))
    torch.testing.assert_close(q[observed < 0], torch.zeros(int((observed < 0).sum())), atol=1e-7, rtol=0)
    shifts = []
    for c in range(8):
        unknown = observed[:, c] == 0
        order = z[unknown, c].argsort()
        assert (q[unknown, c][order].diff() >= -1e-7).all()
        unknown &= (q[:, c] > 1e-4) & (q[:, c] < 1 - 1e-4)  # beyond, float32 has no digits left for the shift
        shifts.append(torch.logit(q[unknown, c].double()) - 1.5 * z[unknown, c])
    every = torch.cat(shifts)
    torch.testing.assert_close(every, every.mean().expand_as(every), rtol=0, atol=5e-3)  # one shift for all entries


# -- the loss -------------------------------------------------------------------------------------------------------


def test_the_students_loss_against_plain_loops() -> None:
    rng = torch.Generator().manual_seed(3)
    labels = np.zeros((7, 3), np.int8)
    labels[:, 0], labels[4, 1] = 1, -1
    q = torch.rand(7, 3, generator=rng).half().double()
    student = Student()
    student.bind(Labels.from_matrix(labels))
    student.teach(q)
    index = torch.tensor([4, 0, 6, 4])
    logits = torch.randn(4, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    observed = torch.from_numpy(labels)[index]
    loss = student(logits, observed, index=index)
    total, slopes = 0.0, torch.zeros(4, 3, dtype=torch.float64)
    for b in range(4):
        for c in range(3):
            wanted = float(q[index[b], c])
            p = 1 / (1 + math.exp(-logits[b, c].item()))
            total -= wanted * math.log(p) + (1 - wanted) * math.log(1 - p)
            slopes[b, c] = (p - wanted) / 12
    assert loss.item() == pytest.approx(total / 12, rel=1e-12)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], slopes)
    assert not list(student.parameters())
    assert student(logits.float() * 1e4, observed, index=index).isfinite()


def test_what_a_student_cannot_be_taught() -> None:
    with pytest.raises(RuntimeError, match=r"call bind\(labels\) before"):
        Student().teach(torch.zeros(5, 3))
    student = Student()
    student.bind(Labels.from_matrix(np.eye(5, 3, dtype=np.int8)))
    with pytest.raises(ValueError, match=r"q must have shape \(5, 3\) as bind\(labels\) had, got \(3, 5\)"):
        student.teach(torch.zeros(3, 5))


# -- whether there is one -------------------------------------------------------------------------------------------


@cache
def small() -> Any:
    return scenes(n_train=48, n_validation=30, n_test=20)


def wanted(method: str, parts: tuple[str, ...] = ("train", "validation"), **settings: Any) -> bool:
    feeds = {name: Feed(small().parts[name], CPU, size=24) for name in parts}
    return wants_student(TrainConfig.make(settings).resolved(), onelabel.method(method), feeds)


@pytest.mark.parametrize("mode", ["finetune", "linearinit", "linear"])
def test_who_gets_a_student(mode: str) -> None:
    assert wanted("roll-call", mode=mode)
    assert not wanted("em", mode=mode)
    assert wanted("em", mode=mode, student="on")
    assert not wanted("roll-call", mode=mode, student="off")


def test_no_held_out_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("ONELABEL_QUIET")
    assert not wanted("roll-call", ("train",))
    assert "no student follows, which needs a validation part" in capsys.readouterr().err
    assert not wanted("em", ("train",))
    assert not wanted("roll-call", ("train",), student="off")
    assert not capsys.readouterr().err
    with pytest.raises(ValueError, match="student: 'on' needs a validation part, whose rows tell how sure"):
        wanted("em", ("train",), student="on")


def without_truth(observed: np.ndarray | None = None) -> Any:
    splits = small()
    labels = splits.validation.observed if observed is None else Labels.from_matrix(observed)
    part = dataclasses.replace(splits.validation, true=None, observed=labels)
    return dataclasses.replace(splits, validation=part)


def test_held_out_rows_that_cannot_tell() -> None:
    """Before anything is trained, not after fine-tuning."""
    several = (small().validation.true > 0).astype(np.int8)
    several[several.sum(1) == 1] = 0
    part = without_truth(several).validation
    feeds = {"train": Feed(small().train, CPU, size=24), "validation": Feed(part, CPU, size=24)}
    assert not wants_student(TrainConfig().resolved(), onelabel.method("roll-call"), feeds)
    with pytest.raises(ValueError, match="validation rows with true labels, or with exactly one observed positive"):
        wants_student(TrainConfig(student="on").resolved(), onelabel.method("roll-call"), feeds)


# -- a run ----------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """Like a kill: nothing catches it."""


def go(out: Path | None, data: Any = None, *, dies_at: int = 0, **settings: Any) -> Run | None:
    """A training, or what there is of it when update number `dies_at` is due; goes on where `out` left off."""
    torch.set_num_threads(1)
    update, calls = Step.__call__, [0]

    def mortal(self: Step, sizes: tuple[int, ...]) -> None:
        calls[0] += 1
        if calls[0] == dies_at:
            raise Crash
        update(self, sizes)

    given = {**TINY, "mode": "linearinit", "method": "roll-call", **settings}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__call__", mortal)
        if dies_at:
            with pytest.raises(Crash):
                train(data or small(), out=out, resume=out is not None, **given)
            return None
        return train(data or small(), out=out, resume=out is not None, **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONELABEL_QUIET", "1")
        go(out := tmp_path_factory.mktemp("student") / "whole")
    return out


def test_three_phases(whole: Path) -> None:
    run = Run.load(whole)
    assert [(row["phase"], row["epoch"]) for row in run.history] == [
        (phase, epoch) for phase in ("linear", "finetune", "student") for epoch in range(2)
    ]
    assert all(math.isfinite(row["loss"]) for row in run.history)
    # so small a student is not better than its teacher: that one's state stays
    assert (run.result["best_phase"], "taught" in run.method_state) in [("student", True), ("finetune", False)]
    assert run.result["test_mAP"] > 0


# 6 updates a phase: the first of each goes back to the phase before it, the others into the middle of an epoch
@pytest.mark.parametrize("dies_at", [5, 7, 11, 13, 15, 18])
def test_killed_in_every_phase(tmp_path: Path, whole: Path, dies_at: int) -> None:
    go(tmp_path / "cut", dies_at=dies_at)
    go(tmp_path / "cut")
    assert_same_run(whole, tmp_path / "cut")


def test_killed_once_in_each_phase(tmp_path: Path, whole: Path) -> None:
    for dies_at in (4, 6, 7):
        go(tmp_path / "cut", dies_at=dies_at)
    go(tmp_path / "cut")
    assert_same_run(whole, tmp_path / "cut")


@pytest.mark.parametrize("context", ["auto", "off"])
def test_a_student_of_a_head_alone(context: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On features: made once for both phases; killed in either it goes on to the same numbers."""
    made = []
    features = prepare.features_of
    monkeypatch.setattr(prepare, "features_of", lambda *given: made.append(1) or features(*given))
    asked: list[bool] = []
    ask = teaching.believe
    monkeypatch.setattr(teaching, "believe", lambda *given, **how: asked.append(how["context"]) or ask(*given, **how))
    settings = {"mode": "linear", "student": "on", "student_context": context, "epochs": 3, "lr": 0.01}
    run = go(tmp_path / "whole", **settings)
    assert run is not None
    assert asked == [context == "auto"]
    assert len(made) == len(small().parts)
    assert [row["phase"] for row in run.history] == ["linear"] * 3 + ["student"] * 3
    held = [row["validation_mAP_ema"] for row in run.history]
    assert run.result["validation_mAP"] == pytest.approx(max(held))
    for dies_at in (4, 13):  # three updates an epoch
        go(tmp_path / "cut", dies_at=dies_at, **settings)
    go(tmp_path / "cut", **settings)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def as_of_before(run: Path, **then: Any) -> None:
    """The run's settings as they were written before teachers asked other classes, and heads had students."""
    lines = (run / "config.toml").read_text().splitlines()
    new = {"student_context", "student_annotators"}
    assert new <= {line.split(" = ")[0] for line in lines}
    lines = [line for line in lines if line.split(" = ")[0] not in new | set(then)]
    said = [f"{name} = {value!r}".replace("'", '"') for name, value in then.items()]
    (run / "config.toml").write_text("\n".join([*said, *lines]))
    for state in (run / "checkpoint").glob("*/state.json"):
        state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "settings"}))


@pytest.mark.parametrize("method", ["em", "roll-call"])
def test_a_head_begun_before_heads_had_students_goes_on_without(method: str, tmp_path: Path) -> None:
    run, settings = tmp_path / "run", {"method": method, "mode": "linear", "lr": 0.01}
    plain = go(tmp_path / "plain", student="off", **settings)
    go(run, dies_at=3, student="off", **settings)
    as_of_before(run, student="auto", student_smoothing=0.0)
    ended = go(run, **settings)
    assert plain is not None
    assert ended is not None
    assert [row["phase"] for row in ended.history] == ["linear"] * 2
    assert ended.result["test_mAP"] == plain.result["test_mAP"]
    as_of_before(run, student="auto", student_smoothing=0.0)
    found = TrainConfig.load(run / "config.toml")  # as `onelabel train RUN --resume` takes it
    again = train(small(), config=found, out=run, resume=True)
    assert (again.history, again.result["test_mAP"]) == (ended.history, ended.result["test_mAP"])


def test_a_teacher_begun_before_it_asked_other_classes_asks_none(tmp_path: Path) -> None:
    go(tmp_path / "run", dies_at=4)
    as_of_before(tmp_path / "run")
    ended = go(tmp_path / "run")
    assert ended is not None
    assert (ended.config.student, ended.config.student_context) == ("auto", "off")
    assert ended.config.student_annotators == "off"
    assert ended.history[-1]["phase"] == "student"


def test_a_student_starts_where_its_teacher_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another process trained the head: it is in the run folder."""
    teach, begun, seen = Start.teach, Start.__init__, []

    def first(self: Start, *given: Any, **how: Any) -> None:
        begun(self, *given, **how)
        seen.append({k: v.clone() for k, v in self.classifier.state_dict().items()})

    def after(self: Start, *given: Any) -> Student:
        made = teach(self, *given)
        seen.append({k: v.clone() for k, v in self.classifier.state_dict().items()})
        return made

    monkeypatch.setattr(Start, "__init__", first)
    monkeypatch.setattr(Start, "teach", after)
    go(tmp_path / "run", dies_at=9)
    head = load_file(tmp_path / "run" / HEAD)
    assert not any(torch.equal(head[k], seen[0][k]) for k in head)
    mine = {k: v + 1 for k, v in head.items()}
    save_file(mine, tmp_path / "run" / HEAD)
    go(tmp_path / "run")
    began, taught = seen[0], seen[-1]
    for k, v in taught.items():
        assert torch.equal(v, mine.get(k, began[k])), k


def test_a_lost_head_is_told_of(tmp_path: Path) -> None:
    go(tmp_path / "run", dies_at=9)
    (tmp_path / "run" / HEAD).unlink()
    with pytest.raises(TrainingError, match=f"{HEAD}: is missing, from which the student would start") as caught:
        go(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_head_left_by_an_earlier_run_is_not_used(tmp_path: Path) -> None:
    """checkpoint/ removed, as the error of a broken one advises, and fine-tuned without a linear phase."""
    go(tmp_path / "plain", mode="finetune")
    (tmp_path / "again").mkdir()
    state = load_file(tmp_path / "plain" / "weights-best.safetensors")
    save_file({k: v for k, v in state.items() if k.startswith("head.")}, tmp_path / "again" / HEAD)
    go(tmp_path / "again", mode="finetune")
    assert_same_run(tmp_path / "plain", tmp_path / "again")


def test_only_observed_labels_held_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONELABEL_QUIET")
    run = go(None, without_truth(), mode="finetune", epochs=1)
    assert run is not None
    assert [row["phase"] for row in run.history] == ["finetune", "student"]
    assert "labels a row by the held-out rows" in capsys.readouterr().err


def test_nothing_held_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONELABEL_QUIET")
    run = go(None, dataclasses.replace(small(), validation=None), mode="finetune", epochs=1)
    assert run is not None
    assert [row["phase"] for row in run.history] == ["finetune"]
    assert "no student follows" in capsys.readouterr().err


@pytest.mark.parametrize(("method", "hyper"), [("em", {}), ("role", {"expected_positives": 2.0})])
def test_a_student_of_another_method(method: str, hyper: dict[str, float], tmp_path: Path) -> None:
    """ROLE has parameters and an optimiser of its own, which the student has not."""
    settings = {"method": method, "hyper": hyper, "student": "on", "mode": "finetune"}
    go(tmp_path / "whole", **settings)
    go(tmp_path / "cut", dies_at=10, **settings)
    run = go(tmp_path / "cut", **settings)
    assert run is not None
    assert [row["phase"] for row in run.history] == ["finetune"] * 2 + ["student"] * 2
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(
    ("values", "phase", "epoch"), [([50, 60, 55, 58], "finetune", 1), ([50, 60, 70, 65], "student", 0)]
)
@pytest.mark.parametrize("select", ["mAP", "last"])
def test_a_student_has_to_be_better_than_its_teacher(
    values: list[float], phase: str, epoch: int, select: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By validation; the last epoch is the last of the student's. A run that is resumed after it says the same."""
    given = iter([*values, *[1.0] * 8])
    settings: dict[str, Any] = {"mode": "finetune", "select": select, "ema": 0.0}
    monkeypatch.setattr("onelabel.training.loop.mean_ap", lambda *_, blind=False, **__: 0.0 if blind else next(given))
    run = go(tmp_path / "run", **settings)
    assert run is not None
    found = (run.result["best_phase"], run.result["best_epoch"])
    assert found == ((phase, epoch) if select == "mAP" else ("student", 1))
    assert ("taught" in run.method_state) == (found[0] == "student")
    again = go(tmp_path / "run", **settings)
    assert again is not None
    assert (again.result["best_phase"], again.result["best_epoch"]) == found
    state = run.classifier.state_dict()
    for name, value in load_file(tmp_path / "run" / "weights-best.safetensors").items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0)


def test_a_student_kept_off() -> None:
    run = go(None, mode="finetune", epochs=1, student="off")
    assert run is not None
    assert [row["phase"] for row in run.history] == ["finetune"]


def test_split_weights_get_none() -> None:
    assert not wanted("roll-call", strategy="fsdp")
    with pytest.raises(ValueError, match="student: 'on' needs whole weights in each process"):
        wanted("em", strategy="fsdp", student="on")


def test_targets_are_smoothed_where_the_rate_is_annealed() -> None:
    assert TrainConfig(schedule="cosine").resolved().student_smoothing == 0.2
    assert TrainConfig().resolved().student_smoothing == 0.0
    assert TrainConfig(student_smoothing=0.1, schedule="cosine").resolved().student_smoothing == 0.1
    assert TrainConfig(mode="linear").resolved().student_smoothing == 0.1
    with pytest.raises(ValueError, match="student_smoothing: 1"):
        TrainConfig(student_smoothing=1.0)
