"""A Gaussian process of scikit-learn, explained with its posterior
================================================================

You have fitted a ``GaussianProcessRegressor``. kpp converts it exactly, so the Shapley
values come with the posterior of your own model: an interval for each contribution, and
nothing is fitted again.
"""

# %%
# Four measurements of 200 patients, in a pipeline with a scaler.

# sphinx_gallery_tags = ["Shapley values", "Gaussian processes", "scikit-learn"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kpp

jax.config.update("jax_enable_x64", True)
table = load_diabetes(as_frame=True, scaled=False).frame
names = {
    "bmi": "body mass index",
    "bp": "blood pressure",
    "s3": "HDL",
    "s5": "log triglycerides",
}
patients, progress = table[list(names)].rename(columns=names), table["target"]
kernel = 1.0 * RBF(np.full(4, 3.0)) + WhiteKernel(0.5)
model = make_pipeline(
    StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True)
)
model = model.fit(patients[:200], progress[:200])

# %%
# The converted posterior is the model's own, in the units of the patients.

posterior = kpp.as_gp_posterior(model)
difference = np.max(
    np.abs(posterior.mean(patients.to_numpy()) - model.predict(patients))
)
print(f"largest difference of the predictions: {difference:.0e}")

# %%
# With ``covariance="point"`` the values have their exact posterior covariance; nothing
# is sampled.

explanation = kpp.explain(
    model, patients, background=patients[:100], covariance="point", progress=False
)

figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
ax = explanation.plot.scatter("body mass index", color="log triglycerides", ax=ax)

# %%
# Read more in the user guide: :doc:`/how_to/conversion`.
