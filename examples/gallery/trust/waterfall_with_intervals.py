"""One prediction as a waterfall, with intervals
=============================================

A classifier considers a tumor to be malignant. The bars show which measurements of the
cells lead to this prediction, and the black lines show how certain each contribution
is.
"""

# %%
# We take seven measurements of the breast cancer data and fit a Gaussian process to 120
# tumors.

# sphinx_gallery_tags = ["Shapley values", "plots", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

import kpp
from kpp_models.estimators import GPClassifier

jax.config.update("jax_enable_x64", True)
cancer = load_breast_cancer(as_frame=True)
names = [
    "radius",
    "texture",
    "smoothness",
    "compactness",
    "concavity",
    "symmetry",
    "fractal dimension",
]
tumors = cancer.data[[f"mean {name}" for name in names]].set_axis(names, axis=1)
diagnosis = np.where(cancer.target == 0, "malignant", "benign")
# Labels are sorted, so the latent function is the log-odds of "malignant".
classifier = GPClassifier(random_state=0).fit(tumors[:120], diagnosis[:120])

# %%
# The tumor is not one of the 120. The contributions are on the scale of the log-odds.
# They add up from the mean over the training data (dotted) to the prediction (dashed).
# Each black line begins where its bar begins.

new = tumors[120:]
row = int(np.argmin(np.abs(classifier.predict_proba(new)[:, 1] - 0.9)))
explanation = kpp.explain(classifier, new.iloc[[row]], progress=False)

figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
ax = explanation.plot.waterfall(0, probability=0.9, ax=ax)
title = ax.set_title("log-odds of a malignant tumor")

# %%
# How certain is the sign of each contribution? A value of 1 means certain, and 1/2
# means unknown.

explanation.probability_of_direction()[0].to_pandas().round(2)

# %%
# Read more in the user guide: :doc:`/how_to/explanations`, "Uncertainty".
