"""A causal effect from two data sets
==================================

A trial shows how a dose changes a blood value, and another study shows how the blood
value changes the health. Nobody measured dose and health together. BayesIMP joins both
studies, and says from which of them its uncertainty comes.
"""

# sphinx_gallery_tags = ["causal effects", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist

import kpp
from kpp.kernels import RBF
from kpp_models import BayesIMP, CausalLink, InterventionData

jax.config.update("jax_enable_x64", True)

# %%
# In the first study, age affects both the dose and the blood value, so it must be
# adjusted for. In the second study, all blood values were above -0.7, so nothing was
# learned about lower values.
rng = np.random.default_rng(1)
age = rng.normal(size=(120, 1))
dose = age + rng.normal(size=(120, 1))
blood = np.sin(dose) - 0.3 * age + 0.1 * rng.normal(size=(120, 1))

other_blood = rng.uniform(-0.7, 2.0, size=(40, 1))
health = 1 - (other_blood[:, 0] - 0.5) ** 2 + 0.1 * rng.normal(size=40)

# %%
# The link is the model of the first study, and it averages over the age. Both studies
# are fitted together.
prior, noise = dist.LogNormal(0.0, 1.0), dist.LogNormal(-3.0, 1.5)
link = CausalLink(
    RBF(prior), None, noise, adjustment="backdoor", adjusting_kernel=RBF(prior)
)
model = BayesIMP(link, noise_variance=noise, amplitude=prior, mean=health.mean())
study = InterventionData.create(dose, blood, adjusting=age)
fit = model.fit(
    jax.random.key(0),
    study,
    health,
    mediators=other_blood,
    inference=kpp.MAP(num_restarts=0, progress=False),
    num_prior_samples=0,
)

# %%
# The effect is the expected health if everyone gets the dose. In this simulation the
# truth is known. Near the dose -1.6 the blood value is low, and the variance from the
# second study is large.
doses = np.linspace(-2.8, 3.2, 120)
effect = fit.predict(doses[:, None]).isel(chain=0, draw=0)
half = 1.645 * np.sqrt(effect["latent_variance"])
truth = 1 - (np.sin(doses) - 0.5) ** 2 - 0.3**2 - 0.1**2

figure, (axis, parts) = plt.subplots(
    2, 1, figsize=(6, 5), sharex=True, height_ratios=[2.2, 1], layout="constrained"
)
axis.fill_between(
    doses,
    effect["mean"] - half,
    effect["mean"] + half,
    color="#1f618d",
    alpha=0.25,
    lw=0,
    label="90 %",
)
axis.plot(doses, effect["mean"], color="#1f618d", lw=2.5, label="BayesIMP")
axis.plot(doses, truth, "--", color="#d35400", lw=2, label="truth")
axis.plot(
    dose,
    np.full_like(dose, 0.03),
    "|",
    color="black",
    ms=10,
    transform=axis.get_xaxis_transform(),
)
axis.set(ylabel="health, if all get the dose", xlim=(-2.8, 3.2))
axis.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.08))

names = {
    "variance_data1": "first study",
    "variance_data2": "second study",
    "variance_interaction": "both together",
}
colors = ["#85c1e9", "#f5b041", "#aab7b8"]
parts.stackplot(
    doses, *(effect[name] for name in names), labels=names.values(), colors=colors
)
parts.set(xlabel="dose (marks: the doses of the first study)", ylabel="variance")
parts.legend(frameon=False, loc="upper right", fontsize=9)
for each in (axis, parts):
    each.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/causal_effects`.
