"""Intervals that shrink with the number of coalitions
===================================================

Each call of a model may be expensive. BayesSHAP estimates Shapley values from few calls
and gives an interval for each of them. The intervals shrink as calls are added, around
the exact values (black).
"""

# %%
# The model is a random forest. It has only five features here, so the exact values can
# be computed for comparison: from all 32 coalitions, each with all rows of the
# background.

# sphinx_gallery_tags = ["Shapley values", "any model", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import kpp

jax.config.update("jax_enable_x64", True)
table = load_diabetes(as_frame=True, scaled=False).frame
names = {
    "bmi": "body mass index",
    "bp": "blood pressure",
    "s3": "HDL",
    "s5": "triglycerides",
    "s6": "glucose",
}
patients = table[list(names)].rename(columns=names)
forest = RandomForestRegressor(50, min_samples_leaf=5, random_state=0).fit(
    patients, table["target"]
)
background, patient = patients[::9], patients[7:8]
exact = kpp.explain(forest, patient, explainer="kernel-shap", background=background)

# %%
# BayesSHAP takes the absent features from one row of the background per call. So 50
# calls cost 50 predictions.

options = {
    "explainer": "bayes-shap",
    "background": background,
    "rng_key": jax.random.key(0),
    "progress": False,
}
calls = [50, 200, 800, 3200]
explanations = [
    kpp.explain(forest, patient, num_perturbations=number, **options)
    for number in calls
]

figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
place, colors = np.arange(len(names)), ["#f0b8a8", "#e08e75", "#c8553d", "#7a2a17"]
for step, (number, explanation, color) in enumerate(
    zip(calls, explanations, colors, strict=True)
):
    lower, upper = explanation.interval(0.9).values[0].T
    ax.vlines(
        place + 0.18 * step,
        lower,
        upper,
        color=color,
        linewidth=4.0,
        label=f"{number} calls",
    )
ax.hlines(
    exact.values[0],
    place - 0.12,
    place + 0.66,
    color="black",
    linewidth=1.2,
    label="exact",
)
ax.set_xticks(place + 0.27, [name.replace(" ", "\n") for name in names.values()])
ax.set_ylabel("Shapley value, 90 % interval")
ax.spines[["top", "right"]].set_visible(False)
legend = figure.legend(
    loc="outside upper center",
    ncols=5,
    frameon=False,
    columnspacing=1.0,
    handlelength=1.2,
)

# %%
# The width of the intervals falls with the root of the number of calls.

for number, explanation in zip(calls, explanations, strict=True):
    deviation = float(np.sqrt(explanation.variance).mean())
    print(f"{number:>5} calls: mean standard deviation {deviation:.1f}")

# %%
# Read more in the user guide: :doc:`/how_to/surrogates`, "How far to trust the
# intervals of BayesSHAP".
