"""The best recipe by duels
========================

Nobody can say how good a coffee is on a scale, but everybody can say which of two is
better. The search asks few such questions, and each one is chosen where the answer is
expected to help most.
"""

# sphinx_gallery_tags = ["preferences", "next experiment"]
import jax
import matplotlib.pyplot as plt
import numpy as np

import kpp
from kpp.kernels import RBF
from kpp_models import PGP, sample_preferences
from kpp_optimization import search_by_duels

jax.config.update("jax_enable_x64", True)

# %%
# The candidates are nine ratios of water to coffee. The person who tastes likes the
# ratio 15 best, and always prefers the coffee that is nearer to it.
ratios = np.linspace(10, 20, 9)


def taste(first, second):
    return abs(first[0] - 15) < abs(second[0] - 15)


# %%
# After each duel the preferences are fitted again, here by a Gaussian process with one
# utility for each candidate.
def believe(key, matches):
    fit = PGP(RBF(2.5, 9.0)).fit(
        key, matches, inference=kpp.MAP(progress=False), num_prior_samples=0
    )
    return sample_preferences(fit, key, matches, 200)


search = search_by_duels(
    jax.random.key(0),
    taste,
    ratios[:, None],
    believe,
    acquisition="expected-best",
    num_duels=10,
)

# %%
# The belief about the utility, with intervals, is on the left. Each line on the right
# is a duel, with a dot at the winner. The first three duels are random.
utility = believe(jax.random.key(1), search.matches).mean(axis=-1)
lower, middle, upper = np.quantile(utility, [0.05, 0.5, 0.95], axis=0)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.6), layout="constrained")
left.axvline(15, color="#d35400", ls="--", lw=2, label="best ratio")
left.errorbar(
    ratios,
    middle,
    [middle - lower, upper - middle],
    fmt="o",
    color="#1f618d",
    capsize=4,
    lw=2,
    ms=7,
)
left.set(xlabel="ratio of water to coffee", ylabel="utility")
left.legend(frameon=False, loc="lower right")

for row in search.duels.itertuples():
    winner = row.first if row.won else row.second
    right.plot(
        ratios[[row.first, row.second]], [row.duel, row.duel], color="#95a5a6", lw=2
    )
    right.plot(ratios[winner], row.duel, "o", color="#1f618d", ms=8)
right.axvline(15, color="#d35400", ls="--", lw=2)
right.set(
    xlabel="ratio of water to coffee",
    ylabel="duel",
    xlim=left.get_xlim(),
    ylim=(10.5, 0.5),
    yticks=range(1, 11),
)
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/rankings`, "The best of some candidates,
# by duels".
