"""Two questions about correlated features
=======================================

A model uses the income of a person and ignores the education, but the two are
correlated. The interventional Shapley value of the education is zero: it says what the
*model* does. The observational value is not: it says what the *data* tell about the
prediction. The picture helps to choose.
"""

# %%
# We simulate 300 people. The education has a correlation of 0.8 with the income. The
# score depends on the income and the age only, so the truth is known. A kernel ridge
# regression of scikit-learn learns it.

# sphinx_gallery_tags = ["Shapley values", "correlated features"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.kernel_ridge import KernelRidge

import kpp
from kpp.explanations import compare

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
income, age = rng.normal(size=(2, 300))
education = 0.8 * income + 0.6 * rng.normal(size=300)
people = pd.DataFrame({"income": income, "education": education, "age": age})
score = 2.0 * income + np.sin(age) + 0.1 * rng.normal(size=300)
model = KernelRidge(kernel="rbf", gamma=0.05, alpha=0.01).fit(people, score)

# %%
# The two value functions differ in how they fill in absent features: independently of
# the present ones, or by their conditional distribution given the present ones.

some = people[:80]
interventional = kpp.explain(
    model, some, value_function="interventional", background=people, progress=False
)
observational = kpp.explain(
    model, some, value_function="observational", background=people, progress=False
)

# %%
# For a linear model of Gaussian features the observational values of the education lie
# on the dashed line, whose slope is half of 2.0 times 0.8. The income loses what the
# education gains.

figure, axes = plt.subplots(1, 2, figsize=(6.6, 3.6), sharey=True, layout="constrained")
colors = {"interventional": "#33658a", "observational": "#c8553d"}
for ax, feature in zip(axes, ["income", "education"], strict=True):
    for name, explanation in {
        "interventional": interventional,
        "observational": observational,
    }.items():
        ax.scatter(
            some[feature],
            explanation.values.sel(feature=feature),
            s=14,
            color=colors[name],
            label=name,
        )
    ax.set_xlabel(feature)
    ax.spines[["top", "right"]].set_visible(False)
axes[1].axline(
    (0.0, 0.0), slope=0.8, color="0.4", linestyle="--", linewidth=1.0, zorder=0
)
axes[0].set_ylabel("Shapley value")
legend = axes[0].legend(frameon=False, loc="upper left")

# %%
# The same comparison as a table of mean absolute contributions:

both = compare({"interventional": interventional, "observational": observational})
both["importance"].to_pandas().round(2)

# %%
# Read more in the user guide: :doc:`/how_to/rkhs_shap`, "Choosing a value function".
