r"""Shapley values as a least squares fit to the values of sampled coalitions.

Shapley values are the coefficients of the additive game that fits v best when coalitions are weighted by the Shapley
kernel, among the games with the same value of the full coalition. Coalitions are drawn with probabilities proportional
to that kernel, so the fit to them is unweighted: to weight them again would use the square of the kernel, and the fit
would not converge to the Shapley values.

A coalition S and its complement, with signs :math:`\varepsilon_j = 1` for the players in S and -1 for the others, enter
the fit only by the difference of their values, so that the constant cancels:

.. math:: \min_\phi \sum_k c_k \Bigl(v(S_k) - v(S_k^c) - \sum_j \varepsilon_{kj} \phi_j\Bigr)^2
    \quad\text{subject to}\quad \sum_j \phi_j = v(D) - v(\emptyset),

where the pair :math:`S_k` was drawn :math:`c_k` times. Known quantities replace random ones to reduce the variance:
pairs of one size share their counts evenly, and a size of which every coalition was drawn gets the weight of the kernel
and does not contribute to the standard errors. If all coalitions of all sizes were drawn, the fit is exact.

References:
    Lundberg and Lee, A unified approach to interpreting model predictions, 2017, Theorem 2;
    Covert and Lee, Improving KernelSHAP: practical Shapley value estimation via linear regression, 2021.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import comb

from kpp.typing import AnyArray

# If one minus its leverage is at most this, a pair is fitted exactly for any value; the rest is rounding.
_MIN_FREEDOM = 1e-6


def shapley_values_from_pairs(
    coalitions: Bool[np.ndarray, "k g"],
    counts: Int[np.ndarray, " k"],
    differences: Float[AnyArray, "k *rest"],
    totals: Float[AnyArray, "*rest"],
) -> tuple[Float[Array, "g *rest"], Float[Array, "g *rest"]]:
    r"""Fit Shapley values to sampled pairs of complementary coalitions.

    The standard errors are those of the fit as a function of independent draws (the sandwich formula), with each
    residual divided by one minus its leverage.

    Args:
        coalitions: One coalition of each pair, (k, g), drawn by the Shapley kernel (`sample_coalition_pairs`).
        counts: How often each pair was drawn, (k,).
        differences: :math:`v(S_k) - v(S_k^c)`, of shape (k, ...).
        totals: :math:`v(D) - v(\emptyset)`, of shape (...).

    Returns:
        The values and their standard errors, (g, ...) each. The values sum to `totals`.

    Raises:
        ValueError: If the pairs are too few or too similar to determine the values.
    """
    signs = np.where(coalitions, 1.0, -1.0)
    weights, missing = _weigh(coalitions, counts)
    inverse = _constrained_inverse(signs, weights)
    influence = signs @ inverse
    freedom = 1 - np.sum(signs * influence, axis=1) * weights
    fitted = freedom < _MIN_FREEDOM
    spread = missing[:, None] * (influence * weights[:, None]) ** 2
    unknown = spread[fitted].sum(axis=0)
    # HC3 of MacKinnon and White (1985).
    spread = np.where(fitted[:, None], 0.0, spread / np.where(fitted, 1.0, freedom)[:, None] ** 2)
    differences = jnp.asarray(differences)
    factors = (signs, influence * weights[:, None], spread, unknown)
    return _fit(*(jnp.asarray(factor, differences.dtype) for factor in factors), differences, jnp.asarray(totals))


@jax.jit
def _fit(
    signs: Float[Array, "k g"],
    solution: Float[Array, "k g"],
    spread: Float[Array, "k g"],
    unknown: Float[Array, " g"],
    differences: Float[Array, "k *rest"],
    totals: Float[Array, "*rest"],
) -> tuple[Float[Array, "g *rest"], Float[Array, "g *rest"]]:
    """Return values and standard errors.

    The values are linear in the differences, and their variances in the squares of the residuals. The residual of a
    pair that is fitted exactly for any value is 0; the mean square of the residuals replaces its square.
    """
    num_pairs, num_players = signs.shape
    flat, equal_shares = differences.reshape(num_pairs, -1), totals.reshape(1, -1) / num_players
    residuals = flat - jnp.sum(signs, axis=1, keepdims=True) * equal_shares
    values = jnp.matmul(solution.T, residuals, precision="highest")
    squares = (residuals - jnp.matmul(signs, values, precision="highest")) ** 2
    # Of the g values g - 1 are free, because their sum is given.
    mean_square = jnp.sum(squares, axis=0, keepdims=True) / max(1, num_pairs - num_players + 1)
    variances = jnp.matmul(spread.T, squares, precision="highest") + unknown[:, None] * mean_square
    shape = (num_players, *totals.shape)
    return (equal_shares + values).reshape(shape), jnp.sqrt(variances).reshape(shape)


def _weigh(
    coalitions: Bool[np.ndarray, "k g"], counts: Int[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return the weights of the pairs, which sum to 1, and the share of pairs of the same size that were not drawn."""
    num_players = coalitions.shape[1]
    sizes = coalitions.sum(axis=1)
    sizes = np.minimum(sizes, num_players - sizes) - 1
    every = np.arange(1, num_players // 2 + 1)
    halves = np.where(2 * every == num_players, 0.5, 1.0)  # the complement has the same size
    masses = halves / (every * (num_players - every))
    drawn, different = np.bincount(sizes, counts, len(every)), np.bincount(sizes, minlength=len(every))
    missing = 1 - different / (halves * comb(num_players, every))
    exhausted = missing < 0.5 / (halves * comb(num_players, every))
    missing[exhausted] = 0.0
    shares = np.where(exhausted, 0.0, drawn) / max(1.0, drawn[~exhausted].sum())
    shares = np.where(exhausted, masses, shares * masses[~exhausted].sum()) / masses.sum()
    return (shares / np.maximum(1, different))[sizes], missing[sizes]


def _constrained_inverse(signs: Float[np.ndarray, "k g"], weights: Float[np.ndarray, " k"]) -> Float[np.ndarray, "g g"]:
    """Return the inverse of the matrix of the normal equations, restricted to values that sum to 0."""
    num_players = signs.shape[1]
    centered = signs - signs.mean(axis=1, keepdims=True)
    eigenvalues, vectors = np.linalg.eigh((centered * weights[:, None]).T @ centered)
    eigenvalues, vectors = eigenvalues[1:], vectors[:, 1:]  # a basis of the vectors orthogonal to the constant one
    if num_players > 1 and eigenvalues[0] <= 1e-10 * eigenvalues[-1]:  # singular up to rounding
        raise ValueError(
            f"`num_coalitions` must be larger: {2 * len(signs)} coalitions do not determine {num_players} values"
        )
    return (vectors / eigenvalues) @ vectors.T
