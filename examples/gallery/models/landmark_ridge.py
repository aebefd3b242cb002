"""How many landmarks are enough
=============================

Kernel ridge regression with all rows needs a matrix that is too large for most tables.
With landmarks the function is spanned by a few points, so that one pass over the rows
is enough. The picture shows how many landmarks a table needs.
"""

# sphinx_gallery_tags = ["large data", "kernels"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.linear_model import LinearRegression

from kpp.kernels import RBF
from kpp_models import LandmarkRidge

jax.config.update("jax_enable_x64", True)

# %%
# The table has 20,000 rows, so the matrix of all rows would take 3.2 GB. The outcome is
# a curved function of five inputs plus noise with standard deviation 1.
inputs, outcome = make_friedman1(22_000, n_features=5, noise=1.0, random_state=0)
x, y = inputs[:20_000], outcome[:20_000]
x_test, y_test = inputs[20_000:], outcome[20_000:]


def error(predictions):
    return np.sqrt(np.mean((predictions - y_test) ** 2))


# %%
# The landmarks are random rows. The regularization is chosen among three values by rows
# that are held out, which costs nothing.
numbers = [10, 20, 40, 80, 160, 320]
errors = []
for number in numbers:
    model = LandmarkRidge(
        RBF(0.7), [1e-7, 1e-6, 1e-5], landmarks=number, progress=False
    )
    errors.append(error(model.fit(jax.random.key(0), x, y).function(x_test)))

# %%
# No prediction can have a smaller error than the noise. With 320 landmarks, little is
# left to gain.
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
line = error(LinearRegression().fit(x, y).predict(x_test))
axis.axhline(line, color="#7f8c8d", ls="--", lw=1.5)
axis.annotate(
    "linear regression",
    (320, line),
    (0, 4),
    textcoords="offset points",
    ha="right",
    color="#7f8c8d",
)
axis.axhline(1.0, color="black", ls=":", lw=1.5)
axis.annotate("noise", (10, 1.0), (0, 4), textcoords="offset points")
axis.plot(numbers, errors, "o-", color="#1f618d", lw=2.5, ms=8)
axis.set(
    xscale="log",
    xlabel="number of landmarks",
    ylabel="error on new rows",
    ylim=(0.8, None),
)
axis.set_xticks(numbers, numbers)
axis.minorticks_off()
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Read more in the user guide: :doc:`/reference/scale` and :doc:`/how_to/features`.
