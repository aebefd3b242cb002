"""What would another policy bring?
================================

One data set shows doses and a blood value, and another one the blood value and the
recovery. This example asks which rule for the dose is best, although no recovery was
seen under any dose.
"""

# sphinx_gallery_tags = ["causal effects", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np

import kpp
from kpp.kernels import RBF
from kpp_models import BayesIMP, CausalLink, InterventionData, off_policy_value

jax.config.update("jax_enable_x64", True)

# %%
# Severe cases get higher doses, and the severity changes the blood value, too. The
# recovery is best at a blood value of 0.
rng = np.random.default_rng(0)


def blood_value(dose, severity):
    return np.sin(dose) - 0.5 * severity + 0.1 * rng.normal(size=dose.shape)


severity = rng.normal(size=(80, 1))
dose = 0.8 * severity + 0.8 * rng.normal(size=(80, 1))
first = InterventionData.create(dose, blood_value(dose, severity), adjusting=severity)
blood = rng.uniform(-2.0, 2.0, size=(50, 1))
recovery = 2.0 - blood[:, 0] ** 2 + 0.1 * rng.normal(size=50)

# %%
# `BayesIMP` joins the two data sets, and both stay uncertain.
link = CausalLink(
    RBF(1.0), None, 0.02, adjustment="backdoor", adjusting_kernel=RBF(1.0), width=3.0
)
fit = BayesIMP(link, noise_variance=0.02).fit(
    jax.random.key(0),
    first,
    recovery,
    mediators=blood,
    inference=kpp.MAP(progress=False),
    num_prior_samples=0,
)

# %%
# A policy sets the dose of each patient. The last one adapts it to the severity so that
# the blood value stays near 0.
policies = {
    "as observed": lambda dose, severity: dose,
    "half of the dose": lambda dose, severity: dose / 2,
    "always 0": lambda dose, severity: np.zeros_like(dose),
    "by severity": lambda dose, severity: np.arcsin(np.clip(severity / 2, -1, 1)),
}
treatments = {name: rule(dose, severity) for name, rule in policies.items()}
value = off_policy_value(fit, treatments).isel(chain=0, draw=0)

# %%
# The truth is a mean over 100,000 new patients.
many = rng.normal(size=(100_000, 1))
usual = 0.8 * many + 0.8 * rng.normal(size=many.shape)
truth = [
    float(np.mean(2.0 - blood_value(rule(usual, many), many) ** 2))
    for rule in policies.values()
]
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
places = np.arange(len(policies))
axis.errorbar(
    value["mean"],
    places,
    xerr=1.645 * np.sqrt(value["latent_variance"]),
    fmt="o",
    capsize=3,
    label="90 %",
)
axis.plot(truth, places, "kx", label="truth")
axis.set_yticks(places, list(policies))
axis.invert_yaxis()
axis.set_xlabel("expected recovery")
axis.legend()

# %%
# Read more in the user guide: :doc:`/how_to/causal_effects`.
