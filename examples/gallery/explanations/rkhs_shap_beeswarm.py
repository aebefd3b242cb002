"""Exact Shapley values of a Gaussian process
==========================================

Each point is the contribution of one measurement to the prediction for one patient, and
the thin line behind it is its 90 % interval. One sees which measurements matter, in
which direction, and how certain this is.
"""

# %%
# The diabetes data have ten measurements of patients and the progress of their disease
# one year later. We fit a Gaussian process with one lengthscale per measurement to 300
# patients, and explain 100 others. The estimator chooses priors in the units of the
# data.

# sphinx_gallery_tags = ["Shapley values", "Gaussian processes", "intervals"]
import jax
import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import kpp
from kpp_models.estimators import GPRegressor

jax.config.update("jax_enable_x64", True)
names = {
    "bp": "blood pressure",
    "s1": "cholesterol",
    "s2": "LDL",
    "s3": "HDL",
    "s4": "ratio",
    "s5": "triglycerides",
    "s6": "glucose",
}
table = load_diabetes(as_frame=True, scaled=False).frame.rename(columns=names)
patients, progress = table.drop(columns="target"), table["target"]
process = GPRegressor(random_state=0).fit(patients[:300], progress[:300])

# %%
# The Shapley values are exact, although ten measurements have 1024 coalitions: the
# kernel is a product over the measurements, so that no coalition has to be sampled. The
# draws of the explanation hold the whole posterior.

explanation = kpp.explain(
    process, patients[300:400], background=patients[:300], progress=False
)

figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
ax = explanation.plot.beeswarm(probability=0.9, max_features=8, ax=ax)

# %%
# The explanation records how it was computed.

print("exact:", explanation.attrs["exact"])
print("uncertainty:", explanation.attrs["uncertainty"])

# %%
# The draws are joint over all patients, so they answer questions about the sample: with
# which probability is the body mass index (bmi) more important than the blood pressure?

probability = explanation.probability_greater("bmi", "blood pressure", dim="instance")
print(f"P(bmi is more important than blood pressure) = {float(probability):.2f}")

# %%
# Read more in the user guide: :doc:`/how_to/rkhs_shap`.
