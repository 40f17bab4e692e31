"""Probes trained together equal the same probes trained alone, in a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import onelabel
from onelabel.labels import Labels
from onelabel.probes import ProbeSpec, fit_probes, grid

N, D, L = 53, 12, 5


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, Labels, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    W = rng.normal(size=(D, L))
    X = np.abs(rng.normal(size=(N + 40, D))).astype(np.float32)
    Y = (X @ W - (X @ W).mean(0) > 0).astype(np.uint8)
    Y[np.arange(len(Y)), rng.integers(L, size=len(Y))] = 1
    one = np.array([rng.choice(np.flatnonzero(row)) for row in Y[:N]])
    return X[:N], Labels.from_classes(one, num_classes=L), X[N:], Y[N:]


def alone(X: np.ndarray, labels: Labels, spec: ProbeSpec, *, drop_last: bool = False) -> tuple[list, list]:
    """The plain loop: nn.Linear or the method's own, torch.optim.Adam, an unstacked method, batch after batch."""
    features, observed = torch.from_numpy(X), labels.rows(slice(None))
    generator = torch.Generator().manual_seed(spec.seed)
    extra = {"seed": spec.seed} if spec.method == "role" else {}
    if spec.hyper.get("estimator") == "network":
        extra["feature_dim"] = D
    criterion = onelabel.method(spec.method, **spec.hyper, **extra)
    model = criterion.head(D, L) or torch.nn.Linear(D, L)
    bound = 1 / math.sqrt(D)
    with torch.no_grad():
        model.weight.uniform_(-bound, bound, generator=generator)
        model.bias.uniform_(-bound, bound, generator=generator)
    criterion.bind(labels)
    adam = torch.optim.Adam(model.parameters(), lr=spec.lr, weight_decay=spec.weight_decay)
    optimizers = [adam, *criterion.optimizers(spec.lr)]
    weights, biases = [], []
    for epoch in range(spec.epochs):
        criterion.begin_epoch(epoch, spec.epochs)
        order = torch.randperm(N, generator=torch.Generator().manual_seed((spec.seed + 1) * 1_000_003 + epoch))
        for index in order.split(spec.batch_size):
            if drop_last and len(index) < spec.batch_size:
                continue
            needs = criterion.needs
            given = {"index": index} if needs.index else {}
            if needs.weights:
                given["weights"] = (model.weight, model.bias)
            if needs.features:
                given["features"] = features[index]
            for optimizer in optimizers:
                optimizer.zero_grad()
            criterion(model(features[index]), observed[index], **given).backward()
            for optimizer in optimizers:
                optimizer.step()
        criterion.end_epoch((lambda: torch.sigmoid(model(features)).detach()) if criterion.needs.scores else None)
        weights.append(model.weight.detach().clone())
        biases.append(model.bias.detach().clone())
    return weights, biases


CASES = {
    "an": {},
    "an-ls": {},
    "wan": {},
    "dw": {"gamma": [0.1, 0.4]},
    "em": {"alpha": [0.1, 0.3]},
    "gr": {"w": [2.0, 10.0]},
    "focal": {},
    "asl": {"margin": [0.0, 0.2]},
    "hill": {},
    "splc": {"start": 1},
    "las": {},
    "pr": {},
    "epr": {"expected_positives": [1.2, 2.0]},
    "l1r": {"strength": [1e-3, 1e-2]},
    "l2r": {"strength": 1e-2},
    "role": {"expected_positives": [1.5, 2.5], "estimator": ["table", "network"]},
    "ll-r": {"delta": [2.0, 10.0]},
    "ll-ct": {"delta": 10.0},
    "ll-cp": {"delta": 5.0},
    "em-apl": {"warmup": 1},
    "en": {},
    "mime": {"bottleneck": False, "warmup": 1, "tau": 0.5},
    "roll-call": {"alpha": [0.1, 0.4], "naming": [0.0, 0.5, 1.0]},
}


