r"""The Plackett-Luce law of rankings and choices, given the utilities of all items.

.. math:: P(\text{order } s_1, \ldots, s_R \text{ of the set } S) = \prod_{r=1}^R
    \frac{e^{f(s_r)}}{\sum_{s \in S \setminus \{s_1, \ldots, s_{r-1}\}} e^{f(s)}}

It is the law of the order of the utilities plus independent standard Gumbel noise. With R = 1 it is the law of the best
item of a set, and with two items the logistic law of a match.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from kpp.typing import AnyArray, RngKey


class PlackettLuce(eqx.Module):
    """The law of m rankings of sets of at most L items, of which at most the best R are in order."""

    candidates: Int[Array, "m L"]  # the item numbers of each set, -1 beyond their number
    num_ranked: Int[Array, " m"]  # how many items of each set are in order
    order: Any  # the positions of the best, second-best, ... among the candidates, (m, R), -1 beyond; None if unknown
    num_places: int = eqx.field(static=True)  # R

    def observe(self, order: AnyArray) -> PlackettLuce:
        """Return the law of these orders, (m, R)."""
        return PlackettLuce(self.candidates, self.num_ranked, jnp.asarray(order, int), self.num_places)

    def log_density(self, f: Float[Array, " n"]) -> Float[Array, " m"]:
        """Return the log probability of every ranking, given the utilities of the n items."""
        return self.log_density_of_sets(self.utilities(f))

    def log_density_of_sets(self, utilities: Float[Array, "m L"]) -> Float[Array, " m"]:
        """Return the log probability of every ranking, given the utilities of its own items."""
        logits = self._logits(utilities)
        position = jnp.maximum(self.order, 0)[:, :, None]
        chosen = jnp.take_along_axis(logits, position, axis=2)[:, :, 0] - logsumexp(logits, axis=2)
        return jnp.sum(jnp.where(self.order >= 0, chosen, 0.0), axis=1)

    def gradient(self, f: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the gradient of the sum of the log probabilities."""
        return jax.grad(lambda f: jnp.sum(self.log_density(f)))(f)

    def curvature(self, f: Float[Array, " n"]) -> Float[Array, "n n"]:
        """Return the negated second derivative of the sum of the log probabilities, positive semi-definite."""
        blocks, at = self.curvature_of_sets(self.utilities(f)), self.candidates
        return jnp.zeros((f.shape[0],) * 2, f.dtype).at[at[:, :, None], at[:, None, :]].add(blocks)

    def curvature_of_sets(self, utilities: Float[Array, "m L"]) -> Float[Array, "m L L"]:
        r"""Return the negated second derivatives of the log probabilities with respect to the items of each set.

        They are :math:`\sum_r (\mathrm{diag}(p_r) - p_r p_r^\top)`, p_r being the probabilities of the r-th choice.
        """
        known = (self.order >= 0)[:, :, None]
        chance = jnp.where(known, jax.nn.softmax(self._logits(utilities), axis=2), 0.0)
        diagonal = jax.vmap(jnp.diag)(jnp.sum(chance, axis=1))
        return diagonal - jnp.einsum("mrl,mrk->mlk", chance, chance)

    def draw(self, rng_key: RngKey, f: Float[Array, " n"]) -> Int[Array, "m R"]:
        """Draw the order of every set: the order of its utilities with Gumbel noise."""
        utilities = self.utilities(f)
        noisy = utilities + jax.random.gumbel(rng_key, utilities.shape, utilities.dtype)
        order = jnp.argsort(-jnp.where(self._present, noisy, -jnp.inf), axis=1)[:, : self.num_places]
        return jnp.where(jnp.arange(self.num_places)[None] < self.num_ranked[:, None], order, -1)

    def utilities(self, f: Float[Array, " n"]) -> Float[Array, "m L"]:
        """Return the utilities of the items of each set; those of no item are not to be used."""
        return jnp.where(self._present, f[self.candidates], 0.0)

    @property
    def _present(self) -> Bool[Array, "m L"]:
        return self.candidates >= 0

    def _logits(self, utilities: Float[Array, "m L"]) -> Float[Array, "m R L"]:
        """Return the utilities of the items among which the r-th one is chosen, and -inf for all others."""
        places = jnp.arange(utilities.shape[1])[None, None]
        chosen = (self.order[:, :, None] == places) & (self.order >= 0)[:, :, None]
        taken = jnp.cumsum(chosen, axis=1) - chosen > 0
        # Without a choice all items stay, so that no sum over items is empty.
        free = self._present[:, None, :] & (~taken | (self.order < 0)[:, :, None])
        return jnp.where(free, utilities[:, None, :], -jnp.inf)
