"""What would have happened to this patient?
=========================================

A patient took a low dose and is not well. How would she be with a higher dose? That is
a question about her, and not about the average patient: what we know of her says more
than her age. A structural model keeps her noise, and changes the dose only.
"""

# sphinx_gallery_tags = ["causal graph", "causal effects"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist

import kpp
from kpp.causal import CausalDAG
from kpp.gp import GaussianLikelihood
from kpp_models import LinearMechanism, StructuralModel

jax.config.update("jax_enable_x64", True)

# %%
# Age lowers the dose that doctors give, and health. The dose improves health by 0.8 per
# unit.
rng = np.random.default_rng(0)
age = rng.normal(size=80)
dose = -0.6 * age + 0.8 * rng.normal(size=80)
health = 0.8 * dose - 0.5 * age + 1.0 * rng.normal(size=80)
table = {"age": age, "dose": dose, "health": health}
graph = CausalDAG([("age", "dose"), ("age", "health"), ("dose", "health")])

# %%
# All mechanisms are linear, with weak priors. The posterior holds their coefficients.
noise = GaussianLikelihood(noise_variance=dist.InverseGamma(2.0, 1.0))
model = StructuralModel(graph, default=LinearMechanism(likelihood=noise))
inference = kpp.NUTS(num_samples=200, num_chains=1, progress=False)
posterior = inference.run(jax.random.key(0), model, {"table": table}).samples

# %%
# The patient has a mean age, and is worse than her age and her dose suggest. We ask
# about her with a dose of 1, and about any patient of her age with this dose.
patient = {"age": [0.0], "dose": [-1.0], "health": [-2.5]}
hers = model.counterfactual(
    jax.random.key(1), posterior, table, patient, do={"dose": 1.0}
)
anyone = model.draw(
    jax.random.key(2), posterior, table, num_rows=20, do={"age": 0.0, "dose": 1.0}
)

figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
for found, color, label in (
    (anyone, "#bfc9ca", "any patient of her age, dose 1"),
    (hers, "#33658a", "this patient, had the dose been 1"),
):
    values = found["health"].to_numpy().ravel()
    ax.hist(values, bins=25, density=True, color=color, alpha=0.8, label=label)
ax.axvline(-2.5, color="black", ls="--", label="as she is")
ax.axvline(-2.5 + 2 * 0.8, color="#c8553d", label="the truth for her")
ax.set(xlabel="health", ylabel="density")
ax.legend(loc="upper right")
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/structural_models`.
