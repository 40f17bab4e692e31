"""What every method with memory must do: stack, resume, never wait for the host, survive every input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import onelabel
from onelabel import Labels
from onelabel.methods import RowAdam, check_method


def test_keeps_the_contract(case: str, kit: Any) -> None:
    name, common, varied = kit.CASES[case]
    check_method(name, differences=name != "role", **common, **varied)  # whose halves hold each other still


@pytest.mark.parametrize(
    "name", ["role", "role-reference", "role-factorised", "role-network", "role-bfloat16", "smile"]
)
def test_a_learning_rate_per_model(name: str, kit: Any) -> None:
    rates = torch.tensor([0.001, 0.01, 0.1])
    together = kit.Run(kit.stacked(name), seed=[0, 1, 2], lr=rates, noise=False).until(8)
    for m in range(3):
        alone = kit.Run(kit.single(name, m), seed=m, lr=float(rates[m]), noise=False).until(8)
        tolerance = 2**-5 if "bfloat16" in name else 1e-4
        for many, one in zip(together.losses, alone.losses, strict=True):
            torch.testing.assert_close(many[m], one, rtol=tolerance, atol=tolerance)


def test_a_state_loads_at_an_epochs_end(case: str, kit: Any) -> None:
    whole = kit.Run(kit.single(case)).until(10)
    again = kit.Run(kit.single(case)).load(whole.state())
    assert (again.criterion.epoch, again.criterion.epochs) == (1, 3)
    whole.until()
    again.until()
    assert torch.equal(whole.losses[-1], again.losses[-1]) or case in ("mime", "smile")  # these draw noise


def test_loading_before_bind_says_so(case: str, kit: Any) -> None:
    state = kit.Run(kit.single(case)).until(1).criterion.state_dict()
    if case in ("ll-r", "ll-ct"):
        kit.single(case).load_state_dict(state)  # nothing to bind
    else:
        with pytest.raises(RuntimeError, match="bind"):
            kit.single(case).load_state_dict(state)


def test_loading_the_state_of_other_labels_says_so(case: str, kit: Any) -> None:
    state = {f"criterion.{name}": value for name, value in kit.Run(kit.single(case)).criterion.state_dict().items()}
    other = kit.single(case).bind(kit.make_labels(n=kit.N + 1, classes=kit.L + 1))
    whole = nn.ModuleDict({"criterion": other})
    if case in ("ll-r", "ll-ct"):
        whole.load_state_dict(state)  # nothing is remembered of a row
    else:
        with pytest.raises(RuntimeError, match=r"has shape \(.*\) in the state, \(.*\) here: bind the labels it was"):
            whole.load_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_what_is_remembered_keeps_its_precision(case: str, dtype: torch.dtype, kit: Any) -> None:
    """In a model that is converted whole: quotas would lose their units, averages stand still."""
    run = kit.Run(kit.single(case), noise=False).until(8)
    criterion = run.criterion
    index = torch.arange(5)
    x, observed, logits = run.features[index], run.labels.rows(index), torch.randn(5, kit.L)
    state = {name: value.clone() for name, value in criterion.state_dict().items()}
    criterion.eval()  # so that asking twice gives the same
    before = criterion(logits, observed, index=index, features=x)
    model = nn.ModuleDict({"network": nn.Linear(2, 2), "criterion": criterion}).to(dtype)
    assert model["network"].weight.dtype == dtype
    learnt = dict(criterion.named_parameters())
    for name, value in criterion.state_dict().items():
        assert value.dtype == (dtype if name in learnt and dtype == torch.float64 else state[name].dtype)
        assert torch.equal(value, state[name].to(value.dtype))
    torch.testing.assert_close(criterion(logits, observed, index=index, features=x).float(), before)
    criterion.begin_epoch(2, 3)
    assert criterion(logits.to(dtype), observed, index=index, features=x.to(dtype)).isfinite()


class NoSync(TorchDispatchMode):
    """Refuses what makes a host wait for its GPU, or gives shapes that depend on values."""

    WORDS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "coalesce", "equal.default")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if any(word in name for word in self.WORDS) and "is_coalesced" not in name and "_coalesced_" not in name:
            raise AssertionError(f"{name} waits for the device")
        if name.startswith(("aten.index.", "aten.index_put", "aten._index_put")):
            assert all(i is None or i.dtype not in (torch.bool, torch.uint8) for i in args[1]), f"{name} with a mask"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("stack", [False, True])
def test_no_step_waits_for_the_host(case: str, stack: bool, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = kit.Run(kit.stacked(case), seed=[0, 1, 2]) if stack else kit.Run(kit.single(case))
    run.until(6)
    index = torch.stack([o[1][2] for o in run.orders]) if stack else run.orders[0][1][2]
    x, observed = run.features[index], run.labels.rows(index)
    # On a CPU looking at values is free, and both checks look; on a GPU neither does.
    monkeypatch.setattr("onelabel.contract.diagnose", lambda *a: None)
    monkeypatch.setattr("onelabel.methods.memory.check_range", lambda *a: None)
    for name in ("item", "tolist", "__bool__", "__int__", "__float__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, lambda *a, name=name: pytest.fail(f"{name}() waits for the device"))
    with NoSync():
        run.criterion(run.logits(x), observed, index=index, features=x).sum().backward()
        for optimizer in run.optimizers:
            if isinstance(optimizer, RowAdam):  # torch's Adam keeps its step counter on the host
                optimizer.step()


@pytest.mark.parametrize("stack", [False, True])
def test_pseudo_labelling_waits_for_nothing_either(
    case: str, stack: bool, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kit.Run(kit.stacked(case), seed=[0, 1, 2]) if stack else kit.Run(kit.single(case))
    run.until(9)
    scores = run.score()
    for name in ("item", "tolist", "__bool__", "__int__", "__float__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, lambda *a, name=name: pytest.fail(f"{name}() waits for the device"))
    with NoSync():
        run.criterion.end_epoch(lambda: scores)


def test_autocast_changes_nothing(case: str, kit: Any) -> None:
    run = kit.Run(kit.single(case)).until(8)
    run.criterion.eval()  # so that asking twice gives the same
    index = torch.arange(5)
    x, observed = run.features[index], run.labels.rows(index)
    logits = torch.randn(5, kit.L).bfloat16()
    plain = run.criterion(logits.float(), observed, index=index, features=x)
    with torch.autocast("cpu", torch.bfloat16):
        cast = run.criterion(logits, observed, index=index, features=x)
    assert cast.dtype == torch.float32
    torch.testing.assert_close(plain, cast)


def test_observed_may_be_any_number_type(case: str, kit: Any) -> None:
    run = kit.Run(kit.single(case)).until(8)
    run.criterion.eval()
    index, logits = torch.arange(6), torch.randn(6, kit.L)
    got = {
        dtype: run.criterion(logits, run.labels.rows(index).to(dtype), index=index.int(), features=run.features[index])
        for dtype in (torch.int8, torch.int64, torch.float32)
    }
    assert len({float(v.detach()) for v in got.values()}) == 1


def test_one_row_one_class_nothing_or_everything_known(case: str, kit: Any) -> None:
    name, common, varied = kit.CASES[case]
    settings = {**common, **{k: v[0] for k, v in varied.items()}}
    for classes, z in ((1, [[0], [1], [-1], [0], [1]]), (3, [[0, 0, 0]] * 5), (3, [[1, -1, 1]] * 5)):
        labels = Labels.from_matrix(torch.tensor(z, dtype=torch.int8))
        if "expected_positives" in settings or name in ("role", "en"):
            settings["expected_positives"] = 1.0
        criterion = onelabel.method(name, **settings).bind(labels)
        x = torch.randn(5, kit.D)
        criterion.bind_features(x)
        criterion.head(kit.D, classes)
        for epoch in range(3):
            criterion.begin_epoch(epoch, 3)
            for i in range(5):
                logits = torch.randn(1, classes, requires_grad=True)
                index = torch.tensor([i])
                loss = criterion(logits, labels.rows(index), index=index, features=x[index])
                loss.backward()
                assert torch.isfinite(loss)
                assert torch.isfinite(logits.grad).all()
            criterion.end_epoch(lambda classes=classes: torch.rand(5, classes))


def test_errors_name_the_argument_and_the_remedy(case: str, kit: Any) -> None:
    run = kit.Run(kit.single(case)).until(1)
    call = run.criterion
    x, z = run.features[:4], run.labels.rows(slice(0, 4))
    if call.needs.index:
        with pytest.raises(ValueError, match="index="):
            call(torch.zeros(4, kit.L), z, features=x)
        for bad, told in ((30, "30"), (-1, "-1")):
            with pytest.raises(IndexError, match=rf"index must lie in \[0, 30\).*got {told}.*bind"):
                call(torch.zeros(4, kit.L), z, index=torch.tensor([0, 1, 2, bad]), features=x)
        with pytest.raises(TypeError, match="index must hold integers"):
            call(torch.zeros(4, kit.L), z, index=torch.zeros(4), features=x)
        with pytest.raises(ValueError, match="index must have shape"):
            call(torch.zeros(4, kit.L), z, index=torch.zeros(2, 4, dtype=torch.long), features=x)
        with pytest.raises(ValueError, match=r"5 classes of bind\(labels\), got 4"):
            call(torch.zeros(4, 4), z[:, :4], index=torch.arange(4), features=x)
        unbound = kit.single(case)
        with pytest.raises(RuntimeError, match=r"bind\(labels\)"):
            unbound(torch.zeros(4, kit.L), z, index=torch.arange(4), features=x)
    with pytest.raises(TypeError, match="bind needs onelabel"):
        kit.single(case).bind(torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"epoch must lie in \[0, 3\)"):
        call.begin_epoch(3, 3)


@pytest.mark.parametrize("name", ["role", "en"])
@pytest.mark.parametrize("k", [0.0, 5.5])
def test_k_must_be_possible(name: str, k: float, labels: Labels) -> None:
    with pytest.raises(ValueError, match=r"expected_positives must lie in \(0, 5\]"):
        onelabel.method(name, expected_positives=k).bind(labels)


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, "eager") for name in ("role", "role-reference", "role-factorised", "role-network", "ll-ct", "en", "mime")]
    + [(name, "aot_eager") for name in ("role", "ll-r", "ll-cp", "em-apl")],
)
def test_compiles_whole(name: str, backend: str, kit: Any) -> None:
    torch._dynamo.reset()
    run, other = (kit.Run(kit.single(name), noise=name != "mime").until(11) for _ in range(2))
    index = torch.tensor([0, 1, 5, 5, 9])
    x, observed = run.features[index], run.labels.rows(index)
    logits = torch.randn(5, kit.L, requires_grad=True)
    plain = other.criterion(logits, observed, index=index, features=x)
    plain.backward()
    wanted, logits.grad = logits.grad, None
    compiled = torch.compile(run.criterion, fullgraph=True, backend=backend)
    got = compiled(logits, observed, index=index, features=x)
    got.backward()
    torch.testing.assert_close(got, plain)
    torch.testing.assert_close(logits.grad, wanted)
    for a, b in zip(run.criterion.buffers(), other.criterion.buffers(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(run.criterion.parameters(), other.criterion.parameters(), strict=True):
        assert a.grad is None or torch.equal(a.grad.to_dense(), b.grad.to_dense())


class Pictures(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Hands out features and their index; like any Dataset, copied into workers."""

    def __init__(self, features: torch.Tensor) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.features[i], i


