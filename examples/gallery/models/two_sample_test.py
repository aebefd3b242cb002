"""Where two samples differ
========================

Do women and men in a diabetes study differ in body mass and blood pressure? A kernel
two-sample test gives a p-value that is exact for any sample size, and its witness
function shows where one group is more frequent than the other.
"""

# sphinx_gallery_tags = ["kernels"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from kpp.embeddings import two_sample_test
from kpp.kernels import RBF, median_heuristic

jax.config.update("jax_enable_x64", True)

# %%
# The table has 442 patients. scikit-learn does not say which of the two codes of the
# sex means women, so we call them group A and group B.
data = load_diabetes(as_frame=True, scaled=False).data
patients = data[["bmi", "bp"]].to_numpy()
in_a = (data["sex"] == 1).to_numpy()

# %%
# The lengthscales are the median distances between patients. They may not depend on the
# groups, or the p-value would be wrong.
kernel = RBF(median_heuristic(patients))
test = two_sample_test(jax.random.key(0), kernel, patients[in_a], patients[~in_a])
print(f"p-value {test.p_value:.3f}")

# %%
# Where the witness function is red, group A is more frequent.
bmi, pressure = np.meshgrid(np.linspace(17, 43, 80), np.linspace(60, 135, 80))
witness = test.witness(np.column_stack([bmi.ravel(), pressure.ravel()])).reshape(80, 80)
limit = np.abs(witness).max()

figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
colors = axis.contourf(
    bmi, pressure, witness, np.linspace(-limit, limit, 22), cmap="RdBu_r"
)
axis.contour(bmi, pressure, witness, [0.0], colors="white", linewidths=2)
for group, color, label in (
    (in_a, "#b2182b", "group A"),
    (~in_a, "#2166ac", "group B"),
):
    axis.scatter(
        *patients[group].T, color=color, edgecolor="white", lw=0.5, s=20, label=label
    )
axis.set(xlabel="body mass index", ylabel="mean blood pressure")
axis.legend(loc="upper right")
figure.colorbar(colors, label="witness function", ticks=[0.0])
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/embeddings`.
