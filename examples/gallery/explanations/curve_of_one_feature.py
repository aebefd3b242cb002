"""How the prediction depends on one feature
=========================================

A Gaussian process predicts the growth of seedlings from light and water. Its curve of
the light has an interval at each value, and a band that holds the whole curve.
"""

# sphinx_gallery_tags = ["any model", "Gaussian processes"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pandas as pd

import kpp
from kpp.kernels import RBF
from kpp_models import GPRegression

jax.config.update("jax_enable_x64", True)

# %%
# We simulate 40 seedlings. More light helps up to a point, and harms beyond it. Pots
# with more light also dry out, so that light and water depend on each other.
rng = np.random.default_rng(1)
light = rng.uniform(0, 10, size=40)
pots = pd.DataFrame({"light": light, "water": 12 - light + rng.normal(size=40)})


def true_growth(light, water):
    return 4 * np.sin(0.3 * light) + 0.2 * water


growth = true_growth(pots["light"], pots["water"]) + 0.4 * rng.normal(size=40)
kernel = RBF(dist.LogNormal(np.log([3.0, 6.0]), 0.5), variance=dist.LogNormal(2.0, 1.0))
fit = GPRegression(kernel, noise_variance=dist.HalfNormal(0.5)).fit(
    jax.random.key(0),
    pots,
    growth - growth.mean(),
    inference=kpp.Laplace(num_samples=50, num_restarts=0, progress=False),
    num_prior_samples=0,
)

# %%
# The partial curve answers: what does the model predict on average if all pots have
# this light? Much light with much water is rare, so the curve is uncertain. The
# accumulated curve adds up changes between pots of similar light, and stays where the
# data are. Both are drawn without their means over the values of the light.
fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
curves = {}
for ax, kind in zip(axes, ("partial", "accumulated"), strict=True):
    curves[kind] = kpp.curve(fit, pots, "light", kind=kind, grid=12).centered()
    curves[kind].plot(ax=ax)
    truth = true_growth(curves[kind].grid, 0.0)
    ax.plot(curves[kind].grid, truth - truth.mean(), "k--", label="truth")
    ax.legend(frameon=False, fontsize="small")

# %%
# Where is the best light, and how large is the change from the 10 % to the 90 %
# quantile of the light?
best = curves["accumulated"].turning_point("maximum")
print(best[best > 0.01].round(2))
print(curves["accumulated"].rise(0.1, 0.9).round(2))

# %%
# Read more in the user guide: :doc:`/how_to/inspect_a_model`.
