"""Predict better with a causal graph
==================================

A blood marker depends on the response to a drug and on the weight, so the weight alone
says nothing about the response. Ordinary regressions do not use this fact. The
projection makes any regression obey it, and the error falls.
"""

# sphinx_gallery_tags = ["causal graph", "correlated features"]
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor

from kpp.causal import CausalDAG
from kpp_models.estimators import ProjectedRegressor

# %%
# The graph says how the marker arises. It is a collider of the response and the weight.
graph = CausalDAG([("dose", "response"), ("response", "marker"), ("weight", "marker")])


def draw_patients(rng, number):
    dose, weight, noise = rng.normal(size=(3, number))
    response = dose + rng.normal(size=number)
    marker = response + 2 * weight + 0.5 * noise
    return pd.DataFrame({"marker": marker, "weight": weight, "dose": dose}), response


# %%
# In each of 12 studies the response is known for 80 patients, and 400 further patients
# have features only. Both methods use the same random forest.
test, test_response = draw_patients(np.random.default_rng(99), 2000)
errors = []
for study in range(12):
    rng = np.random.default_rng(study)
    (patients, response), (others, _) = draw_patients(rng, 80), draw_patients(rng, 400)
    plain = RandomForestRegressor(40, min_samples_leaf=3, random_state=0).fit(
        patients, response
    )
    projected = ProjectedRegressor(
        RandomForestRegressor(40, min_samples_leaf=3, random_state=0),
        collider=graph,
        outcome="response",
        check=False,
    ).fit(patients, response, others)
    predictions = plain.predict(test), projected.predict(test)
    errors.append(
        [np.sqrt(np.mean((each - test_response) ** 2)) for each in predictions]
    )
errors = np.array(errors)

# %%
# Each line is one study.
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for before, after in errors:
    better = after < before
    axis.plot(
        [0, 1],
        [before, after],
        "o-",
        color="#1f618d" if better else "#d35400",
        lw=1.5,
        ms=7,
        alpha=0.8,
    )
axis.plot(
    [0, 1],
    errors.mean(axis=0),
    "D--",
    color="black",
    ms=9,
    lw=2.5,
    label="mean of the studies",
)
axis.set_xticks([0, 1], ["random forest", "projected forest"], fontsize=12)
axis.set(ylabel="error on new patients", xlim=(-0.3, 1.3))
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/collider_regression`.
