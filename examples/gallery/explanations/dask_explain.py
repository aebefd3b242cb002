"""A table that does not fit into memory
=====================================

A Dask array in place of the points: its blocks are explained one after the other, and
the results go into a Zarr store. The rows are never in memory together.
"""

# %%
# A kernel ridge regression on landmarks learns from the blocks. Here 20,000 rows in
# five blocks stand for a table of any length.

# sphinx_gallery_tags = ["Shapley values", "large data"]
import tempfile
from pathlib import Path

import dask.array as da
import jax
import matplotlib.pyplot as plt
import numpy as np

import kpp
from kpp.kernels import RBF
from kpp_models import LandmarkRidge

jax.config.update("jax_enable_x64", True)
rows = da.random.default_rng(0).normal(size=(20_000, 4), chunks=(4_000, 4))
target = da.sin(2 * rows[:, 0]) + rows[:, 1] * rows[:, 2]
ridge = LandmarkRidge(
    RBF(np.full(4, 1.5)), 1e-6, landmarks=200, num_held_out=500, progress=False
)
fit = ridge.fit(jax.random.key(0), rows, target)

# %%
# The explanation is lazy: only the first block has been computed, because it shows
# which arrays there are. ``save`` computes and writes one block after the other.

background = np.random.default_rng(1).normal(size=(30, 4))
explanation = kpp.explain(fit.function, rows, background=background, progress=False)
store = Path(tempfile.mkdtemp()) / "explanation.zarr"
explanation.save(store)

# %%
# A stored explanation is lazy, too. A plot reads 2000 evenly spaced rows of it.

stored = kpp.Explanation.load(store)
figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
ax = stored.plot.scatter("x0", ax=ax)
inputs = np.linspace(-4.0, 4.0, 200)
truth = ax.plot(
    inputs, np.sin(2 * inputs), color="black", linewidth=1.0, label="sin(2 x0)"
)
legend = ax.legend(frameon=False)

# %%
# Means over all rows are computed block by block as well.

abs(stored.values).mean("instance").compute().to_pandas().round(2)

# %%
# Read more in the user guide: :doc:`/how_to/dask`.
