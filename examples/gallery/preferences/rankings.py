"""What people like, from their rankings
=====================================

People taste a few lemonades and put them in order. The Plackett-Luce model with a
Gaussian process finds from these rankings how the liking depends on the sugar, and how
likely each lemonade is to be chosen.
"""

# sphinx_gallery_tags = ["preferences", "Gaussian processes"]
import jax
import matplotlib.pyplot as plt
import numpy as np

import kpp
from kpp.kernels import RBF
from kpp.preferences import Rankings
from kpp_models import RankingGP, choice_probabilities, sample_preferences

jax.config.update("jax_enable_x64", True)

# %%
# There are 12 lemonades, and each of 40 people ranks 4 of them. The true liking is
# highest near 6 % sugar. Everyone's taste differs from it by noise of the Gumbel law,
# which is the assumption of Plackett and Luce.
rng = np.random.default_rng(1)
sugar = np.linspace(0, 12, 12)


def true_liking(sugar):
    return 3.5 * np.exp(-(((sugar - 6) / 2.5) ** 2)) + 0.1 * sugar


orders = []
for _ in range(40):
    tasted = rng.permutation(12)[:4]
    liking = true_liking(sugar[tasted]) + rng.gumbel(size=4)
    orders.append(tasted[np.argsort(-liking)])  # the best first

# %%
# The kernel says that the liking changes smoothly with the sugar, by about 2 (its
# standard deviation).
lemonades = sugar[:, None]
rankings = Rankings.create(lemonades, orders)
model = RankingGP(RBF(lengthscale=3.0, variance=4.0))
fit = model.fit(
    jax.random.key(0), rankings, inference=kpp.MAP(progress=False), num_prior_samples=0
)

# %%
# Rankings tell only differences of the liking, so we show it relative to its mean over
# the lemonades. The bars are the probabilities that a lemonade is chosen from all 12.
differences = sample_preferences(fit, jax.random.key(1), lemonades, 500)
lower, middle, upper = np.quantile(differences.mean(axis=-1), [0.05, 0.5, 0.95], axis=0)
chosen = choice_probabilities(fit, lemonades)[0, 0]

figure, (axis, bars) = plt.subplots(
    2, 1, figsize=(6, 4.6), sharex=True, height_ratios=[2, 1], layout="constrained"
)
axis.fill_between(
    sugar, lower, upper, color="#1f618d", alpha=0.25, lw=0, label="90 % interval"
)
axis.plot(
    sugar, middle, "o-", color="#1f618d", lw=2.5, label="liking from the rankings"
)
axis.plot(
    sugar,
    true_liking(sugar) - true_liking(sugar).mean(),
    "--",
    color="#d35400",
    lw=2,
    label="truth",
)
axis.set_ylabel("liking")
axis.legend(frameon=False, fontsize=9)
bars.bar(sugar, chosen, width=0.8, color="#d35400", alpha=0.7)
bars.set(xlabel="sugar [%]", ylabel="chosen")
for each in (axis, bars):
    each.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/rankings`, "Rankings and choices".
