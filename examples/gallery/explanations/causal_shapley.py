"""Marginal, conditional, causal and asymmetric Shapley values
===========================================================

If features cause each other, "how important is the season?" has several answers. A
model that ignores the season gives it a marginal Shapley value near zero; but setting
another season would change the temperature, and its causal Shapley value says so.
"""

# %%
# Simulated days of a bike shop: the season drives the temperature, and both drive the
# humidity. The rentals depend on the temperature and the humidity only. A Gaussian
# process learns to predict them.

# sphinx_gallery_tags = ["Shapley values", "any model", "causal graph"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kpp
from kpp.causal import CausalDAG
from kpp.kernels import RBF
from kpp_models import GPRegression

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
season = rng.normal(size=150)
temperature = 0.8 * season + 0.6 * rng.normal(size=150)
humidity = -0.4 * temperature + 0.3 * season + 0.8 * rng.normal(size=150)
rentals = (
    1.5 * temperature
    - 0.3 * temperature**2
    - 0.5 * humidity
    + 0.3 * rng.normal(size=150)
)
days = pd.DataFrame(
    {"season": season, "temperature": temperature, "humidity": humidity}
)
kernel = RBF(np.full(3, 2.0), variance=4.0)
fit = GPRegression(kernel, noise_variance=0.1).fit(
    jax.random.key(0), days, rentals, inference=kpp.MAP(progress=False)
)

# %%
# Four kinds of values for 40 days. Causal and asymmetric values need the graph.

graph = CausalDAG(
    [("season", "temperature"), ("season", "humidity"), ("temperature", "humidity")]
)
kinds = {
    "marginal": {"value_function": "interventional"},
    "conditional": {"value_function": "observational-gaussian"},
    "causal": {"value_function": "causal", "graph": graph, "effects": True},
    "asymmetric": {"value_function": "observational-gaussian", "order": graph},
}
options = {"background": days, "covariance": None, "progress": False}
explanations = {
    kind: kpp.explain(fit, days[:40], **options, **kind_options)
    for kind, kind_options in kinds.items()
}
values = kpp.explanations.compare(explanations)["importance"].to_pandas().T

# %%
# The graph and the mean absolute values. The causal value of the season is not zero.
# Humidity has no effects, so its causal value is about its marginal value. Asymmetric
# values give the first cause the credit for all that it causes.

figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(6.6, 5.0), height_ratios=[2, 3], layout="constrained"
)
kpp.plots.causal_graph(graph, ax=top)
values.iloc[::-1].plot.barh(
    ax=bottom, width=0.75, color=["#bdc3c7", "#7fb3d5", "#1f618d", "#e59866"]
)
bottom.set(xlabel="mean absolute Shapley value", ylabel="")
bottom.legend(frameon=False, loc="lower right", reverse=True)
bottom.spines[["top", "right"]].set_visible(False)

# %%
# A causal value has two parts: the direct effect of the feature on the prediction, and
# its indirect effect through the features that it causes.

parts = (
    abs(explanations["causal"].effects).mean(("chain", "draw", "instance")).to_pandas()
)
parts.round(2)

# %%
# Read more in the user guide: :doc:`/how_to/causal_shapley`.