@pytest.mark.parametrize("name", ["role", "ll-cp", "em-apl"])
def test_label_state_is_right_with_dataloader_workers(name: str, kit: Any) -> None:
    def train(workers: int) -> Any:
        run = kit.Run(kit.single(name))
        for epoch in range(3):
            run.criterion.begin_epoch(epoch, 3)
            rng = torch.Generator().manual_seed(epoch)
            data = Pictures(run.features)
            for x, index in torch.utils.data.DataLoader(data, 8, shuffle=True, num_workers=workers, generator=rng):
                run.criterion(run.logits(x), run.labels.rows(index), index=index, features=x).backward()
                for optimizer in run.optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            run.criterion.end_epoch(run.score)
        return run.criterion.state_dict()

    one, two = train(0), train(2)
    fresh = kit.single(name).bind(kit.make_labels()).state_dict()
    assert any(not torch.equal(fresh[k], one[k]) for k in one if k not in ("clock", "fraction"))
    assert all(torch.equal(one[k], two[k]) for k in one)


@pytest.mark.parametrize("name", ["role", "ll-r", "ll-ct", "ll-cp", "em-apl", "en", "mime", "smile"])
def test_the_catalogue_describes_them(name: str) -> None:
    info = onelabel.method_info(name)
    assert info.formula
    assert info.paper
    assert 2021 <= info.year <= 2023
    assert info.needs.index == (name not in ("ll-r", "ll-ct"))
    assert all(h.search for h in info.hyper.values() if h.high < 1e9)
    assert repr(onelabel.method(name))