@pytest.mark.parametrize("workers", [1, 2])
def test_every_method_equals_the_plain_loop(data, workers):
    X, labels, _, _ = data
    specs = [
        spec
        for name, hyper in CASES.items()
        for spec in grid({name: hyper}, lr=[1e-2, 1e-3], batch_size=[8, 16], seeds=[0, 3], epochs=4)
    ]
    results = fit_probes(X, labels, specs, device="cpu", workers=workers)
    for i in range(0, len(specs), 3):  # every third: all methods, rates, sizes and seeds are met
        weights, biases = alone(X, labels, specs[i])
        np.testing.assert_allclose(results.weight[i], weights[-1], atol=2e-5, err_msg=str(specs[i]))
        np.testing.assert_allclose(results.bias[i], biases[-1], atol=2e-5, err_msg=str(specs[i]))


@pytest.mark.parametrize("block", [1, 2, 5, 1000])
def test_block_and_company_do_not_matter(data, block):
    X, labels, Xv, Yv = data
    specs = grid(
        ["an", "role", "gr", "pseudo-negative", "smile"], lr=[1e-2, 1e-3], batch_size=[8], seeds=[0, 1], epochs=3
    )
    specs += grid("em", lr=1e-2, batch_size=8, seeds=[1], epochs=3)  # a ragged grid
    together = fit_probes(X, labels, specs, validation=(Xv, Yv), device="cpu", block=block)
    for i in (0, 5, 9, 13, 18, len(specs) - 1):
        single = fit_probes(X, labels, [specs[i]], validation=(Xv, Yv), device="cpu")
        np.testing.assert_allclose(together.weight[i], single.weight[0], atol=1e-5, err_msg=str(specs[i]))
        assert together.best_epoch[i] == single.best_epoch[0]


def test_best_epoch_weights_decay_and_drop_last(data):
    X, labels, Xv, Yv = data
    specs = grid("em", lr=[3e-2, 1e-2], batch_size=8, seeds=[0, 1], epochs=6, weight_decay=[0.0, 0.1])
    results = fit_probes(X, labels, specs, validation=(Xv, Yv), monitors={"again": (Xv, Yv)}, drop_last=True)
    for i, spec in enumerate(specs):
        weights, biases = alone(X, labels, spec, drop_last=True)
        scores = [(Xv @ w.numpy().T + b.numpy()) for w, b in zip(weights, biases, strict=True)]
        each = [np.mean([average_precision_score(Yv[:, c], s[:, c]) for c in range(L)]) for s in scores]
        np.testing.assert_allclose(results.history["validation"][i], each, atol=1e-6)
        assert results.best_epoch[i] == int(np.argmax(each))
        np.testing.assert_allclose(results.weight[i], weights[int(np.argmax(each))], atol=2e-5)
        np.testing.assert_allclose(results.scores(Xv, i), scores[int(np.argmax(each))], atol=1e-4)
    np.testing.assert_array_equal(results.history["again"], results.history["validation"])
    assert results.best == int(np.nanargmax(results.values))


def test_sets_of_labels_and_feature_types(data):
    X, labels, _, _ = data
    full = Labels.from_true((np.random.default_rng(1).random((N, L)) < 0.4).astype(np.uint8))
    specs = grid(["an", "bce"], lr=1e-2, batch_size=16, epochs=2, labels={"bce": "full"})
    sets = {"": labels, "full": full}
    results = fit_probes(X, sets, specs)
    np.testing.assert_allclose(results.weight[1], alone(X, full, specs[1])[0][-1], atol=2e-5)
    half = fit_probes(X.astype(np.float16), sets, specs)
    np.testing.assert_allclose(half.weight, results.weight, atol=5e-3)
    wide = fit_probes(X.astype(np.float64), sets, specs)
    np.testing.assert_allclose(wide.weight, results.weight, atol=1e-6)


def test_a_memory_map_is_read_in_place(data, tmp_path):
    X, labels, _, _ = data
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    specs = grid("an", lr=1e-2, batch_size=16, epochs=2)
    np.testing.assert_array_equal(fit_probes(mapped, labels, specs).weight, fit_probes(X, labels, specs).weight)


