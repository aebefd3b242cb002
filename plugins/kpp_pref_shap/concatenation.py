r"""Preference functions as functions of plain points: of both items side by side, or of one item (its utility).

With its items side by side, :math:`z = (x, x')`, a preference function with a kernel of product kernels is also a
function in the RKHS of a product kernel,

.. math:: g = \sum_j \alpha_j \bigl[\kappa((a_j, b_j), \cdot) - \kappa((b_j, a_j), \cdot)\bigr]

with :math:`\kappa(z, z') = k(x, y)\, k(x', y')`, or :math:`k(x, y) + k(x', y')` if there is a utility. Any explainer
of functions of points can therefore explain it: with one player for each feature of each item, the naive way; or, with
features j and d + j as one player, exactly as Pref-SHAP does, in polynomial time for interventional values.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import RKHSFunction
from kpp.games import Interventional
from kpp.games.toolkit import Players, quadrature_shapley
from kpp.kernels import AbstractKernel, Preferential
from kpp.kernels.toolkit import has_product_terms
from kpp.preferences.toolkit import PreferenceTerm, preference_terms
from kpp.runtime.batching import sum_arrays
from kpp.typing import AnyArray
from kpp_pref_shap.pair_functions import as_known, check_preference, split_points


def as_concatenated(function: RKHSFunction) -> RKHSFunction:
    """Return a preference function as a function of rows of both items, (p, 2 d), or (p, 2 d + c) with contexts.

    Args:
        function: A function of pairs, or of pairs in contexts, possibly with draws.

    Returns:
        The same function. Explained by "rkhs-shap" it has two values for each feature; this naive way ignores that both
        items have the same features.

    Raises:
        TypeError: If its kernel is not made of kernels on pairs.
    """
    function = check_preference(function)
    pairs, contexts = split_points(function.points)
    num_features = pairs.shape[-1]
    kernels = []
    for term in preference_terms(function.kernel):
        kernel = _kernel_side_by_side(term, num_features)
        if term.context_kernel is not None:
            kernel = kernel * term.context_kernel.on(range(2 * num_features, 2 * num_features + contexts.shape[-1]))
        kernels.append(kernel if isinstance(term.scale, float) else kernel * term.scale)
    points, coefficients = _both_ways(pairs, contexts, function.coefficients)
    total = sum(kernels[1:], start=kernels[0])
    return RKHSFunction(total, points, coefficients, function.intercept, function.batch_shape)


def as_utility(function: RKHSFunction) -> RKHSFunction:
    """Return the utility behind a function of pairs with the kernel `Preferential`, to explain it by "rkhs-shap".

    Args:
        function: The function g, possibly with draws.

    Returns:
        The function f of single items (p, d) with g(x, x') = f(x) - f(x').

    Raises:
        TypeError: If the kernel is not `Preferential`: other functions need not have a utility.
    """
    if not isinstance(function.kernel, Preferential):
        kind = type(function.kernel).__name__
        raise TypeError(f"`function` must have the kernel Preferential to have a utility, got {kind}")
    points = jnp.concatenate([function.points[..., 0, :], function.points[..., 1, :]], axis=-2)
    coefficients = _with_both_signs(function.coefficients)
    return RKHSFunction(function.kernel.kernel, points, coefficients, batch_shape=function.batch_shape)


def has_product_items(function: RKHSFunction) -> bool:
    """Return whether the kernels of items are sums of product kernels, which `items_by_quadrature` needs."""
    return all(has_product_terms(term.kernel) for term in preference_terms(function.kernel))


def items_by_quadrature(
    background: Float[AnyArray, "n d"],
    function: RKHSFunction,
    pairs: Float[AnyArray, "p 2 d"],
    contexts: Float[AnyArray, "k c"] | None,
    players: Players,
) -> Float[Array, "*draws p g"]:
    """Compute exact Shapley values of the interventional game of items, in polynomial time in the number of features.

    The references are all pairs of the background (n, d), so time grows with their number squared, and with the
    matches. The function, whose kernels of items are sums of product kernels, is averaged over `contexts` if it has
    contexts; the players are those of both items side by side. The duels (p, 2, d) give values (p, g), led by draws.
    """
    background = np.asarray(background)
    first, second = np.indices((len(background),) * 2).reshape(2, -1)
    game = Interventional(np.concatenate([background[first], background[second]], axis=1))
    return _solve_side_by_side(game, function, as_known(pairs).reshape(len(pairs), -1), contexts, players)


@eqx.filter_jit
def _solve_side_by_side(
    game: Interventional,
    function: RKHSFunction,
    x: Float[AnyArray, "p columns"],
    contexts: Float[AnyArray, "k c"] | None,
    players: Players,
) -> Float[Array, "*draws p g"]:
    num_features = x.shape[1] // 2

    def of_draw(draw: RKHSFunction) -> Array:
        matches, own_contexts = split_points(draw.points)

        def of_term(term: PreferenceTerm) -> Array:
            weights = term.weigh(draw.coefficients)
            if term.context_kernel is not None:
                weights = weights * jnp.mean(term.context_kernel(own_contexts, contexts), axis=1)
            part = RKHSFunction(_kernel_side_by_side(term, num_features), *_both_ways(matches, None, weights))
            return quadrature_shapley(game, part, jnp.asarray(x), players=players)

        return sum_arrays(of_term(term) for term in preference_terms(draw.kernel))

    return function.map_draws(of_draw)


def _kernel_side_by_side(term: PreferenceTerm, num_features: int) -> AbstractKernel:
    left, right = (term.kernel.on(range(start, start + num_features)) for start in (0, num_features))
    return left + right if term.has_utility else left * right


@jax.jit
def _both_ways(
    pairs: Array, contexts: Array | None, coefficients: Array
) -> tuple[Float[Array, "*draws m2 columns"], Float[Array, "*batch m2"]]:
    """Return the items of each pair side by side, in either order, followed by the context, and the coefficients."""
    sides = [pairs, pairs[..., ::-1, :]]
    rows = jnp.concatenate([side.reshape(*side.shape[:-2], -1) for side in sides], axis=-2)
    if contexts is not None:
        rows = jnp.concatenate([rows, jnp.concatenate([contexts] * 2, axis=-2)], axis=-1)
    return rows, _with_both_signs(coefficients)


def _with_both_signs(coefficients: Float[Array, "*draws m"]) -> Float[Array, "*draws m2"]:
    return jnp.concatenate([coefficients, -coefficients], axis=-1)
