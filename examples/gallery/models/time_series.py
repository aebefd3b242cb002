"""Trend and season of a long time series
======================================

A Gaussian process on time takes linear time if its kernel is made of Matern kernels and
seasons of finitely many features. Here are 4,000 irregular times with a gap, and the
parts of which the function is the sum, with their uncertainty.
"""

# sphinx_gallery_tags = ["kernels", "Gaussian processes", "large data"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist

import kpp
import kpp_models
from kpp.features import HilbertSpace
from kpp.kernels import Matern32, Periodic

jax.config.update("jax_enable_x64", True)

rng = np.random.default_rng(0)
days = np.sort(rng.uniform(0.0, 365.0, size=4_000))
days = days[(days < 150) | (days > 180)]  # a month is missing
trend = 2 * np.sin(days / 60)
season = np.sin(2 * np.pi * days / 7) * (1 + days / 365)  # a week that becomes stronger
values = trend + season + rng.normal(size=days.size)

# %%
# A season that changes slowly is a product of a periodic kernel, here of 5 features,
# and a Matern kernel with a long lengthscale.
week = HilbertSpace(Periodic(1.0, period=7.0), 3)
model = kpp_models.GPRegression(
    Matern32(dist.LogNormal(4.0, 0.5), variance=dist.HalfNormal(2.0))
    + Matern32(200.0, variance=dist.HalfNormal(2.0)) * week,
    noise_variance=dist.HalfNormal(1.0),
    latent="quasiseparable",
)
fit = model.fit(
    jax.random.key(0),
    days[:, None],
    values,
    inference=kpp.Laplace(num_samples=20, progress=False),
    num_prior_samples=0,
)

# %%
# Each part has a mean and a variance for every draw of the hyperparameters. In the gap
# the trend is uncertain, while the week goes on.
grid = np.linspace(100.0, 230.0, 600)
parts = kpp_models.components(fit, grid[:, None], names=["trend", "season"])
mean = parts["mean"].mean(("chain", "draw"))
spread = np.sqrt(
    parts["variance"].mean(("chain", "draw")) + parts["mean"].var(("chain", "draw"))
)
figure, axes = plt.subplots(2, 1, figsize=(7, 4.5), sharex=True, layout="constrained")
for axis, name in zip(axes, ["trend", "season"], strict=True):
    center, width = mean.sel(component=name), 1.645 * spread.sel(component=name)
    axis.fill_between(grid, center - width, center + width, alpha=0.3)
    axis.plot(grid, center)
    axis.set_ylabel(name)
axes[1].set_xlabel("day")
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/many_rows`.
