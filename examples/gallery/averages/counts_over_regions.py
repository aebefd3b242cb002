"""Rates of disease from counts over regions
=========================================

Cases of a disease are counted in regions along a coast, but the rate changes from place
to place within a region. The model recovers the rate along the coast from the counts,
with an interval that is wide where few people live.
"""

# sphinx_gallery_tags = ["aggregates", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np

import kpp
from kpp.kernels import RBF
from kpp_models import CMP

jax.config.update("jax_enable_x64", True)

# %%
# We simulate 16 regions of 50 km, with 10 places in each. The number of people in a
# region is between 500 and 20,000.
rng = np.random.default_rng(5)
places = np.linspace(0, 800, 160)
region = np.repeat(np.arange(16), 10)
centers = np.arange(25, 800, 50)
log_rate = -5.5 + 0.9 * np.sin(places / 90) + 0.5 * np.sin(places / 210)
people = rng.integers(500, 20_000, size=16)
log_rate_of_region = np.array(
    [log_rate[region == number].mean() for number in range(16)]
)
cases = rng.poisson(people * np.exp(log_rate_of_region))

# %%
# Given the mean of the log-rate in a region, its cases follow the Poisson law with the
# number of people as exposure.
bags = kpp.Bags.create(places[:, None] / 100, region, centers[:, None] / 100)
model = CMP(
    RBF(0.8, 1.0),
    RBF(0.25, 100.0),
    noise_variance=1.0,
    regularization=1e-3,
    mean=-5.5,
    likelihood="poisson",
)
nuts = kpp.NUTS(num_warmup=150, num_samples=150, num_chains=1, progress=False)
fit = model.fit(
    jax.random.key(0), bags, cases, exposure=people, inference=nuts, num_prior_samples=0
)

# %%
# The steps are the raw rates. They jump where few people live; the model trusts them
# less there.
predicted = fit.predict(places[:, None] / 100)
draws = rng.normal(predicted["mean"][0], np.sqrt(predicted["latent_variance"][0]))
rates = 1000 * np.exp(np.quantile(draws, [0.05, 0.5, 0.95], axis=0))

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
axis.stairs(
    1000 * cases / people,
    np.arange(0, 801, 50),
    color="#7f8c8d",
    lw=1.5,
    label="cases per 1000 people",
)
axis.fill_between(
    places,
    rates[0],
    rates[2],
    color="#1f618d",
    alpha=0.25,
    lw=0,
    label="90 % interval of the rate",
)
axis.plot(places, rates[1], color="#1f618d", lw=2.5, label="rate by the model")
axis.plot(
    places, 1000 * np.exp(log_rate), "--", color="#d35400", lw=2, label="true rate"
)
axis.set(
    xlabel="place along the coast [km]",
    ylabel="cases per 1000 people",
    xlim=(0, 800),
    ylim=(0, None),
)
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/aggregate_likelihoods`.
