"""Why one item is preferred to another
====================================

People choose between two flats. Pref-SHAP decomposes the preference for one of them:
which properties of the two flats speak for it, and how certain this is.
"""

# %%
# We simulate 60 flats and 400 noisy choices. People dislike the rent and the way to
# work, and like a large flat. The floor does not matter.

# sphinx_gallery_tags = ["Shapley values", "preferences"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kpp
from kpp.kernels import RBF
from kpp.preferences import Matches
from kpp_models import PGP

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
flats = pd.DataFrame(
    {
        "rent": rng.normal(900, 200, 60),
        "size": rng.normal(65, 15, 60),
        "minutes to work": rng.gamma(4.0, 8.0, 60),
        "floor": rng.integers(0, 6, 60).astype(float),
    }
)
utility = -flats["rent"] / 150 + flats["size"] / 20 - flats["minutes to work"] / 15
first, second = rng.integers(0, 60, (2, 400))
first, second = first[first != second], second[first != second]
chosen = rng.random(len(first)) < 1 / (
    1 + np.exp(-(utility[first].to_numpy() - utility[second].to_numpy()))
)

# %%
# A preferential Gaussian process learns from the choices. Its lengthscales are in the
# units of the flats, so nothing has to be scaled.

matches = Matches.create(flats, first, second, chosen.astype(int))
kernel = RBF(lengthscale=4.0 * flats.std().to_numpy(), variance=10.0)
model = PGP(kernel).fit(jax.random.key(0), matches, inference=kpp.MAP(progress=False))

# %%
# Two flats that nobody has compared yet. The numbers beside the names are differences,
# first flat minus second flat. The contributions add up to the log-odds that the first
# flat is chosen.

ours, theirs = [850.0, 80.0, 45.0, 1.0], [1000.0, 60.0, 20.0, 4.0]
references = {
    "value_function": "preferential-items",
    "background": flats,
    "conditional": "interventional",
}
explanation = kpp.explain(
    model,
    np.array([[ours, theirs]]),
    explainer="pref-shap",
    progress=False,
    **references,
)

figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
ax = explanation.plot.waterfall(0, ax=ax)
title = ax.set_title("log-odds that the first flat is chosen")

# %%
# The utility of the simulation is linear, so the true contributions are known: they are
# the differences times the weights of the utility.

truth = {"rent": 150 / 150, "size": 20 / 20, "minutes to work": -25 / 15, "floor": 0.0}
bounds = explanation.interval(0.9)[0].to_pandas()
bounds.assign(truth=pd.Series(truth)).round(2)

# %%
# Now 150 choices of the sample, the chosen flat minus the other one: rent and way to
# work decide most of them.

pairs = np.stack(
    [
        flats.to_numpy()[np.where(chosen, a, b)]
        for a, b in ((first, second), (second, first))
    ],
    axis=1,
)
everything = kpp.explain(
    model,
    pairs[:150],
    explainer="pref-shap",
    covariance=None,
    progress=False,
    **references,
)
figure, ax = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
ax = everything.plot.beeswarm(ax=ax)

# %%
# Read more in the user guide: :doc:`/how_to/pref_shap`.
