# %% [markdown]
# # Methods side by side
#
# Train every family of methods as a probe on the same features, with the same seeds, and look at what one label per
# row costs each of them. About ten seconds on a laptop.

# %%
import numpy as np
from sklearn.datasets import load_digits

from onelabel import Labels, drop_labels
from onelabel.metrics import mean_average_precision
from onelabel.probes import fit_probes, grid
from onelabel.report import figures

# %% [markdown]
# Handwritten digits on top of each other, one to three a picture; random features play a frozen network.

# %%
digits, rng = load_digits(), np.random.default_rng(0)
network = rng.normal(size=(64, 300)) / 8


def overlay(count):
    picks = rng.integers(len(digits.data), size=(count, 3))
    used = np.arange(3) < rng.integers(1, 4, size=(count, 1))
    pixels = (digits.data[picks] * used[..., None]).max(1) / 16
    true = np.zeros((count, 10), np.uint8)
    rows, slots = np.nonzero(used)
    true[rows, digits.target[picks[rows, slots]]] = 1
    return np.maximum(pixels @ network, 0).astype("float32"), true


X, true = overlay(1000)
X_test, test_true = overlay(600)
labels = {"": drop_labels(true), "full": Labels.from_true(true)}

# %% [markdown]
# One grid: single positives for all, and full labels for the upper bound. `labels=` says which set a method sees.

# %%
k = float(true.sum(1).mean())
families = {"an": {}, "an-ls": {}, "wan": {}, "em": {}, "gr": {}, "role": {"expected_positives": k}}
specs = grid(families, lr=3e-3, batch_size=16, seeds=[0, 1], epochs=8)
specs += grid("bce", lr=3e-3, batch_size=16, seeds=[0, 1], epochs=8, labels="full")
results = fit_probes(X, labels, specs)

# %%
found = {}
for i, spec in enumerate(results.specs):
    score = 100 * mean_average_precision(results.scores(X_test, i), test_true)
    found.setdefault(spec.method, []).append(score)
for method, scores in sorted(found.items(), key=lambda item: np.mean(item[1])):
    print(f"{method:6} {np.mean(scores):5.1f} ± {np.std(scores):.1f}")
assert np.mean(found["an"]) < np.mean(found["em"]) < np.mean(found["bce"])

# %% [markdown]
# What does an unknown entry cost under each? The pictures of the [catalogue](../catalogue/index.md) are drawn by the
# same function.

# %%
drawn = figures.curves(["an", "an-ls", "wan", "em", "gr"], what="gradient", epoch="end", signs="unknown")
drawn.savefig("gradients.png")
