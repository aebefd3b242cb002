"""The best treatment in few trials
================================

Each trial of a treatment is expensive. Data from two earlier studies tell where a good
treatment is likely to be, and the search begins there. On average it needs fewer trials
than a search that starts from nothing.
"""

# sphinx_gallery_tags = ["causal effects", "next experiment"]
import jax
import matplotlib.pyplot as plt
import numpy as np

import kpp
from kpp.kernels import RBF
from kpp.plots import regret
from kpp_models import BayesIMP, CausalLink, InterventionData
from kpp_optimization import FitPrior, KernelPrior, optimize, regrets, replicate

jax.config.update("jax_enable_x64", True)

# %%
# The first study has doses and blood values, the second one blood values and costs. The
# aim is the dose with the lowest expected cost.
rng = np.random.default_rng(0)
dose = rng.normal(0.0, 1.5, size=(60, 1))
blood = np.sin(dose) + 0.1 * rng.normal(size=(60, 1))
other_blood = rng.uniform(-2.0, 2.0, size=(40, 1))
cost = other_blood[:, 0] ** 2 - other_blood[:, 0] + 0.1 * rng.normal(size=40)

model = BayesIMP(
    CausalLink(RBF(0.8), RBF(1.0), noise_variance=0.02), noise_variance=0.01
)
studies = InterventionData.create(dose, blood)
fit = model.fit(
    jax.random.key(0),
    studies,
    cost,
    mediators=other_blood,
    inference=kpp.MAP(progress=False),
)


# %%
# A trial measures the expected cost of a dose. We search twice: with the earlier
# studies, and with a Gaussian process that knows nothing before the first trial.
def trial(point):
    return np.sin(point[0]) ** 2 + 0.01 - np.sin(point[0])


doses = np.linspace(-3, 3, 61)
priors = {
    "with the earlier studies": FitPrior(fit),
    "from nothing": KernelPrior(RBF(0.8, cost.var()), cost.mean()),
}
searches = {
    name: optimize(jax.random.key(1), trial, doses[:, None], prior, num_queries=4)
    for name, prior in priors.items()
}

# %%
# The bands are the belief before the first trial, and the numbers show the order of the
# trials.
figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
circle = {"boxstyle": "circle", "facecolor": "black", "edgecolor": "none", "pad": 0.2}
for axis, (name, prior), color in zip(
    axes, priors.items(), ["#1f618d", "#7f8c8d"], strict=True
):
    mean, covariance = prior.moments(doses[:, None])
    half = 1.645 * np.sqrt(np.diagonal(covariance))
    axis.fill_between(
        doses,
        mean - half,
        mean + half,
        color=color,
        alpha=0.25,
        lw=0,
        label="belief, 90 %",
    )
    axis.plot(doses, trial([doses]), "--", color="#d35400", lw=2, label="true cost")
    for number, (place, value) in enumerate(
        searches[name].queries[["x0", "value"]].to_numpy(), start=1
    ):
        axis.text(
            place,
            value,
            number,
            ha="center",
            va="center",
            color="white",
            fontsize=9,
            bbox=circle,
        )
    axis.set_title(name, fontsize=11)
    axis.set(xlabel="dose", xlim=(-3.2, 3.2), ylim=(-1.0, 2.8))
    axis.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("expected cost")
axes[0].legend(frameon=False, loc="upper right")
plt.show()


# %%
# One search may be lucky, so we repeat both ten times. The regret is the cost of the
# best dose so far minus the lowest possible cost.
def search_with_both(rng_key, number):
    return {
        name: optimize(rng_key, trial, doses[:, None], prior, num_queries=6)
        for name, prior in priors.items()
    }


repeated = replicate(jax.random.key(2), search_with_both, 10)
table = regrets(
    {name: [both[name] for both in repeated] for name in priors}, trial([doses])
)
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
regret(table, ax=axis)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/causal_optimization`.
