"""A fine map from coarse averages
===============================

A satellite measures the mean temperature of large cells, but the height of the land is
known at every pixel. A conditional mean process combines both: it recovers the fine map
whose averages are the measurements.
"""

# sphinx_gallery_tags = ["aggregates", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
from scipy.ndimage import gaussian_filter

import kpp
from kpp.kernels import RBF
from kpp_models import CMP

jax.config.update("jax_enable_x64", True)

# %%
# We simulate a landscape of 30 by 30 pixels. The temperature falls with the height and
# changes slowly over the map. It is measured, with small errors, as the mean of each of
# the 36 cells.
rng = np.random.default_rng(2)
size, side = 30, 5
height = gaussian_filter(rng.normal(size=(size, size)), 1.5, mode="wrap")
height = (height - height.mean()) / height.std()
row, column = np.indices((size, size)) / size
temperature = 12 - 2.5 * height + 4 * np.sin(3 * column) + 3 * row

cell = (
    (np.indices((size, size)) // side * np.array([size // side, 1])[:, None, None])
    .sum(0)
    .ravel()
)
num_cells = cell.max() + 1
pixels = np.stack([row, column, height], axis=-1).reshape(-1, 3)
centers = np.array([pixels[cell == number, :2].mean(0) for number in range(num_cells)])
measured = np.array(
    [temperature.ravel()[cell == number].mean() for number in range(num_cells)]
)
measured += 0.1 * rng.normal(size=num_cells)

# %%
# The field is a sum of a function of the place and a function of the height, whose
# kernels have priors. Each cell is a bag of pixels with the center of the cell as its
# covariate.
bags = kpp.Bags.create(pixels, cell, centers)
place = RBF(dist.LogNormal(-0.5, 0.5), dist.LogNormal(1.0, 1.0)).on((0, 1))
elevation = RBF(dist.LogNormal(1.0, 0.5), dist.LogNormal(1.0, 1.0)).on(2)
model = CMP(
    place + elevation,
    RBF(0.1, 100.0),
    dist.HalfNormal(0.5),
    regularization=1e-3,
    mean=measured.mean(),
)
fit = model.fit(
    jax.random.key(0),
    bags,
    measured,
    inference=kpp.MAP(num_restarts=0, progress=False),
    num_prior_samples=0,
)
recovered = fit.predict(pixels)["mean"].values[0, 0].reshape(size, size)

# %%
# The recovered map shows the valleys and mountains inside the cells, although no pixel
# was measured.
maps = {
    "measured cells": measured[cell].reshape(size, size),
    "recovered": recovered,
    "truth": temperature,
}
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for axis, (name, values) in zip(axes, maps.items(), strict=True):
    colors = axis.imshow(
        values, cmap="RdYlBu_r", vmin=temperature.min(), vmax=temperature.max()
    )
    error = np.sqrt(np.mean((values - temperature) ** 2))
    axis.set_title(
        name if name == "truth" else f"{name}, error {error:.1f} °C", fontsize=11
    )
    axis.set(xticks=[], yticks=[])
figure.colorbar(colors, ax=axes, label="temperature [°C]", shrink=0.8, pad=0.03)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/aggregates` and :doc:`/how_to/grids`.
