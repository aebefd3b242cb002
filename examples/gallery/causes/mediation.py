"""How does a treatment work?
==========================

A training of an hour improves sleep. A part of the effect goes through less stress, and
the rest does not. Mediation divides the effect, with an interval for each part.
"""

# sphinx_gallery_tags = ["causal effects", "causal graph", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kpp
from kpp_models import mediation

jax.config.update("jax_enable_x64", True)

# %%
# Stress costs sleep, and the training reduces it. The training also helps in other
# ways, and older people train more often.
rng = np.random.default_rng(1)
age = rng.normal(size=150)
training = rng.uniform(size=150) < 1 / (1 + np.exp(-age))
stress = 0.5 * age - 0.8 * training + 0.6 * rng.normal(size=150)
sleep = 7.0 + 0.4 * training - stress - 0.3 * age + 0.4 * rng.normal(size=150)
table = pd.DataFrame(
    {"age": age, "training": training, "stress": stress, "sleep": sleep}
)

# %%
# The graph says what causes what. Each variable on a path from the training to sleep
# gets its own Gaussian process.
graph = {
    "age": ["training", "stress", "sleep"],
    "training": ["stress", "sleep"],
    "stress": ["sleep"],
}
effects = mediation(
    jax.random.key(0),
    table,
    graph,
    treatment="training",
    mediators="stress",
    outcome="sleep",
    inference=kpp.Laplace(num_samples=30, num_restarts=0, progress=False),
).dataset

# %%
# The natural direct effect keeps the stress that a person has without the training. The
# natural indirect effect changes the stress only. Here the total effect is their sum,
# because the training does not change how much the stress matters.
parts = {"total": 1.2, "natural_direct": 0.4, "natural_indirect": 0.8}
figure, axis = plt.subplots(figsize=(7, 2.5), layout="constrained")
for place, (name, truth) in enumerate(parts.items()):
    draws = effects[name].to_numpy().ravel()
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95])
    axis.plot([low, high], [place, place], color="C0", lw=3)
    axis.plot(middle, place, "o", color="C0", label="90 %" if place == 0 else None)
    axis.plot(truth, place, "kx", label="truth" if place == 0 else None)
axis.axvline(0.0, color="gray", lw=0.8)
axis.set_yticks(range(len(parts)), [name.replace("_", " ") for name in parts])
axis.invert_yaxis()
axis.set_xlabel("hours of sleep")
axis.legend()

# %%
# Read more in the user guide: :doc:`/how_to/mediation`.
