"""KernelSHAP of any model
=======================

Gradient boosting predicts the cultivar of a wine from its chemistry. KernelSHAP
explains any model that can be called, and says how large the error of its sampling is:
more coalitions give smaller standard errors.
"""

# %%
# Thirteen features have 8192 coalitions. We value only a part of them.

# sphinx_gallery_tags = ["Shapley values", "any model", "scikit-learn"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingClassifier

import kpp

jax.config.update("jax_enable_x64", True)
wine = load_wine(as_frame=True)
wines = wine.data.rename(columns={"od280/od315_of_diluted_wines": "od280/od315"})
wines.columns = wines.columns.str.replace("_", " ")
cultivars = np.array(["Barolo", "Grignolino", "Barbera"])[wine.target]
model = GradientBoostingClassifier(n_estimators=30, random_state=0).fit(
    wines, cultivars
)

# %%
# For a classifier the probabilities of the classes are explained, one output per class.

options = {"explainer": "kernel-shap", "background": wines[::9]}
explanation = kpp.explain(
    model, wines[::3], num_coalitions=300, rng_key=jax.random.key(0), **options
)

figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
ax = explanation.plot.beeswarm(output="Barolo", max_features=8, ax=ax)
title = ax.set_title("P(Barolo) by gradient boosting")

# %%
# The standard errors are part of the explanation. They fall as more coalitions are
# valued, and with all 8192 coalitions the values are exact.

few_rows = wines[:5]
for number in (100, 300, 1000, 8192):
    few = kpp.explain(
        model, few_rows, num_coalitions=number, rng_key=jax.random.key(0), **options
    )
    error = 0.0 if few.attrs["exact"] else float(few.standard_errors.max())
    print(f"{number:>5} coalitions: largest standard error {error:.4f}")

# %%
# Read more in the user guide: :doc:`/how_to/surrogates`.
