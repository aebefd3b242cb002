"""LIME, and how certain its slopes are
====================================

LIME explains a prediction by a linear model around the point, fitted to random
neighbors. With other neighbors the slopes change. BayesLIME gives an interval for each
slope, so that one knows whether the neighbors are enough.
"""

# %%
# A random forest predicts whether a tumor is malignant.

# sphinx_gallery_tags = ["any model", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import kpp

jax.config.update("jax_enable_x64", True)
cancer = load_breast_cancer(as_frame=True)
names = ["radius", "texture", "smoothness", "compactness", "concavity", "symmetry"]
tumors = cancer.data[[f"mean {name}" for name in names]].set_axis(names, axis=1)
diagnosis = np.where(cancer.target == 0, "malignant", "benign")
forest = RandomForestClassifier(50, min_samples_leaf=3, random_state=0).fit(
    tumors, diagnosis
)

# %%
# We explain one tumor eight times by LIME, each time with 300 other neighbors, and once
# by BayesLIME. A contribution is the change of the probability per standard deviation
# of the measurement.

tumor = tumors[20:21]
options = {"background": tumors, "num_perturbations": 300, "progress": False}
bayes = kpp.explain(
    forest, tumor, explainer="bayes-lime", rng_key=jax.random.key(0), **options
)
repeats = [
    kpp.explain(
        forest, tumor, explainer="lime", rng_key=jax.random.key(1 + i), **options
    )
    for i in range(8)
]

figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
rows = np.arange(len(names))
lower, upper = bayes.interval(0.9).sel(output="malignant").values[0].T
ax.hlines(
    rows,
    lower,
    upper,
    color="#33658a",
    linewidth=9.0,
    alpha=0.45,
    label="BayesLIME, 90 % interval",
)
for i, repeat in enumerate(repeats):
    slopes = repeat.values.sel(output="malignant").values[0]
    ax.plot(
        slopes,
        rows,
        "o",
        color="#c8553d",
        markersize=5.0,
        alpha=0.8,
        label=None if i else "LIME, eight times",
    )
ax.axvline(0.0, color="0.8", linewidth=1.0, zorder=0)
ax.set(
    yticks=rows,
    yticklabels=names,
    ylim=(len(names) - 0.5, -0.5),
    xlabel="slope of P(malignant)",
)
ax.tick_params(axis="y", length=0)
ax.spines[["top", "right", "left"]].set_visible(False)
legend = figure.legend(loc="outside upper center", ncols=2, frameon=False)

# %%
# With ten times as many neighbors the intervals are narrower.

more = kpp.explain(
    forest,
    tumor,
    explainer="bayes-lime",
    rng_key=jax.random.key(0),
    **options | {"num_perturbations": 3000},
)
for number, explanation in ((300, bayes), (3000, more)):
    deviation = float(np.sqrt(explanation.variance).mean())
    print(f"{number:>4} neighbors: mean standard deviation {deviation:.4f}")

# %%
# Read more in the user guide: :doc:`/how_to/surrogates`, "Local linear models".
