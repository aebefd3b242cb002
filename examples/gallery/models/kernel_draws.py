"""What a kernel believes
======================

Before you fit a kernel, look at functions drawn from it: they show what the kernel and
its priors take for plausible. Kernels are combined by sums and products, and any of
their numbers may have a prior.
"""

# sphinx_gallery_tags = ["kernels", "Gaussian processes"]
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import Predictive

import kpp
from kpp.kernels import RBF, Linear, Matern12, Periodic

jax.config.update("jax_enable_x64", True)

# %%
# A sum of kernels adds independent functions, and a product lets one kernel change the
# other slowly. In the last kernel the lengthscale has a prior, so each function has its
# own.
yearly = Periodic(period=1.0, lengthscale=0.8)
kernels = {
    "RBF: smooth": RBF(1.0),
    "Matern12: rough": Matern12(1.0),
    "Periodic: repeats each year": yearly,
    "Linear + Periodic: a trend and a season": Linear(0.5) + 0.3 * yearly,
    "RBF * Periodic: a season that changes": RBF(1.5) * yearly,
    "RBF with a prior of the lengthscale": RBF(dist.LogNormal(-0.5, 1.0)),
}


# %%
# A NumPyro model draws the numbers of the kernel from their priors, and then a function
# from the Gaussian process.
def draw_function(kernel, years):
    covariance = kpp.sample("kernel", kernel).gram(years) + 1e-6 * jnp.eye(len(years))
    numpyro.sample(
        "function", dist.MultivariateNormal(jnp.zeros(len(years)), covariance)
    )


years = np.linspace(-2, 2, 150)[:, None]
figure, axes = plt.subplots(3, 2, figsize=(7, 5.4), sharex=True, layout="constrained")
for axis, (name, kernel) in zip(axes.ravel(), kernels.items(), strict=True):
    draws = Predictive(draw_function, num_samples=4)(jax.random.key(4), kernel, years)[
        "function"
    ]
    for draw, color in zip(
        draws, ["#1f618d", "#e59866", "#48a999", "#8e6bbf"], strict=True
    ):
        axis.plot(years[:, 0], draw, color=color, lw=1.6)
    axis.set_title(name, fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
for axis in axes[-1]:
    axis.set_xlabel("years")
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/kernels` and :doc:`/how_to/priors`.
