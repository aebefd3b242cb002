"""A kernel inside your own NumPyro model
======================================

The shop has a trend, a day of the week, and counts as data: no ready-made model fits.
Write the model in NumPyro, and let ``kpp.sample`` draw the kernel of the trend from its
priors.
"""

# sphinx_gallery_tags = ["kernels"]
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import kpp
from kpp.kernels import RBF

jax.config.update("jax_enable_x64", True)

# %%
# We simulate the sales of ten weeks.
rng = np.random.default_rng(0)
day = np.arange(70)
true_trend = 0.5 * np.sin(day / 11)
true_weekday = np.array([-0.2, -0.3, -0.1, 0.0, 0.2, 0.6, -0.2])
sales = rng.poisson(np.exp(2.5 + true_trend + true_weekday[day % 7]))

# %%
# The priors stand in the kernel where its numbers would be. All sites, also those of
# the kernel, are ordinary sites of NumPyro.
kernel = RBF(lengthscale=dist.LogNormal(2.3, 0.4), variance=dist.HalfNormal(1.0))


def model(day, sales=None):
    trend_kernel = kpp.sample("trend", kernel)
    root = jnp.linalg.cholesky(
        trend_kernel.gram(day[:, None] * 1.0) + 1e-6 * jnp.eye(len(day))
    )
    noise = numpyro.sample("noise", dist.Normal(0.0, 1.0).expand([len(day)]))
    trend = numpyro.deterministic("log_trend", root @ noise)
    weekday = numpyro.sample("weekday", dist.Normal(0.0, 0.5).expand([7]))
    level = numpyro.sample("level", dist.Normal(2.5, 1.0))
    numpyro.sample(
        "sales", dist.Poisson(jnp.exp(level + trend + weekday[day % 7])), obs=sales
    )


chain = MCMC(NUTS(model), num_warmup=100, num_samples=150, progress_bar=False)
chain.run(jax.random.key(0), day, sales)
draws = chain.get_samples()

# %%
# The trend and the weekdays are both recovered from the counts.
figure, (left, right) = plt.subplots(
    1, 2, figsize=(8.4, 3.6), width_ratios=[2, 1], layout="constrained"
)
usual = np.exp(draws["level"] + draws["weekday"].mean(axis=1))[:, None] * np.exp(
    draws["log_trend"]
)
lower, middle, upper = np.quantile(usual, [0.05, 0.5, 0.95], axis=0)
left.plot(day, sales, "o", color="black", ms=4, label="sales of a day")
left.fill_between(
    day, lower, upper, color="#1f618d", alpha=0.25, lw=0, label="90 % interval"
)
left.plot(day, middle, color="#1f618d", lw=2.5, label="trend")
left.plot(
    day,
    np.exp(2.5 + true_trend + true_weekday.mean()),
    "--",
    color="#d35400",
    lw=2,
    label="true trend",
)
left.set(xlabel="day", ylabel="sales")
left.legend(frameon=False, fontsize=9)

weekday = draws["weekday"] - draws["weekday"].mean(axis=1, keepdims=True)
right.boxplot(weekday, whis=(5, 95), showfliers=False, tick_labels=list("MTWTFSS"))
right.plot(range(1, 8), true_weekday - true_weekday.mean(), "D", color="#d35400", ms=5)
right.set(ylabel="effect on the log-sales")
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/priors`.