def test_a_diverged_probe_ranks_last(data):
    X, labels, Xv, Yv = data
    specs = grid("an", lr=[1e-2, 1e38], batch_size=16, epochs=3)
    results = fit_probes(X, labels, specs, validation=(Xv, Yv))
    assert np.isnan(results.values[1])
    assert results.best == 0
    assert results.leaderboard()[-1].spec.lr == 1e38


def test_what_cannot_be_a_probe_says_so(data):
    X, labels, _, _ = data
    with pytest.raises(ValueError, match="alpha=0"):
        fit_probes(X, labels, [ProbeSpec("lasd")])
    with pytest.raises(ValueError, match="bottleneck=False"):
        fit_probes(X, labels, [ProbeSpec("mime")])
    fit_probes(X, labels, [ProbeSpec("lasd", {"alpha": 0.0}, epochs=1)])


def test_too_much_memory_is_refused_with_the_need(data):
    X, labels, _, _ = data
    table = N * L * 4 * 3 + 16 * D * L
    with pytest.raises(MemoryError, match=r"role on 53×5 labels needs .* GiB for one probe"):
        fit_probes(X, labels, [ProbeSpec("role", epochs=1)], memory=table - 1)
    fit_probes(X, labels, grid("role", seeds=[0, 1, 2], epochs=1, lr=1e-3), memory=table)  # one after another


def test_bad_input_is_answered_in_one_line(data):
    X, labels, Xv, Yv = data
    with pytest.raises(ValueError, match="53 rows, features 40"):
        fit_probes(Xv, labels, [ProbeSpec("an")])
    with pytest.raises(ValueError, match="did you mean"):
        fit_probes(X, labels, [ProbeSpec("an")], validation=(Xv, Yv), criterion="observed_map")
    with pytest.raises(ValueError, match="twice"):
        fit_probes(X, labels, [ProbeSpec("an"), ProbeSpec("an")])
    with pytest.raises(ValueError, match="no set 'full'"):
        fit_probes(X, labels, [ProbeSpec("an", labels="full")])
    with pytest.raises(TypeError, match="alpha"):
        grid("an", alpha=[0.1])
    with pytest.raises(ValueError, match="at least one"):
        fit_probes(X, labels, [])


def test_settings_that_a_whole_stack_has_in_common_are_searched_apart(data):
    X, labels, X_held, Y_held = data
    asked = {"role": {"estimator": "factorised", "rank": [2, 4]}}
    specs = grid(asked, lr=1e-2, batch_size=16, seeds=[0], epochs=2)
    together = fit_probes(X, labels, specs, validation=(X_held, Y_held))
    for i, spec in enumerate(specs):
        one = fit_probes(X, labels, [spec], validation=(X_held, Y_held))
        np.testing.assert_allclose(together.history["validation"][i], one.history["validation"][0], atol=1e-6)


def test_scores_are_those_that_the_method_learned_by(data):
    """Where a share of the naming distribution is in the logits: in the criterion, the history and `scores` alike."""
    X, labels, Xt, Yt = data
    specs = grid({"em": {}, "roll-call": {"naming": [0.0, 0.5, 1.0]}}, lr=[1e-2], batch_size=8, epochs=3)
    results = fit_probes(X, labels, specs, monitors={"test": (Xt, Yt)}, device="cpu")
    found = results.scores(Xt)
    for i, spec in enumerate(specs):
        outputs = Xt @ results.weight[i].T + results.bias[i]
        share = spec.hyper.get("naming", 0.0)
        wanted = outputs - share * np.log(np.exp(outputs).sum(1, keepdims=True))
        np.testing.assert_allclose(found[i], wanted, atol=1e-5)
        np.testing.assert_allclose(results.scores(Xt, i), found[i], atol=1e-5)
        assert results.history["test"][i][-1] == pytest.approx(average_precision_score(Yt, wanted, average="macro"))
