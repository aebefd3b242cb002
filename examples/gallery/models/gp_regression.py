"""Regression that finds the inputs that matter
============================================

A Gaussian process predicts the growth of seedlings, with an interval around each
prediction. Every input has its own lengthscale with a prior, so the data decide which
inputs matter and how fast the growth changes with them.
"""

# sphinx_gallery_tags = ["Gaussian processes", "intervals"]
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
# We simulate an experiment with 60 seedlings. The growth depends on the light and the
# water, but not on the position of the pot on the table.
rng = np.random.default_rng(3)
pots = pd.DataFrame(
    rng.uniform(0, 10, size=(60, 3)), columns=["light", "water", "position"]
)


def true_growth(pots):
    return 2 * np.sin(0.9 * pots["light"]) + 0.25 * pots["light"] + 0.1 * pots["water"]


growth = true_growth(pots) + 0.4 * rng.normal(size=60)

# %%
# Numbers and priors can be mixed freely in a kernel. Models never rescale data, so we
# standardize the columns first: a lengthscale near 1 is then a plausible guess.
x, scales = kpp.data.standardize(pots)
center = growth.mean()
kernel = RBF(
    lengthscale=dist.LogNormal(0.0, 1.0).expand([3]), variance=dist.LogNormal(0.5, 1.0)
)
model = GPRegression(kernel, noise_variance=dist.HalfNormal(1.0))
inference = kpp.Laplace(num_samples=100, num_restarts=0, progress=False)
fit = model.fit(
    jax.random.key(0), x, growth - center, inference=inference, num_prior_samples=0
)

# %%
# We predict the growth of new pots with water 5 and different amounts of light. The
# dark band is the uncertainty of the mean growth, and the light band holds 90 % of the
# pots.
new = pd.DataFrame({"light": np.linspace(1, 10, 100), "water": 5.0, "position": 5.0})
predicted = fit.predict(scales.apply(new))
mean = center + predicted["mean"].mean(("chain", "draw"))
variance = predicted["latent_variance"].mean(("chain", "draw")) + predicted["mean"].var(
    ("chain", "draw")
)
noise = predicted["noise_variance"].mean(("chain", "draw"))

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for spread, opacity, label in (
    (variance + noise, 0.15, "90 % of pots"),
    (variance, 0.35, "90 % interval of the mean"),
):
    half = 1.645 * np.sqrt(spread)
    axis.fill_between(
        new["light"],
        mean - half,
        mean + half,
        color="#1f618d",
        alpha=opacity,
        lw=0,
        label=label,
    )
axis.plot(new["light"], mean, color="#1f618d", lw=2.5, label="predicted mean")
axis.plot(new["light"], true_growth(new), "--", color="#d35400", lw=2, label="truth")
axis.scatter(pots["light"], growth, color="black", s=14, label="pots")
axis.set(xlabel="light", ylabel="growth", xlim=(0.8, 10.1), ylim=(-1.8, 8.2))
axis.legend(frameon=False, loc="upper left", fontsize=9, ncols=2)
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# A short lengthscale means that the growth changes quickly with this input. The
# lengthscale of the position is long, so the position hardly matters.
lengthscales = fit.draws["kernel.lengthscale"][0]
figure, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
axis.boxplot(
    lengthscales,
    orientation="horizontal",
    tick_labels=pots.columns,
    whis=(5, 95),
    showfliers=False,
)
axis.set(xscale="log", xlabel="lengthscale, in standard deviations of the input")
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/models` and :doc:`/how_to/inference`.
