"""Which features act together
===========================

Shapley values tell how much each feature contributes. Interactions tell which pairs
contribute *jointly*: the effect of one depends on the other. In this simulation one
pair does, and the picture finds it.
"""

# %%
# Friedman's benchmark: the target is 10 sin(pi a b) + 20 (c - 1/2)^2 + 10 d + 5 e plus
# noise. Only a and b interact, and f has no influence.

# sphinx_gallery_tags = ["Shapley values", "Gaussian processes"]
import jax
import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import make_friedman1

import kpp
from kpp_models.estimators import GPRegressor

jax.config.update("jax_enable_x64", True)
columns, target = make_friedman1(200, n_features=6, noise=0.5, random_state=0)
table = pd.DataFrame(columns, columns=list("abcdef"))
process = GPRegressor(random_state=0).fit(table, target)

# %%
# With ``interactions="SII"`` the explanation also holds the Shapley interaction index
# of all pairs, and it is exact.

options = {
    "interactions": "SII",
    "background": table,
    "covariance": None,
    "progress": False,
}
explanation = kpp.explain(process, table[:60], **options)

figure, ax = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
ax = explanation.plot.interactions(ax=ax)

# %%
# For one row the interactions have a sign. Here a b is 0.86, beyond the top of the sine
# at 1/2: if one of the two features is large, the other one lowers the prediction, so
# the interaction is negative.

largest = int((table["a"] * table["b"])[:60].argmax())
figure, ax = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
ax = explanation.plot.interactions(largest, ax=ax)
print(table.iloc[largest].round(2).to_dict())

# %%
# Read more in the user guide: :doc:`/how_to/explanations`, "Groups and pairs".
