"""Preferences without a ranking
=============================

Rock beats scissors, scissors beat paper, and paper beats rock: no ranking describes
this. A generalized preferential Gaussian process (GPGP) learns such cycles from
matches, where a model with one utility per player must fail.
"""

# sphinx_gallery_tags = ["preferences", "Gaussian processes"]
import jax
import matplotlib.pyplot as plt
import numpy as np

import kpp
from kpp.kernels import RBF
from kpp.preferences import Matches
from kpp_models import GPGP, PGP, count_cycles, preference_matrix

jax.config.update("jax_enable_x64", True)

# %%
# There are 30 players of three styles, and each style usually beats the next one. The
# features of a player are two noisy measurements of the style. Only a quarter of all
# pairs have met.
rng = np.random.default_rng(0)
style = np.repeat([0, 1, 2], 10)
centers = np.array([[0.0, 2.0], [-2.0, -1.0], [2.0, -1.0]])
players = centers[style] + 0.7 * rng.normal(size=(30, 2))

pairs = np.array([(i, j) for i in range(30) for j in range(i) if style[i] != style[j]])
first, second = rng.permutation(pairs)[: len(pairs) // 4].T
chance = np.where((style[second] - style[first]) % 3 == 1, 0.9, 0.1)
matches = Matches.create(
    players, first, second, (rng.uniform(size=len(first)) < chance).astype(int)
)

# %%
# ``PGP`` gives each player a utility, so its preferences form a ranking. ``GPGP``
# allows any preference of one player over another.
models = {
    "with a utility (PGP)": PGP(4.0 * RBF(1.5)),
    "general (GPGP)": GPGP(4.0 * RBF(1.5)),
}
predicted = {
    name: preference_matrix(
        model.fit(
            jax.random.key(0),
            matches,
            inference=kpp.MAP(progress=False),
            num_prior_samples=0,
        ),
        players,
    )
    for name, model in models.items()
}

# %%
# Each picture has the probability that the player of the row beats the player of the
# column. The general model finds the cycle of the three styles; the model with a
# utility finds almost nothing.
figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.7), sharey=True, layout="constrained")
for axis, (name, found) in zip(axes, predicted.items(), strict=True):
    picture = axis.imshow(
        found["probability"].mean(("chain", "draw")), cmap="RdBu_r", vmin=0, vmax=1
    )
    cycles = int(count_cycles(found["mean"].values[0, 0]))
    axis.set_title(f"{name}: {cycles} cycles", fontsize=11)
    axis.set(xticks=[4.5, 14.5, 24.5], xticklabels=["rock", "scissors", "paper"])
    axis.set(yticks=[4.5, 14.5, 24.5], yticklabels=["rock", "scissors", "paper"])
    axis.hlines([9.5, 19.5], -0.5, 29.5, color="black", lw=0.8)
    axis.vlines([9.5, 19.5], -0.5, 29.5, color="black", lw=0.8)
    axis.tick_params(length=0)
figure.colorbar(picture, ax=axes, label="P(row beats column)", shrink=0.9)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/preferences`.
