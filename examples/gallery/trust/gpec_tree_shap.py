"""How far to trust TreeSHAP near a decision boundary
==================================================

TreeSHAP has no error of its own; yet two rows on the two sides of the decision boundary
of a forest may have very different attributions. GPEC learns from the attributions of
200 rows, and its standard deviation says where the attributions of another row are
uncertain.
"""

# %%
# A random forest learns points of a square. The boundary is a wave of growing
# frequency: simple at the left, complex at the right.

# sphinx_gallery_tags = ["Shapley values", "classification", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import shap
from scipy.spatial import cKDTree
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestClassifier

from kpp_gpec import GPEC
from kpp_surrogates import ShapExplainer

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
x = rng.uniform(-2.0, 2.0, size=(2000, 2))
y = (x[:, 1] > np.sin(1.2 * (x[:, 0] + 2.0) ** 2)).astype(int)
forest = RandomForestClassifier(200, min_samples_leaf=5, random_state=0).fit(x, y)
tree = shap.TreeExplainer(forest)

# %%
# TreeSHAP is a step function. A smooth process follows it only up to some noise, here a
# deviation of about 0.03.

gpec = GPEC(ShapExplainer(tree), x[:200], output=1, noise=1e-3, selection="evidence")
fitted = gpec.fit(forest, rng_key=jax.random.key(0))

# %%
# The black points are the boundary and the white ones the 200 rows that GPEC has
# learned from.

side = np.linspace(-2.0, 2.0, 61)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
panels = {
    "TreeSHAP of x1": (tree(grid).values[:, 0, 1], "coolwarm"),
    "its standard deviation by GPEC": (
        np.sqrt(fitted.law(grid).variance[:, 0, 0]),
        "viridis",
    ),
}
figure, axes = plt.subplots(1, 2, figsize=(6.6, 4.4), layout="constrained", sharey=True)
for axis, (title, (values, colors)) in zip(axes, panels.items(), strict=True):
    image = axis.pcolormesh(
        side, side, values.reshape(61, 61), cmap=colors, shading="nearest"
    )
    axis.plot(*np.asarray(fitted.boundary.points).T, ".", color="black", markersize=1.5)
    axis.set(
        title=title, xlabel="x1", aspect="equal", xticks=[-2, 0, 2], yticks=[-2, 0, 2]
    )
    figure.colorbar(image, ax=axis, location="bottom", shrink=0.8)
axes[0].set_ylabel("x2")
learned = axes[1].plot(*fitted.x.T, ".", color="white", markersize=2.5)

# %%
# At 500 other rows we compare the standard deviation with the errors of the process,
# near the boundary and far from it.

test = rng.uniform(-2.0, 2.0, size=(500, 2))
explanation = fitted.explain(test)
exact = tree(test).values[..., 1]
deviation = np.sqrt(explanation.variance.values.sum(axis=1))
error = np.linalg.norm(explanation.values.values - exact, axis=1)
distance = cKDTree(np.asarray(fitted.boundary.points)).query(test)[0]
near, far = distance < 0.2, distance > 0.6
for name, size in {"standard deviation": deviation, "error": error}.items():
    print(f"{name}: {size[near].mean():.3f} near the boundary,", end=" ")
    print(f"{size[far].mean():.3f} far from it")
correlation = spearmanr(deviation, error).statistic
print(f"rank correlation of deviation and error: {correlation:.2f}")

# %%
# TreeSHAP itself changes most where the standard deviation is large: here rows move by
# a twentieth of a standard deviation into random directions.

angles = rng.uniform(0.0, 2.0 * np.pi, size=(16, 500))
moves = 0.05 * test.std(axis=0) * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
moved = tree(np.concatenate(test + moves)).values[..., 1].reshape(16, 500, 2)
change = np.linalg.norm(moved - exact, axis=-1).mean(axis=0)
print(f"change of TreeSHAP: {change[near].mean():.3f} near the boundary,", end=" ")
print(f"{change[far].mean():.3f} far from it")

# %%
# The 90 % intervals contain the attributions about as often as they should.

lower, upper = np.moveaxis(explanation.interval(0.9).values, -1, 0)
inside = (lower <= exact) & (exact <= upper)
print(f"TreeSHAP lies in {inside.mean():.0%} of the 90 % intervals")

# %%
# Read more in the user guide: :doc:`/how_to/gpec`, "GPEC over TreeSHAP".
