"""An effect under all graphs that the data allow
==============================================

From a table alone, an algorithm learns a class of causal graphs (a CPDAG) and not one
graph. ``kpp_models.causal_effect`` takes the class, and gives the effect under each of
its graphs, with intervals.
"""

# sphinx_gallery_tags = ["causal effects", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kpp
from kpp.causal import CPDAG, CausalDAG
from kpp_models import causal_effect

jax.config.update("jax_enable_x64", True)

# %%
# In truth, health raises both exercise and mood, and exercise raises sleep and mood.
rng = np.random.default_rng(3)
health = rng.normal(size=200)
exercise = 0.8 * health + 0.6 * rng.normal(size=200)
sleep = 0.5 * exercise + 0.8 * rng.normal(size=200)
mood = 0.5 * exercise + 0.5 * sleep + 0.6 * health + 0.5 * rng.normal(size=200)
table = pd.DataFrame(
    {"health": health, "exercise": exercise, "sleep": sleep, "mood": mood}
)
truth = CausalDAG(
    {
        "health": ["exercise", "mood"],
        "exercise": ["sleep", "mood"],
        "sleep": ["mood"],
    }
)

# %%
# The class of this graph leaves two edges open. With many rows, an algorithm such as PC
# would return it.
learned = CPDAG.of(truth)
print(learned)

# %%
# One call estimates the effect under all graphs of the class. They have three sets of
# parents of exercise, so there are three fits.
effects = causal_effect(
    jax.random.key(0),
    table,
    learned,
    treatment="exercise",
    outcome="mood",
    at=[-0.5, 0.5],
    inference=kpp.MAP(num_restarts=0, progress=False),
)
print(effects.agreement(0.5, -0.5))
found = effects.table(0.5, -0.5)

# %%
# All graphs say that exercise raises the mood, but not by how much. The last interval
# is the mixture over the graphs.
figure, axis = plt.subplots(figsize=(6.4, 2.8), layout="constrained")
for place, (name, row) in enumerate(found.iterrows()):
    color = "#d35400" if name == "all" else "#1f618d"
    axis.plot([row["5 %"], row["95 %"]], [place, place], color=color, lw=3, alpha=0.5)
    axis.plot(row["mean"], place, "o", color=color)
causes = [f"causes of exercise: {names or 'none'}" for names in found["parents"][:-1]]
axis.set_yticks(range(len(found)), [*causes, "all graphs"])
axis.axvline(0.75, color="0.3", ls="--", lw=1, label="truth")
axis.axvline(0.0, color="0.8", lw=1)
axis.invert_yaxis()
axis.set_xlabel("effect of one more unit of exercise, with 90 % intervals")
axis.legend(frameon=False, loc="upper left")
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/several_graphs`.
