r"""Covariances of the Shapley values of any imputation under any kernel, by all pairs of imputed rows.

Shapley values are linear in the function. With the weights :math:`c_j(S)` that they give to the value of a coalition,

.. math:: \phi_j(x) = \sum_S c_j(S) \sum_b w_b(x, S)\, f(x_S, z_{b,S^c}) = \sum_a A_{ja}(x)\, f(r_a),

a sum over the imputed rows :math:`r_a`, :math:`2^g m` of them. So
:math:`\mathrm{Cov}(\phi(x), \phi(x')) = A(x)\, k(r, r')\, A(x')^\top`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kpp.batching import rows_that_fit, split_rows
from kpp.functions import RKHSFunction
from kpp.games.estimators.coalition_weights import shapley_values_from_table
from kpp.games.players.coalitions import all_coalitions
from kpp.games.players.players import Players
from kpp.games.values.imputation import AbstractImputation
from kpp.kernels import AbstractKernel

__all__ = ["enumeration_covariance", "enumeration_sections"]

# The largest number of entries of a kernel matrix in memory.
_MAX_ENTRIES = 2**22


def enumeration_covariance(
    value_function: AbstractImputation,
    function: RKHSFunction,
    x: Float[Array, "p d"],
    x_other: Float[Array, "q d"],
    pairs: Int[Array, "k 2"],
    players: Players,
) -> Float[Array, "k g g"]:
    """Compute the covariances of Shapley values at pairs of points under a Gaussian process, (k, g, g).

    The process has the kernel of a function without draws as its covariance; weights are those of the unfolded
    function, which is the one that is explained. A pair is a row of `x` (p, d) and a row of `x_other` (q, d). The
    result is players of the first point by players of the second.
    """
    coalitions = _coalitions(players)
    weights, weights_other = (_weights(value_function, function, points, coalitions) for points in (x, x_other))

    def of_pair(pair: Array) -> Array:
        i, j = pair[0], pair[1]
        rows, loads = _atoms(value_function, function, x[i], weights[i], coalitions)
        rows_other, loads_other = _atoms(value_function, function, x_other[j], weights_other[j], coalitions)
        sections = _weighted_sections(function.kernel, rows, loads, rows_other)
        return jnp.matmul(sections, loads_other.T, precision="highest")

    return jax.lax.map(of_pair, pairs)


def enumeration_sections(
    value_function: AbstractImputation, function: RKHSFunction, x: Float[Array, "p d"], players: Players
) -> Float[Array, "p g n"]:
    """Compute the Shapley values of the kernel's n sections at the points of a function without draws, (p, g, n)."""
    coalitions = _coalitions(players)

    def of_point(point: tuple[Array, Array]) -> Array:
        rows, loads = _atoms(value_function, function, *point, coalitions)
        return _weighted_sections(function.kernel, rows, loads, function.points)

    return jax.lax.map(of_point, (x, _weights(value_function, function, x, coalitions)))


def _coalitions(players: Players) -> Bool[Array, "c d"]:
    return jnp.asarray(players.expand(all_coalitions(players.num_players)))


def _weights(
    value_function: AbstractImputation, function: RKHSFunction, x: Array, coalitions: Array
) -> Float[Array, "p c m"]:
    """Return the weights of the imputed rows, one coalition after another."""
    unfolded = function.unfold()
    weights = jax.lax.map(lambda mask: value_function.imputation_weights(unfolded, x, mask[None])[0], coalitions)
    return jnp.swapaxes(weights, 0, 1)


def _atoms(
    value_function: AbstractImputation, function: RKHSFunction, x: Array, weights: Array, coalitions: Array
) -> tuple[Float[Array, "a d"], Float[Array, "g a"]]:
    """Return the imputed rows of a point, and the weights of the function's values at them in the Shapley values."""
    rows = value_function.impute(function.unfold(), x[None], coalitions).reshape(-1, x.shape[0])
    shapley = shapley_values_from_table(np.eye(coalitions.shape[0])).astype(weights.dtype)
    return rows, (shapley[:, :, None] * weights[None]).reshape(shapley.shape[0], -1)


def _weighted_sections(
    kernel: AbstractKernel, rows: Float[Array, "a d"], loads: Float[Array, "g a"], points: Float[Array, "n d"]
) -> Float[Array, "g n"]:
    """Return the weighted sums of kernel sections at points, some rows at a time."""
    size = rows_that_fit(rows.shape[0], points.shape[0], _MAX_ENTRIES)
    missing = -rows.shape[0] % size
    parts = split_rows(rows, size), jnp.pad(loads, [(0, 0), (0, missing)]).T.reshape(-1, size, loads.shape[0])

    def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        return total + jnp.matmul(part[1].T, kernel(part[0], points), precision="highest"), None

    start = jnp.zeros((loads.shape[0], points.shape[0]), dtype=loads.dtype)
    return jax.lax.scan(add, start, parts)[0]
