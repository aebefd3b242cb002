"""The effect of a dose from one table
===================================

Patients who are more ill get higher doses, so a plain regression of the outcome on the
dose is misleading. Given a causal graph, ``kpp_models.causal_effect`` adjusts for the
severity and gives the effect of the dose with an interval.
"""

# sphinx_gallery_tags = ["causal effects", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kpp
from kpp.causal import CausalDAG
from kpp.kernels import RBF
from kpp_models import GPRegression, causal_effect

jax.config.update("jax_enable_x64", True)

# %%
# We simulate 120 patients. The dose helps up to about 2, and severity lowers the health
# and raises the dose.
rng = np.random.default_rng(0)
severity = rng.normal(size=120)
dose = 1.2 + 0.6 * severity + 1.0 * rng.normal(size=120)
health = 2 * np.tanh(dose) - 1.5 * severity + 0.5 * rng.normal(size=120)
patients = pd.DataFrame({"severity": severity, "dose": dose, "health": health})

# %%
# The graph says that severity affects both, and the adjustment set is found from it.
graph = CausalDAG([("severity", "dose"), ("severity", "health"), ("dose", "health")])
doses = np.linspace(0.0, 2.4, 13)
effect = causal_effect(
    jax.random.key(0),
    patients,
    graph,
    treatment="dose",
    outcome="health",
    at=doses,
    inference=kpp.MAP(num_restarts=0, progress=False),
)
table = effect.summary()

# %%
# For comparison, a Gaussian process predicts the health from the dose alone. It answers
# another question: what the health of a patient is who was given this dose, not what
# would happen if all patients got it.
plain = GPRegression(RBF(1.0, 4.0), noise_variance=1.0, mean=health.mean())
plain_fit = plain.fit(
    jax.random.key(0), dose[:, None], health, inference=kpp.MAP(progress=False)
)
association = plain_fit.predict(doses[:, None])["mean"][0, 0]

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
points = axis.scatter(
    dose,
    health,
    c=severity,
    cmap="YlOrBr",
    s=22,
    edgecolor="white",
    lw=0.4,
    vmin=-3,
    vmax=3,
)
axis.plot(
    doses, association, color="#7f8c8d", lw=2, label="regression without adjustment"
)
axis.fill_between(
    doses,
    table["5 %"],
    table["95 %"],
    color="#1f618d",
    alpha=0.3,
    lw=0,
    label="90 % interval",
)
axis.plot(doses, table["mean"], color="#1f618d", lw=2.5, label="effect of the dose")
axis.plot(doses, 2 * np.tanh(doses), "--", color="#d35400", lw=2, label="truth")
axis.set(xlabel="dose", ylabel="health", xlim=(0, 2.4))
axis.legend(frameon=False, fontsize=9)
axis.spines[["top", "right"]].set_visible(False)
figure.colorbar(points, label="severity")
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/treatment_effects`.
