r"""The law of Shapley values of preferences under the posterior of a Gaussian process.

Values are linear in the preference function. With the weighted imputations of an item,

.. math:: m_S(a) = \sum_u w_u(a, S)\, k\bigl((a_S, z_{u, S^c}), \cdot\bigr), \qquad
    M_{ST}(a, b) = \langle m_S(a), m_T(b) \rangle,

the prior covariance of the values of two coalitions at two duels is

.. math:: \mathrm{Cov}(v_S(a, a'), v_T(b, b')) = M_{ST}(a, b)\, M_{ST}(a', b') - M_{ST}(a, b')\, M_{ST}(a', b)

for `GeneralizedPreferential`, and a sum of four entries of M for `Preferential`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import GPPosterior, RKHSFunction
from kpp.games import all_coalitions, shapley_values_from_table
from kpp.games.toolkit import Players
from kpp.kernels import AbstractKernel
from kpp.kernels.toolkit import has_product_terms
from kpp.preferences.toolkit import PreferenceTerm, preference_terms
from kpp.runtime.batching import sum_arrays
from kpp.typing import AnyArray
from kpp_pref_shap.pair_functions import number_items
from kpp_pref_shap.sections import absent_weights

if TYPE_CHECKING:
    from kpp_pref_shap.item_game import PreferentialItems


def num_steps(
    game: PreferentialItems, posterior: GPPosterior, pairs: Float[AnyArray, "p 2 d"], players: Players
) -> float:
    """Return how many products of kernel factors the prior covariance of the values of all duels takes.

    They are :math:`(2^g q n)^2 d` for g players, q items and n references; infinity if the game is not one of duels, or
    kernels of items are not sums of product kernels.
    """
    if game.opponents is not None or game.contexts is not None:
        return math.inf
    if not all(has_product_terms(term.kernel) for term in preference_terms(posterior.mean.kernel)):
        return math.inf
    num_items = len(number_items(pairs)[0])
    rows = 2.0**players.num_players * num_items * game.background.shape[0]
    return rows**2 * pairs.shape[-1]


def prior_covariance(
    game: PreferentialItems,
    posterior: GPPosterior,
    pairs: Float[AnyArray, "p 2 d"],
    contexts: Float[AnyArray, "p c"] | None,
    players: Players,
) -> Float[np.ndarray, "p p g g"]:
    """Compute the covariance of the values at all duels under the prior with the kernel of a posterior."""
    items, first, second = map(jnp.asarray, number_items(pairs))
    masks = jnp.asarray(players.expand(all_coalitions(players.num_players)))
    terms = preference_terms(posterior.mean.kernel)
    conditional = absent_weights(game.observational(), game.conditional, game.playing_kernel(terms[0]), items)
    shape = (game.background.shape[0], items.shape[0])
    weights = jax.lax.map(lambda mask: jnp.broadcast_to(conditional(mask), shape), masks)  # (c, n, q)
    loads = jnp.swapaxes(weights, 1, 2)
    references = jnp.asarray(game.background)
    imputed = jnp.where(masks[:, None, None], items[None, :, None], references[None, None])  # (c, q, n, d)
    total = loads.sum(axis=-1)

    def covariance_of_term(term: PreferenceTerm) -> Float[Array, "c p c p"]:
        """Return the covariance of the values of coalitions at duels, for one term of the kernel."""
        inner = _inner_products(term.kernel, imputed, loads)

        def between(left: Array, right: Array) -> Array:
            return inner[:, left][:, :, :, right]

        def product(numbers: Array, others: Array) -> Array:
            return total[:, numbers][:, :, None, None] * total[:, others][None, None]

        straight = between(first, first), between(second, second)
        crossed = between(first, second), between(second, first)
        if term.has_utility:
            covariance = product(second, second) * straight[0] + product(first, first) * straight[1]
            covariance -= product(second, first) * crossed[0] + product(first, second) * crossed[1]
        else:
            covariance = straight[0] * straight[1] - crossed[0] * crossed[1]
        if term.context_kernel is not None:
            covariance = covariance * term.context_kernel(contexts, contexts)[None, :, None]
        return term.weigh(covariance)

    table = sum_arrays(map(covariance_of_term, terms))
    # Without features both items are equal.
    some = jnp.any(masks, axis=1)
    table = jnp.where(some[:, None, None, None] & some[None, None, :, None], table, 0.0)
    share = jnp.asarray(shapley_values_from_table(jnp.eye(masks.shape[0])))  # (g, c)
    return np.asarray(jnp.einsum("ic,cpdq,jd->pqij", share, table, share, precision="highest"))


def whitened_draws(posterior: GPPosterior) -> RKHSFunction:
    """Return the functions whose inner product is the reduction of the covariance by the data, as r draws."""
    root = jnp.swapaxes(posterior.root, 0, 1)[None]
    return RKHSFunction.over_draws(posterior.mean.kernel, posterior.mean.points, root, batch_shape=root.shape[:2])


@jax.jit
def _inner_products(
    kernel: AbstractKernel, imputed: Float[Array, "c q n d"], loads: Float[Array, "c q n"]
) -> Float[Array, "c q c q"]:
    """Return the inner products of weighted imputations."""
    shape, dim = loads.shape, imputed.shape[-1]
    everything, shares = imputed.reshape(-1, dim), loads.reshape(-1)

    def of_one(rows: tuple[Array, Array]) -> Array:
        sections = jnp.matmul(rows[1], kernel(rows[0], everything), precision="highest")
        return (sections * shares).reshape(shape).sum(axis=-1)

    rows = (imputed.reshape(-1, shape[2], dim), loads.reshape(-1, shape[2]))
    return jax.lax.map(of_one, rows).reshape(*shape[:2], *shape[:2])
