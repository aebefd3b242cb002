"""An explanation in the plots of shap
===================================

If you like the plots of shap, keep them: ``to_shap`` hands an explanation over, with
the bounds of its intervals. What shap has computed can be read in the same way.
"""

# %%
# A Gaussian process classifies the wines of scikit-learn: which of them are Barolo?

# sphinx_gallery_tags = ["Shapley values", "plots"]
import jax
import matplotlib.pyplot as plt
import numpy as np
import shap
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier

import kpp
from kpp_models.estimators import GPClassifier

jax.config.update("jax_enable_x64", True)
wine = load_wine(as_frame=True)
wines = wine.data[
    ["alcohol", "malic_acid", "flavanoids", "color_intensity", "hue", "proline"]
]
wines.columns = ["alcohol", "malic acid", "flavanoids", "color", "hue", "proline"]
barolo = np.where(wine.target == 0, "yes", "no")
process = GPClassifier(random_state=0).fit(wines[::2], barolo[::2])
explanation = kpp.explain(process, wines[1::2], background=wines[::2], progress=False)

# %%
# All plots of shap take the result; the heat map shows every wine as a column.

for_shap = explanation.to_shap(probability=0.9)
figure = plt.figure()
ax = shap.plots.heatmap(for_shap, plot_width=8, show=False)
figure.subplots_adjust(left=0.2)

# %%
# The waterfall of shap draws the intervals as error bars.

figure = plt.figure()
ax = shap.plots.waterfall(for_shap[0], show=False)
figure.set_size_inches(7.0, 4.0)
figure.tight_layout()

# %%
# The way back: TreeSHAP of a random forest in the plots of kpp.

forest = RandomForestClassifier(50, random_state=0).fit(wines[::2], barolo[::2])
by_trees = kpp.Explanation.from_shap(shap.TreeExplainer(forest)(wines[1::2])[:, :, 1])
figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
ax = by_trees.plot.beeswarm(ax=ax)

# %%
# Read more in the user guide: :doc:`/how_to/explanations`, "Explanations of shap and
# shapiq".
