"""Classification with probabilities
=================================

Two measurements of a wine tell from which grape it was made. A Gaussian process gives
the probability at every point of the plane, and it is honest: far from all wines, the
probability goes back to one half.
"""

# sphinx_gallery_tags = ["Gaussian processes", "classification"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
from sklearn.datasets import load_wine

import kpp
from kpp.kernels import RBF
from kpp_models import GPClassification

jax.config.update("jax_enable_x64", True)

# %%
# The data are 178 Italian wines from three grapes. The question is whether a wine was
# made from the second grape.
data = load_wine(as_frame=True)
wines = data.data[["alcohol", "flavanoids"]]
second_grape = data.target == 1

# %%
# The lengthscales and the variance of the kernel have priors, and ``kpp.MAP`` finds
# their most probable values. With ``kpp.NUTS()`` in its place, the probability is
# averaged over all plausible values.
x, scales = kpp.data.standardize(wines)
kernel = RBF(
    lengthscale=dist.LogNormal(0.0, 0.5).expand([2]), variance=dist.LogNormal(1.5, 0.5)
)
search = kpp.MAP(num_restarts=0, progress=False)
fit = GPClassification(kernel).fit(
    jax.random.key(0), x, second_grape, inference=search, num_prior_samples=0
)

# %%
# We predict the probability on a grid. The white line is the boundary, where both
# answers are equally probable, and the dashed lines are the probabilities 0.1 and 0.9.
alcohol, flavanoids = np.meshgrid(np.linspace(10.5, 15.5, 60), np.linspace(0, 5.5, 60))
grid = wines.iloc[:0].assign(alcohol=alcohol.ravel(), flavanoids=flavanoids.ravel())
probability = (
    fit.predict(scales.apply(grid))["probability"]
    .mean(("chain", "draw"))
    .values.reshape(60, 60)
)

figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
colors = axis.pcolormesh(
    alcohol, flavanoids, probability, cmap="RdBu_r", vmin=0, vmax=1, shading="gouraud"
)
axis.contour(alcohol, flavanoids, probability, [0.5], colors="white", linewidths=2.5)
axis.contour(
    alcohol,
    flavanoids,
    probability,
    [0.1, 0.9],
    colors="white",
    linestyles="--",
    linewidths=1,
)
for chosen, color, label in (
    (second_grape, "#b2182b", "second grape"),
    (~second_grape, "#2166ac", "other grapes"),
):
    axis.scatter(
        *wines[chosen].values.T,
        color=color,
        edgecolor="white",
        lw=0.6,
        s=28,
        label=label,
    )
axis.set(xlabel="alcohol [%]", ylabel="flavanoids")
axis.legend(loc="upper right")
figure.colorbar(colors, label="probability of the second grape")
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/models`.
