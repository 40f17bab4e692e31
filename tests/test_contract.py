"""The contract: what a method checks and says, stacks, and the catalogue."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import onelabel
from onelabel import contract, list_methods, method, method_info
from onelabel.contract import Hyper, Method, MethodInfo, Needs, check_k, diagnose

#: Issue 2's list, and the project's own.
NAMES = [
    *(
        "bce",
        "bce-ls",
        "iun",
        "iu",
        "an",
        "an-ls",
        "n-ls",
        "wan",
        "dw",
        "pseudo-negative",
        "focal",
        "fan",
        "asl",
        "asl-ps",
    ),
    *("hill", "splc", "entmin", "em", "gr", "las", "lasd", "pr", "epr", "role", "l1r", "l2r", "ll-r", "ll-ct", "ll-cp"),
    *("em-apl", "en", "mime", "smile"),
    "roll-call",
]
logits, observed = torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int8)


# -- what is wrong with an input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("g", "z", "message"),
    [
        (torch.zeros(3), observed, r"logits must have shape B×L, got \(3,\)"),
        (torch.zeros(1, 2, 3), observed, r"logits must have shape B×L, got \(1, 2, 3\)"),
        (torch.zeros(2, 3, dtype=torch.int64), observed, r"logits must be floating point, got torch.int64"),
        (logits, torch.zeros(2, 4), r"observed must have the shape of logits \(2, 3\), got \(2, 4\)"),
        (logits, torch.zeros(3), r"observed must have the shape of logits \(2, 3\), got \(3,\)"),
        (logits, observed.to("meta"), r"observed is on meta, logits on cpu: move one of them"),
    ],
)
def test_shapes_dtypes_and_devices(g: torch.Tensor, z: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method("an")(g, z)


def test_shapes_of_a_stack() -> None:
    criterion = method("em", alpha=[0.1, 0.2])
    with pytest.raises(ValueError, match=r"logits must have shape 2×B×L, got \(2, 3\)"):
        criterion(logits, observed)
    with pytest.raises(ValueError, match=r"logits must have shape 2×B×L, got \(3, 2, 3\)"):
        criterion(torch.zeros(3, 2, 3), observed)
    with pytest.raises(ValueError, match=r"observed must have the shape of logits \(2, 2, 3\), got \(3, 2, 3\)"):
        criterion(torch.zeros(2, 2, 3), torch.zeros(3, 2, 3))
    assert criterion(torch.zeros(2, 2, 3), observed).shape == (2,)


@pytest.mark.parametrize("bad", [2, -2, 0.5, -0.25, float("nan"), float("inf"), -float("inf"), 127])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float32, torch.bfloat16])
def test_labels_outside_the_three(bad: float, dtype: torch.dtype) -> None:
    if dtype in (torch.int8, torch.int64) and bad not in (2, -2, 127):
        pytest.skip("no such integer")
    labels = torch.tensor([[1, 0, -1], [0, 1, 0]]).to(dtype)
    method("an")(logits, labels)
    labels[1, 2] = bad
    with pytest.raises(
        ValueError, match=rf"observed must hold only \+1 .*0 .*−1 .*; got {labels[1, 2].item()} at row 1, class 2"
    ):
        method("an")(logits, labels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite(bad: float, dtype: torch.dtype) -> None:
    g = torch.zeros(4, 3, dtype=dtype)
    g[2, 1] = bad
    with pytest.raises(ValueError, match=rf"logits are not finite: {bad} at row 2, class 1 \(1 such entries\); lower"):
        method("an")(g, torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"at row 2, class 1 \(2 such entries\)"):  # the row, whatever the model
        method("an", stack=2)(g.expand(2, 4, 3), torch.zeros(4, 3))
    g[3, 0] = -bad  # which add up to NaN, or cancel
    with pytest.raises(ValueError, match=r"at row 2, class 1 \(2 such entries\)"):
        diagnose(g, torch.zeros(4, 3))


def test_large_logits_are_no_false_alarm() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        huge = torch.full((500, 300), torch.finfo(dtype).max, dtype=dtype)  # whose sum is infinite
        diagnose(huge, torch.zeros(500, 300))
    diagnose(torch.zeros(0, 3), torch.zeros(0, 3))
    diagnose(logits, torch.zeros(2, 3, dtype=torch.bool))


def test_needs_are_named() -> None:
    class Needy(Method):
        def __init__(self, needs: Needs) -> None:
            super().__init__()
            self._needs = needs

        @property
        def needs(self) -> Needs:
            return self._needs

    for needs, message in (
        (Needs(index=True), "Needy needs index=: the batch's positions in the training set"),
        (Needs(features=True), "Needy needs features=: what the last layer sees, B×D"),
        (Needs(weights=True), "Needy needs weights=: the trainable weights it penalises"),
        (Needs(views=3), "Needy needs 2 further views of each picture, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            Needy(needs)(logits, observed)
    with pytest.raises(ValueError, match="Needy needs 0 further views of each picture, got 1"):
        Needy(Needs())(logits, observed, views=[logits])
    with pytest.raises(ValueError, match=r"index must have one entry per row \(2\), got \(3,\)"):
        Needy(Needs(index=True))(logits, observed, index=torch.arange(3))
    with pytest.raises(NotImplementedError):
        Needy(Needs())(logits, observed)
    assert str(Needs(index=True, views=3)) == "index, views=3"
    assert str(Needs()) == "–"


@pytest.mark.parametrize("k", [0, -1, 3.1, float("nan"), [1.0, 4.0], torch.tensor([0.0, 1.0])])
def test_k_outside_the_classes(k: object) -> None:
    with pytest.raises(ValueError, match=r"expected_positives must lie in \(0, 3\], the number of classes, got"):
        check_k(k, 3)


def test_k_within_the_classes() -> None:
    for k in (1e-9, 1, 3, [1.0, 3.0], torch.tensor([0.5, 3.0]), np.array([0.5]), np.float32(2)):
        check_k(k, 3)
    with pytest.raises(ValueError, match=r"expected_positives must lie in \(0, 3\), the number of classes, got 3"):
        check_k(3, 3, below=True)


# -- what is wrong with a setting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [("emm", "em"), ("EM", "em"), ("an_ls", "an-ls"), ("rolle", "role"), ("asl_ps", "asl-ps"), ("LASD", "lasd")],
)
def test_an_unknown_method_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(
        ValueError, match=rf"there is no method '{name}'; did you mean '{near}'\? onelabel.list_methods"
    ):
        method(name)
    with pytest.raises(ValueError, match=f"did you mean '{near}'"):
        method_info(name)


def test_nothing_is_near_nonsense() -> None:
    with pytest.raises(ValueError, match=r"there is no method 'zzqqy'; onelabel.list_methods\(\) lists them all"):
        method("zzqqy")
    with pytest.raises(ValueError, match="there is no method None"):
        method(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hyper", "error", "message"),
    [
        (
            "em",
            {"alhpa": 0.1},
            TypeError,
            "method 'em' has no setting 'alhpa'; did you mean 'alpha'\\? it takes alpha, v",
        ),
        ("an", {"zz": 1}, TypeError, "method 'an' has no setting 'zz'; it takes variant, stack"),
        ("an", {"gamma": 0.5}, TypeError, "method 'an' has gamma fixed at 1.0; it takes variant, stack"),
        ("fan", {"alpha": 0.5}, TypeError, "method 'fan' has alpha fixed at None"),
        ("em", {"alpha": -0.1}, ValueError, r"alpha must lie in \[0, 10\], got -0.1"),
        ("em", {"alpha": [0.1, 11]}, ValueError, r"alpha must lie in \[0, 10\], got 11"),
        ("em", {"alpha": float("nan")}, ValueError, r"alpha must lie in \[0, 10\], got nan"),
        ("em", {"alpha": torch.tensor(11.0)}, ValueError, r"alpha must lie in \[0, 10\], got 11"),
        ("em", {"alpha": np.float32(11)}, ValueError, r"alpha must lie in \[0, 10\], got 11"),
        ("em", {"alpha": "0.2"}, TypeError, "alpha must be a number, or a sequence of them for a stack, got '0.2'"),
        ("em", {"alpha": True}, TypeError, "alpha must be a number, or a sequence of them for a stack, got True"),
        ("em", {"variant": "code"}, ValueError, "variant must be 'paper' or 'reference', got 'code'"),
        ("em", {"alpha": [0.1, 0.2], "stack": 3}, ValueError, "need one length, got {'alpha': 2, 'stack': 3}"),
        (
            "epr",
            {"lam": [1, 2], "expected_positives": [1, 2, 3]},
            ValueError,
            "all stacked hyperparameters need one len",
        ),
        ("em", {"alpha": []}, ValueError, "a stack needs at least one model, got {'alpha': 0}"),
        ("em", {"stack": 0}, ValueError, "a stack needs at least one model, got {'stack': 0}"),
    ],
)
def test_settings_are_checked(name: str, hyper: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        method(name, **hyper)


def test_settings_of_every_kind_of_number() -> None:
    want = method("em", alpha=0.5)(logits, observed).item()
    for alpha in (torch.tensor(0.5), np.float32(0.5), np.float64(0.5), np.array(0.5)):
        criterion = method("em", alpha=alpha)
        assert criterion.stack is None
        assert isinstance(criterion.alpha, float)
        assert criterion(logits, observed).item() == want
    assert isinstance(method("em", alpha=np.int64(1)).alpha, int)
    for alpha in ([0.5, 1], (0.5, 1.0), torch.tensor([0.5, 1.0]), np.array([0.5, 1.0]), range(2)):
        criterion = method("em", alpha=alpha)
        assert criterion.stack == 2
        assert criterion.alpha.shape == (2, 1, 1)
        assert criterion.each("alpha") == [float(a) for a in alpha]
    assert method("em", alpha=0.25, stack=3).each("alpha") == [0.25] * 3


def test_a_stack_of_equals_needs_no_stacked_setting() -> None:
    criterion = method("em", alpha=0.2, stack=3)
    g = torch.randn(3, 2, 3)
    torch.testing.assert_close(criterion(g, observed), torch.stack([method("em", alpha=0.2)(x, observed) for x in g]))


@pytest.mark.parametrize(("name", "key"), [("em", "alpha"), ("ll-r", "delta"), ("gr", "mu"), ("lasd", "alpha")])
@pytest.mark.parametrize("stack", [None, 2])
def test_settings_are_fixed_once_made(name: str, key: str, stack: int | None) -> None:
    value = method_info(name).defaults[key]
    criterion = method(name, **{key: value if stack is None else [value] * stack})
    with pytest.raises(AttributeError, match=rf"{key} of {name} is fixed once the method is made: .*with {key}="):
        setattr(criterion, key, 0.5)
    assert criterion.each(key) == [value] * (stack or 1)
    copy.deepcopy(criterion).double().to("cpu").begin_epoch(1, 3)  # which writes columns, not settings


def test_what_is_made_says_what_it_is() -> None:
    criterion = method("dw", gamma=0.3)
    assert criterion.name == "dw"
    assert "gamma=0.3" in repr(criterion)
    assert onelabel.losses.WAN().name == "wan"
    assert onelabel.losses.EntMin().name == "entmin"


# -- what is wrong with a result ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stack", "result", "message"),
    [
        (
            None,
            torch.zeros(2),
            r"compute of Wrong must give a single number for logits B×L, got shape \(2,\): end with",
        ),
        (None, torch.zeros(1), r"must give a single number for logits B×L, got shape \(1,\)"),
        (3, torch.zeros(()), r"must give 3 losses for logits M×B×L, got shape \(\)"),
        (3, torch.zeros(2), r"must give 3 losses for logits M×B×L, got shape \(2,\)"),
        (3, torch.zeros(3, 1, 3), r"must give 3 losses for logits M×B×L, got shape \(3, 1, 3\)"),
    ],
)
def test_a_loss_is_one_number_per_model(stack: int | None, result: torch.Tensor, message: str) -> None:
    class Wrong(Method):
        def compute(self, batch: contract.Batch) -> torch.Tensor:
            return result

    with pytest.raises(ValueError, match=message):
        Wrong(stack=stack)(logits if stack is None else logits.expand(3, 2, 3), observed)


# -- the catalogue --------------------------------------------------------------------------------------------------


def test_every_method_is_registered_by_importing_onelabel() -> None:
    assert set(NAMES) <= set(list_methods())
    assert len(list_methods()) == len(set(list_methods()))
    seen = [
        subprocess.run(
            [sys.executable, "-c", f"{code}; print(*onelabel.list_methods())"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for code in ("import onelabel", "import onelabel.losses.robust, onelabel.methods, onelabel")
    ]
    assert seen[0] == seen[1]  # whatever is imported first
    assert set(NAMES) <= set(seen[0])


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_tells_of_every_method(name: str) -> None:
    info = method_info(name)
    assert isinstance(info, MethodInfo)
    assert info.name == name
    assert 2016 < info.year <= 2026
    assert info.cls.__doc__
    for text in (info.title, info.paper, info.formula):
        assert text
        assert text == text.strip()
    assert issubclass(info.cls, Method)
    for key, hyper in info.hyper.items():
        assert isinstance(hyper, Hyper)
        assert hyper.doc
        assert key in info.defaults, f"{key} is no setting of {name}"
        default = info.defaults[key]
        for value in (*hyper.search, *([] if default is None else [default])):
            hyper.check(key, value)
    assert isinstance(info.needs, Needs)
    assert {**info.preset, **info.fixed}.items() <= info.defaults.items()
    assert not set(info.fixed) & set(info.hyper)


def test_defaults_are_the_papers() -> None:
    wanted = {
        "bce-ls": {"smoothing": 0.1},
        "an-ls": {"positive_smoothing": 0.1, "unknown_smoothing": 0.1},
        "n-ls": {"positive_smoothing": 0.0, "unknown_smoothing": 0.1},
        "an": {"gamma": 1.0},
        "wan": {"gamma": None},
        "dw": {"gamma": 0.1},
        "focal": {"alpha": 0.75, "gamma": 2.0},
        "fan": {"alpha": None, "gamma": 2.0},
        "asl": {"gamma_positive": 0.0, "gamma_negative": 4.0, "margin": 0.0, "detach_focus": False},
        "asl-ps": {"margin": 0.05},
        "hill": {"lam": 1.5, "margin": 1.0, "gamma": 2.0},
        "splc": {"tau": 0.6, "margin": 1.0, "gamma": 2.0, "start": 1, "negative": "focal"},
        "em": {"alpha": 0.2, "variant": "paper"},
        "roll-call": {"alpha": None, "gamma": 0.3, "pull": "coin"},
        "gr": {"q1": 0.01, "q2": 0.01, "q3": 1.0, "w": 2.0, "b": -2.0, "mu": 0.8, "sigma": 0.5, "trainable": False},
        "las": {"lam_positive": 0.0, "tau": 1.0, "alpha": 0.0, "gamma_negative": 4.0},
        "lasd": {"lam_positive": 0.1, "tau": 0.9, "alpha": 0.7, "gamma_positive": 0.0, "gamma_negative": 4.0},
        "epr": {"expected_positives": 1.5, "lam": 1.0},
        "l1r": {"strength": 1e-6, "order": 1},
        "l2r": {"strength": 1e-6, "order": 2},
    }
    for name, settings in wanted.items():
        assert settings.items() <= method_info(name).defaults.items(), name
        made = method(name)
        for key, value in settings.items():
            assert getattr(made, key) == value, (name, key)


def test_what_is_searched_can_be_set() -> None:
    """DW's γ has a default of its own, but it is what its paper tunes."""
    assert method_info("dw").hyper["gamma"].search == (0.01, 0.02, 0.1, 0.2, 0.4, 0.9)
    assert "gamma" not in method_info("an").hyper
    for name in list_methods():
        for key, hyper in method_info(name).hyper.items():
            for value in hyper.search:
                assert method(name, **{key: value}).name == name


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_REGISTRY", dict(contract._REGISTRY))
    entry = {"title": "t", "paper": "p", "year": 2020, "formula": "f"}

    @contract.register("mine", **entry, alpha=0.3)
    @contract.register("my-other", **entry, fixed={"alpha": 0.7})
    class Mine(Method):
        hyper = {"alpha": Hyper("a", 0, 1)}  # noqa: RUF012

        def __init__(self, *, alpha: float = 0.1) -> None:
            super().__init__(alpha=alpha)

    assert (Mine().alpha, method("mine").alpha, method("my-other").alpha) == (0.1, 0.3, 0.7)
    assert Mine().name == "my-other"  # the first name it was given
    with pytest.raises(ValueError, match="method 'mine' is registered twice"):
        contract.register("mine", **entry)(Mine)


