# %% [markdown]
# # How many labels are missing?
#
# From one label per row, with and without a small audit. The truth is known here, so that the intervals can be checked.

# %%
import numpy as np
from sklearn.datasets import load_digits

from onelabel import drop_labels
from onelabel.recovery import AuditRows, estimate_audit, plan_audit, recover

digits, rng = load_digits(), np.random.default_rng(1)
picks = rng.integers(len(digits.data), size=(1000, 3))
used = np.arange(3) < rng.integers(1, 4, size=(1000, 1))
pixels = (digits.data[picks] * used[..., None]).max(1) / 16
true = np.zeros((1000, 10), np.uint8)
rows, slots = np.nonzero(used)
true[rows, digits.target[picks[rows, slots]]] = 1
X = np.maximum(pixels @ rng.normal(size=(64, 300)) / 8, 0).astype("float32")
labels = drop_labels(true)
print(f"true k {true.sum(1).mean():.2f}")

# %% [markdown]
# Without any checked row: calibrated by how labels get named. The interval is wide where the features say little.

# %%
blind = recover(X, labels, "blind.parquet", show=False)
print(f"k {blind.k:.2f}, 95% interval {blind.k_interval[0]:.2f} to {blind.k_interval[1]:.2f}")

# %% [markdown]
# Check 120 rows completely: `plan_audit` draws those that tell most. Here the truth answers.

# %%
plan = plan_audit("blind.parquet", rows=120)
answers = np.where(true[plan.rows] > 0, 1, -1).astype(np.int8)
estimate = estimate_audit("blind.parquet", plan, answers)
print("k", estimate.overall["k"])
assert estimate.overall["k"].low < true.sum(1).mean() < estimate.overall["k"].high

# %%
audited = recover(X, labels, "audited.parquet", audit=AuditRows(plan.rows, answers, plan.inclusion), show=False)
completed = audited.labels().to_dense()
print(f"k {audited.k:.2f}; {int((completed > 0).sum() - 1000)} labels added")
