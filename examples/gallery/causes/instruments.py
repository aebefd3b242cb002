"""Instruments against hidden confounders
======================================

Demand raises both the price and the sales of a product, and nobody records it: a
regression then finds that high prices do little harm. The cost of transport changes the
price only, so it is an instrument, and it uncovers the true effect.
"""

# sphinx_gallery_tags = ["causal effects", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np

from kpp.kernels import RBF
from kpp_models import KernelRidge, instrumental_regression

jax.config.update("jax_enable_x64", True)


# %%
# We simulate 400 weeks. The hidden demand is part of the price and of the sales.
def true_sales(price):
    return -3.0 * np.tanh(price / 2)


rng = np.random.default_rng(1)
transport = rng.uniform(-3, 3, size=400)
demand = rng.normal(size=400)
price = transport + demand
sales = true_sales(price) + 2.0 * demand + 0.3 * rng.normal(size=400)

# %%
# Both regressions get the same prices and sales. Only the second one gets the
# instrument.
prices = np.linspace(-3, 3, 60)[:, None]
plain = (
    KernelRidge(RBF(1.0), regularization=1e-3)
    .fit(jax.random.key(0), price[:, None], sales)
    .function()(prices)[0, 0]
)
fit = instrumental_regression(price[:, None], sales, transport[:, None])
effect = fit.effect(prices)
half = 1.645 * np.sqrt(np.diagonal(effect.covariance))

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
points = axis.scatter(
    price, sales, c=demand, cmap="PuOr", s=14, vmin=-3, vmax=3, alpha=0.7
)
axis.fill_between(
    prices[:, 0],
    effect.mean - half,
    effect.mean + half,
    color="#1f618d",
    alpha=0.25,
    lw=0,
)
axis.plot(
    prices, effect.mean, color="#1f618d", lw=2.5, label="with the instrument, 90 %"
)
axis.plot(prices, plain, color="#7f8c8d", lw=2, label="without")
axis.plot(prices, true_sales(prices), "--", color="#d35400", lw=2, label="truth")
axis.set(xlabel="price", ylabel="sales", xlim=(-3, 3), ylim=(-5.5, 5.5))
axis.legend(frameon=False, loc="upper right")
axis.spines[["top", "right"]].set_visible(False)
figure.colorbar(points, label="hidden demand")
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/instruments`.