def test_a_call_in_another_precision_leaves_the_buffers_where_they_are() -> None:
    """A captured graph reads the float32 ones: a float64 call must not put others in their place for good."""
    criterion = onelabel.method("gr")
    logits, observed = torch.randn(2, 3), torch.zeros(2, 3)
    criterion.begin_epoch(0, 3)
    criterion(logits, observed)
    before = criterion.w_now
    exact = criterion(logits.double(), observed)
    assert criterion.w_now.dtype == torch.float64
    criterion.begin_epoch(2, 3)  # in float64 still
    assert before.item() == pytest.approx(2.0)
    last = criterion(logits, observed)
    assert criterion.w_now is before
    assert not torch.allclose(last.double(), exact)
    again = copy.deepcopy(criterion)
    again.begin_epoch(0, 3)
    assert before.item() == pytest.approx(2.0)
    assert again(logits, observed).item() == pytest.approx(exact.item(), rel=1e-5)
    assert criterion.to("cpu").w_now is before
    assert criterion.half()(logits.double(), observed).item() == pytest.approx(last.item(), rel=1e-5)


# -- methods of others ----------------------------------------------------------------------------------------------

PLUGIN = """
from onelabel.contract import Method, register

@register("mine", title="t", paper="p", year=2026, formula="f")
class Mine(Method):
    def __init__(self, *, beta=0.5):
        super().__init__(beta=beta)
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for modules that ONELABEL_PLUGINS names."""
    monkeypatch.setattr(contract, "_REGISTRY", dict(contract._REGISTRY))
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_plugins_are_imported_when_a_method_is_looked_up(plugins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plugins / "one_plugin.py").write_text(PLUGIN, encoding="utf-8")
    (plugins / "other_plugin.py").write_text(PLUGIN.replace('"mine"', '"my-other"'), encoding="utf-8")
    with pytest.raises(ValueError, match=r"there is no method 'mine'; .*\(one of your own: .*ONELABEL_PLUGINS\)"):
        method("mine")
    monkeypatch.setenv("ONELABEL_PLUGINS", " one_plugin, other_plugin,")
    assert method("mine").beta == 0.5
    assert {"mine", "my-other"} <= set(list_methods())
    with pytest.raises(TypeError, match=r"method 'mine' cannot be stacked: .*argument stack=None and pass it on"):
        method("mine", stack=2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, r"No module named 'bad_plugin'; is its folder on PYTHONPATH\?"),
        ("1 / 0", "division by zero"),
        ("def (", r"invalid syntax.*"),
        ("import not_there_either", r"No module named 'not_there_either'; is its folder on PYTHONPATH\?"),
        ("raise RuntimeError('first\\nsecond')", "first"),
    ],
)
def test_a_plugin_that_fails_is_named(
    text: str | None, reason: str, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text:
        (plugins / "bad_plugin.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("ONELABEL_PLUGINS", "bad_plugin")
    for ask in (list_methods, lambda: method("em")):
        with pytest.raises(ImportError, match=f"^ONELABEL_PLUGINS: cannot import 'bad_plugin': {reason}$"):
            ask()


def test_plugins_reach_the_command_line(plugins: Path) -> None:
    (plugins / "one_plugin.py").write_text(PLUGIN, encoding="utf-8")
    found = {**os.environ, "ONELABEL_PLUGINS": "one_plugin", "PYTHONPATH": str(plugins)}
    ask = [sys.executable, "-m", "onelabel", "methods", "mine"]
    assert "mine: t" in subprocess.run(ask, env=found, capture_output=True, text=True, check=True).stdout
    lost = subprocess.run(ask, env={**found, "PYTHONPATH": ""}, capture_output=True, text=True, check=False)
    assert lost.returncode == 2
    assert lost.stderr.startswith("error: ONELABEL_PLUGINS: cannot import 'one_plugin'")
    assert lost.stderr.count("\n") == 1
