"""A kernel of your own, with exact explanations
=============================================

The direction of the wind is an angle: 359 degrees are close to 1 degree. A kernel that
knows this takes a few lines, and then works like a built-in one: in models, with
priors, and with exact Shapley values.
"""

# %%
# A kernel that is a product over the features needs its scale and one factor per
# feature. This one is :math:`\sigma^2 \prod_j \exp((\cos(x_j - x'_j) - 1) / \ell_j^2)`,
# for angles in degrees. Its parameters may be numbers or priors.

# sphinx_gallery_tags = ["kernels", "Shapley values"]
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pandas as pd

import kpp
from kpp.kernels import RBF, AbstractProductKernel, parameter
from kpp.testing import check_kernel
from kpp.typing import Leaf
from kpp_models.estimators import GPRegressor

jax.config.update("jax_enable_x64", True)


class Compass(AbstractProductKernel):
    """A kernel of angles in degrees."""

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"))
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    @property
    def scale(self):
        return self.variance

    def evaluate_factors(self, x1, x2):
        return jnp.exp((jnp.cos(jnp.deg2rad(x1 - x2)) - 1.0) / self.lengthscale**2)


rng = np.random.default_rng(0)
check_kernel(
    Compass(0.7), rng.uniform(0.0, 360.0, size=(6, 1))
)  # symmetric, positive semi-definite, differentiable, ...

# %%
# A simulated town whose factory lies in the north: the air is bad when the wind comes
# from there and is weak.

direction, speed = rng.uniform(0.0, 360.0, 250), rng.gamma(3.0, 1.5, 250)
weather = pd.DataFrame({"direction": direction, "speed": speed})
smoke = (
    40.0
    * np.exp(3.0 * (np.cos(np.deg2rad(direction - 10.0)) - 1.0))
    * np.exp(-speed / 8.0)
)
pollution = 20.0 + smoke + 5.0 * rng.normal(size=250)
kernel = (
    400.0
    * Compass(dist.LogNormal(0.0, 0.5)).on("direction")
    * RBF(dist.LogNormal(1.5, 0.5)).on("speed")
)
process = GPRegressor(kernel, random_state=0).fit(weather, pollution)

# %%
# The contribution of the direction, with 90 % intervals: no jump at the north, where
# 360 degrees become 0.

explanation = kpp.explain(process, weather, background=weather, progress=False)
values = explanation.mean().values.sel(feature="direction")
lower, upper = explanation.interval(0.9).sel(feature="direction").values.T

figure, ax = plt.subplots(
    figsize=(5.4, 4.6), subplot_kw={"projection": "polar"}, layout="constrained"
)
angle = np.deg2rad(direction)
ax.vlines(angle, lower, upper, color="0.6", linewidth=1.2)
points = ax.scatter(angle, values, c=speed, s=10, cmap="viridis_r", zorder=2)
ax.set(
    theta_zero_location="N",
    theta_direction=-1,
    rmin=-25.0,
    yticks=[-20, 0, 20],
    xticks=np.deg2rad([0, 90, 180, 270]),
)
ax.set_rlabel_position(135.0)
ax.set_xticklabels(["N", "E", "S", "W"])
bar = figure.colorbar(points, label="speed of the wind [m/s]", shrink=0.8)
print("exact:", explanation.attrs["exact"])

# %%
# To use the kernel by its name, for example in a study file, put it into a module with
# this hook:


@kpp.hookimpl
def register_kernels():
    """Name the kernel."""
    return {"Compass": Compass}


# %%
# and name the module in the ``pyproject.toml`` of its distribution. After an
# installation ``kpp plugins`` lists it.
#
# .. code-block:: toml
#
#    [project.entry-points.kpp]
#    compass = "kpp_compass"
#
# Read more in the user guide: :doc:`/how_to/plugins` and :doc:`/how_to/kernels`.
