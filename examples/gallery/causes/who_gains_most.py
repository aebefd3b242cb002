"""Who gains most?
===============

A treatment helps some patients and may harm others. The effect in each row, with its
interval, says for whom it is sure to help. The gain curve says how well a score finds
them, if only a part of the patients can be treated.
"""

# sphinx_gallery_tags = ["causal effects", "causal graph", "intervals"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kpp
from kpp.causal import CausalDAG
from kpp_models import causal_effect, rank_weighted_effect

jax.config.update("jax_enable_x64", True)

# %%
# The treatment helps most at a severity near 1 and harms mild cases. Severe cases are
# treated more often. The age changes the outcome but not the effect.
rng = np.random.default_rng(3)
severity, age = rng.normal(size=(2, 200))
treated = rng.uniform(size=200) < 1 / (1 + np.exp(-0.7 * severity))
truth = 2 * np.exp(-0.5 * (severity - 1) ** 2) - 0.7
outcome = treated * truth - severity + 0.5 * age + 0.4 * rng.normal(size=200)
table = pd.DataFrame(
    {"severity": severity, "age": age, "treated": treated, "outcome": outcome}
)

# %%
# The adjustment set comes from the graph. `by_row=True` adds the effect in each row.
causes = [("severity", "treated"), ("severity", "outcome"), ("age", "outcome")]
effect = causal_effect(
    jax.random.key(0),
    table,
    CausalDAG([*causes, ("treated", "outcome")]),
    treatment="treated",
    outcome="outcome",
    inference=kpp.MAP(num_restarts=0, progress=False),
    by_row=True,
)
of_rows = effect.contrast(1.0, 0.0, by_row=True)
low, mean, high = of_rows.quantile([0.05, 0.5, 0.95], ("chain", "draw")).to_numpy()

# %%
# A score decides who is treated first. The estimated effect is a good score, and the
# severity alone a poorer one, because the most severe cases gain less again.
scores = {"estimated effect": mean, "severity": severity, "age": age}
gains = {
    name: rank_weighted_effect(jax.random.key(1), of_rows, score)
    for name, score in scores.items()
}

# %%
# Left: the intervals hold the true effect in four of five rows; near its peak the
# estimate is a little too low. Right: how much larger the effect is among those who are
# treated first than in all. The age says nothing, so its band holds 0.
figure, (rows, curve) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
order = np.argsort(severity)
rows.fill_between(severity[order], low[order], high[order], alpha=0.25, label="90 %")
rows.plot(severity, mean, ".", ms=4, label="effect in each row")
rows.plot(severity[order], truth[order], "k--", label="truth")
rows.axhline(0.0, color="gray", lw=0.8)
rows.set(xlabel="severity", ylabel="effect on the outcome")
rows.legend()

for name, gain in gains.items():
    below, center, above = gain["toc"].quantile([0.05, 0.5, 0.95], ("chain", "draw"))
    line = curve.plot(gain["share"], center, label=name)
    color = line[0].get_color()
    curve.fill_between(gain["share"], below, above, color=color, alpha=0.15, lw=0)
curve.axhline(0.0, color="gray", lw=0.8)
curve.set(xlabel="share that is treated", ylabel="gain over treating at random")
curve.legend()

# %%
# Read more in the user guide: :doc:`/how_to/effects_of_rows`.
