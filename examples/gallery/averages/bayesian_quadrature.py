"""An average from a few evaluations
=================================

A simulator is expensive, and its output is to be averaged over an uncertain input.
Bayesian quadrature needs a few runs only: it learns the output as a function of the
input, and gives the average with an interval.
"""

# sphinx_gallery_tags = ["Gaussian processes", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np

from kpp.embeddings import MeanEmbedding, bayesian_quadrature
from kpp.kernels import RBF
from kpp_models import GPRegression

jax.config.update("jax_enable_x64", True)


# %%
# The input has a skewed distribution, of which we have 2000 draws. With this cheap
# simulator the true average is known.
def simulator(x):
    return np.sin(2 * x) + 0.5 * x


draws = np.random.default_rng(0).gamma(4.0, 0.5, size=2000)
truth = simulator(draws).mean()
kernel = RBF(0.8)
model = GPRegression(kernel, noise_variance=1e-6)

# %%
# We run the simulator at more and more points that are spread over the range of the
# input. A plain average over random inputs, with the same number of runs, has a much
# larger error.
numbers = np.array([4, 6, 8, 10, 12])
runs = {number: np.linspace(0.2, 5.5, number) for number in numbers}
posteriors = {
    number: model.posterior_draw({}, {"x": x[:, None], "y": simulator(x)})
    for number, x in runs.items()
}
averages = [
    bayesian_quadrature(posteriors[number], MeanEmbedding(kernel, draws[:, None]))
    for number in numbers
]
means = np.array([average.mean[0] for average in averages])
half = 1.645 * np.sqrt([average.variance[0] for average in averages])
random_error = simulator(draws).std() / np.sqrt(numbers)

# %%
# On the left is the belief about the simulator after six runs, and on the right the
# belief about the average.
x = np.linspace(0, 6, 150)
belief = posteriors[6].mean(x[:, None])
band = 1.645 * np.sqrt(posteriors[6].variance(x[:, None]))
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
left.hist(
    draws, bins=40, density=True, color="#f0c27b", label="distribution of the input"
)
left.fill_between(x, belief - band, belief + band, color="#1f618d", alpha=0.25, lw=0)
left.plot(x, belief, color="#1f618d", lw=2.5, label="belief after six runs")
left.plot(x, simulator(x), "--", color="#d35400", lw=2, label="simulator")
left.plot(runs[6], simulator(runs[6]), "o", color="black")
left.set(xlabel="input", ylabel="output", xlim=(0, 6), ylim=(-1.5, 5.6))
left.legend(frameon=False, fontsize=9, loc="upper left")

right.fill_between(
    numbers,
    truth - random_error,
    truth + random_error,
    color="#bdc3c7",
    alpha=0.5,
    lw=0,
)
right.annotate("error of random runs", (7, truth + 0.33), color="#5f6a6a")
right.errorbar(
    numbers,
    means,
    half,
    fmt="o",
    color="#1f618d",
    capsize=4,
    lw=2,
    label="90 % interval",
)
right.axhline(truth, color="#d35400", ls="--", lw=2, label="truth")
right.set(xlabel="number of runs", ylabel="average")
right.legend(frameon=False, fontsize=9, loc="lower right")
plt.show()

# %%
# Read more in the user guide: :doc:`/explanation/quadrature`.
