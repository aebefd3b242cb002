"""Which variables to adjust for
=============================

A causal graph says which variable causes which. From the graph alone, kpp finds the
sets of variables that remove the confounding of a treatment and an outcome, and it
explains why another set does not.
"""

# sphinx_gallery_tags = ["causal graph", "causal effects"]
import matplotlib.pyplot as plt

from kpp.causal import (
    CausalDAG,
    is_adjustment_set,
    minimal_adjustment_sets,
    optimal_adjustment_set,
)
from kpp.plots import causal_graph

# %%
# The question is how a drug changes the blood pressure. The graph is our assumption
# about the world. Income is an unmeasured cause of diet and weight.
graph = CausalDAG(
    [
        ("income", "diet"),
        ("income", "weight"),
        ("diet", "drug"),
        ("drug", "weight"),
        ("weight", "pressure"),
        ("genes", "pressure"),
    ],
    latent=["income"],
)
question = {"treatment": "drug", "outcome": "pressure"}
best = optimal_adjustment_set(graph, **question)

# %%
# The picture shows the treatment in blue, the outcome in orange, and in green the
# adjustment set whose estimate has the smallest variance.
colors = {"drug": "#5dade2", "pressure": "#f0a35e"} | {name: "#7dcea0" for name in best}
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
causal_graph(graph, highlight=colors, ax=axis)
plt.show()

# %%
# The diet alone removes the confounding. The genes do not confound, but they explain a
# part of the pressure, so that adjusting for them too makes the estimate more precise.
for name, sets in {
    "smallest sets": minimal_adjustment_sets(graph, **question),
    "best set": [best],
}.items():
    print(f"{name}:", *(", ".join(sorted(variables)) for variables in sets))

# %%
# It would be an error to adjust for the weight, which carries a part of the effect. The
# result of the check says why.
print(is_adjustment_set(graph, **question, adjusting=["diet", "weight"]))

# %%
# Read more in the user guide: :doc:`/how_to/causal_graphs` and
# :doc:`/how_to/identification`.
