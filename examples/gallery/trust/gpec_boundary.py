"""Where explanations cannot be trusted: near a complex boundary
=============================================================

Where the decision boundary of a classifier winds, two neighbors may have very different
explanations. GPEC learns this from the boundary itself. The picture shows its
uncertainty: dark where explanations can be trusted.
"""

# %%
# A support vector machine separates two classes. For x < 0 their boundary is a wave,
# for x > 0 a line.

# sphinx_gallery_tags = ["any model", "classification", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

from kpp_gpec import GPEC, BisectionSampler

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
points = rng.uniform(-3.0, 3.0, size=(600, 2))
wave = np.where(points[:, 0] < 0, np.sin(4.0 * points[:, 0]), 0.0)
machine = SVC(gamma=2.0, C=100.0).fit(points, points[:, 1] > wave)


def probability(rows):
    """The logistic function of the machine's scores."""
    return 1.0 / (1.0 + np.exp(-2.0 * machine.decision_function(np.asarray(rows))))


# %%
# GPEC explains 100 points by KernelSHAP, finds the boundary by bisection, and fits a
# Gaussian process to the explanations. Two points are similar if the boundary near them
# is similar.

sampler = BisectionSampler(max_points=300)
gpec = GPEC("kernel-shap", points[:100], boundary=sampler, noise=0.01)
fitted = gpec.fit(probability, rng_key=jax.random.key(0))

# %%
# The white points are the boundary. The color is the standard deviation of an
# explanation, summed over both features.

side = np.linspace(-3.0, 3.0, 81)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
deviation = np.sqrt(fitted.explain(grid).variance.sum("feature").values).reshape(81, 81)

figure, ax = plt.subplots(figsize=(6.0, 4.6), layout="constrained")
image = ax.pcolormesh(side, side, deviation, cmap="magma", shading="gouraud")
ax.plot(*np.asarray(fitted.boundary.points).T, ".", color="white", markersize=2.5)
ax.set(xlabel="x", ylabel="y", aspect="equal", xlim=(-3, 3), ylim=(-3, 3))
bar = figure.colorbar(image, ax=ax, label="standard deviation of the explanation")

# %%
# One point near the wave, and one near the line:

pair = fitted.explain(np.array([[-1.5, 0.3], [1.5, 0.3]]))
np.sqrt(pair.variance).to_pandas().round(3)

# %%
# By default the hyperparameters follow a rule under which the uncertainty shows the
# boundary. So it compares places; for intervals with a stated coverage there is
# ``kpp_gpec.conformal_check``.

# %%
# Read more in the user guide: :doc:`/how_to/gpec`.
