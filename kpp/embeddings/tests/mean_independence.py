r"""Tests of mean independence: whether the mean of an outcome depends on some variables, given others or none.

:math:`E[Y \mid X, Z] = E[Y \mid Z]` is the constraint that a collider implies for the regression of an outcome on its
Markov boundary, and the only one that a projection enforces. The variance of Y may still depend on X, and then Y is not
independent of X. A plain permutation test of independence would reject for this reason alone. Here the statistic is
divided by an estimate of its own standard deviation, which is computed for each permutation, so that a dependence of
the variance alone does not lead to a rejection.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.embeddings.tests.residuals import (
    LENGTHSCALES,
    IndependenceTest,
    centered,
    centered_features,
    is_constant,
    rank_p_value,
    regressions_on,
)
from kpp.foundation.validation import as_finite_array, as_points, check_same_rows, count, warn_if_float32
from kpp.kernels import RBF, AbstractKernel, median_heuristic
from kpp.kernels.toolkit import check_positive
from kpp.runtime.memory import check_count, check_matrices
from kpp.typing import AnyArray, Numbers, RngKey


class MeanIndependenceTest(IndependenceTest):
    """The result of `mean_independence_test`: its `statistic` is in units of its standard deviation."""


def mean_independence_test(
    rng_key: RngKey,
    y: Numbers,
    x: Numbers,
    given: Numbers | None = None,
    *,
    kernel: AbstractKernel | None = None,
    given_kernel: AbstractKernel | None = None,
    regularization: float | AnyArray | None = None,
    num_permutations: int = 999,
    max_rows: int = 1000,
) -> MeanIndependenceTest:
    r"""Test whether the mean of Y depends on X, given Z or without conditioning.

    .. math::

        H_0: E[Y \mid X, Z] = E[Y \mid Z], \qquad
        S = \frac{\sum_{i \ne j} m_{ij}}{\bigl(2 \sum_{i \ne j} m_{ij}^2\bigr)^{1/2}}, \qquad
        m_{ij} = e_i e_j\, \langle r_i, r_j \rangle\, l(z_i, z_j)

    Without Z, :math:`e_i = y_i - \bar y` and :math:`r_i` is :math:`k(x_i, \cdot)` less its mean, the factor l is left
    out, and the residuals e are permuted. If Y is independent of X, the test rejects at level :math:`\alpha` with
    probability at most :math:`\alpha`, for any n. If only the mean of Y does not depend on X, the level is approximate:
    for many rows, the mean and the variance of the null distribution are right, but its shape may differ.

    With Z, both are residuals of the regressions on Z of `conditional_independence_test`: of Y by kernel ridge, of
    :math:`k(X, \cdot)` by a conditional mean embedding. The null distribution is that of the statistic if the residuals
    e have random signs and are then put through the same regression. The level is right if the product of the two
    regressions' errors is small relative to :math:`n^{-1/2}`. The test rejects too often if Y and X both depend
    strongly on Z along a curve that the regressions cannot find with the given number of rows: with 100 rows, five
    columns of Z and a fast wave of their sum, in 12 of 100 data sets at the level of 5 %. The factor l gives power
    against effects of X whose sign changes with Z.

    Args:
        rng_key: A JAX random key for the permutations or signs, and the rows.
        y: Y, (n,), n > 2, or (n, q) with all columns in the same unit, for example an indicator for each of q classes;
            :math:`e_i e_j` is then the dot product of two rows.
        x: X, (n, d).
        given: Z, (n, d'), or None.
        kernel: k; by default an RBF with the lengthscales of `median_heuristic` times the square root of d.
        given_kernel: l, also the kernel of both regressions; it has the same default, and the regressions then also try
            half and twice these lengthscales.
        regularization: The regularization of both regressions, positive; it is multiplied by the number of rows. By
            default each regression chooses it, and a kernel of Z, as in `conditional_independence_test`.
        num_permutations: The number B of random permutations, or of draws of signs; the smallest possible p-value is
            1/(B + 1).
        max_rows: The maximal number of rows to use. If there are more, a random subset of this size is used, which does
            not change the level. Memory grows with the square of this number; time grows with the square, or with the
            cube if Z is given.

    Returns:
        The statistic and its p-value. If Y or X is constant, the statistic is 0 and the p-value 1.

    Raises:
        ValueError: If shapes do not match, there are too few rows, a number is out of range, or products overflow.

    References:
        Zhang, Peters, Janzing and Schölkopf, Kernel-based conditional independence test and application in causal
        discovery, 2011, section 3, for residuals and the factor l; Shah and Peters, The hardness of conditional
        independence testing and the generalised covariance measure, 2020, theorem 6, for the product of errors;
        DiCiccio and Romano, Robust permutation tests for correlation and regression coefficients, 2017, for dividing
        by an estimate of the standard deviation; Freedman and Lane, A nonstochastic interpretation of reported
        significance levels, 1983, for regressing again what was resampled; Phipson and Smyth, Permutation p-values
        should never be zero, 2010.
    """
    row_key, key = jax.random.split(rng_key)
    targets, points, z = _read(y, x, given)
    count(num_permutations, "num_permutations")
    count(max_rows, "max_rows", 3)
    if points.shape[0] > max_rows:
        rows = jax.random.choice(row_key, points.shape[0], (max_rows,), replace=False)
        targets, points, z = targets[rows], points[rows], None if z is None else z[rows]
    check_count(num_permutations, "num_permutations", 2 * len(points))
    check_matrices(2 if z is None else 5, len(points), "`mean_independence_test`", "choose a smaller `max_rows`")
    if is_constant(targets) or is_constant(points):
        return MeanIndependenceTest(0.0, 1.0, num_permutations, points.shape[0])
    kernel = _default_kernel(points) if kernel is None else kernel
    if z is None:
        statistics = _permuted(key, kernel, targets, points, num_permutations)
    else:
        warn_if_float32("mean_independence_test")
        if regularization is not None:
            regularization = as_finite_array(regularization, "regularization")
            check_positive(regularization, "regularization")
        factors = LENGTHSCALES if regularization is None else (1.0,)
        family = tuple(_default_kernel(z, factor) for factor in factors) if given_kernel is None else (given_kernel,)
        statistics = _signed(key, kernel, family, targets, points, z, regularization, num_permutations)
    found = np.asarray(statistics)
    if not np.isfinite(found).all():
        raise ValueError("`y` and the kernels of the rows must be finite, their products, too; the statistic is not")
    return MeanIndependenceTest(float(found[0]), rank_p_value(found)[0], len(found) - 1, points.shape[0])


def _read(y: Numbers, x: Numbers, given: Numbers | None) -> tuple[Array, Array, Array | None]:
    y, x = as_finite_array(y, "y"), as_points(x)
    if y.ndim not in (1, 2) or 0 in y.shape:
        raise ValueError(f"`y` must have shape (n,) or (n, q), got shape {y.shape}")
    if y.shape[0] < 3:
        raise ValueError(f"`y` must hold at least three rows, got {y.shape[0]}")
    check_same_rows(y.shape[0], x.shape[0], "y", "x")
    z = None if given is None else as_points(given, "given")
    if z is not None:
        check_same_rows(y.shape[0], z.shape[0], "y", "given")
    return y.reshape(y.shape[0], -1), x, z


def _default_kernel(x: Array, factor: float = 1.0) -> RBF:
    return RBF(factor * median_heuristic(x) * x.shape[1] ** 0.5)


@eqx.filter_jit
def _permuted(
    rng_key: RngKey, kernel: AbstractKernel, y: Array, x: Array, num_permutations: int
) -> Float[Array, " permutations_and_1"]:
    """Return the statistic of the data, then the statistics of permutations of the residuals."""
    residuals, gram = centered(y), _without_diagonal(centered(centered(kernel.gram(x)).T))
    products = (residuals[:, :, None] * residuals[:, None, :]).reshape(y.shape[0], -1)
    rows = jnp.arange(y.shape[0])
    permutations = jax.vmap(lambda key: jax.random.permutation(key, rows))(jax.random.split(rng_key, num_permutations))
    orders = jnp.concatenate([rows[None], permutations])

    def sums(columns: Array, matrix: Array) -> Array:
        return jnp.sum(jax.lax.map(lambda column: _quadratic(column[orders], matrix), columns.T), axis=0)

    return _ratio(sums(residuals, gram), sums(products, gram**2))


@eqx.filter_jit
def _signed(
    rng_key: RngKey,
    kernel: AbstractKernel,
    given_kernels: tuple[AbstractKernel, ...],
    y: Array,
    x: Array,
    z: Array,
    regularization: Array | None,
    num_draws: int,
) -> Float[Array, " draws_and_1"]:
    """Return the statistic of the data, then those of residuals with random signs that are regressed again."""
    grams = jnp.stack([each.gram(z) for each in given_kernels])
    outcomes, features = centered(y), centered_features(kernel.gram(x))
    residual_maker = regressions_on(grams) if regularization is None else _ridge(grams[0], regularization)
    of_y, of_x = residual_maker(outcomes), residual_maker(features)
    others = of_x @ features
    weights = _without_diagonal((others @ others.T) * grams[len(grams) // 2])
    residuals = of_y @ outcomes
    noise = residuals / jnp.sqrt(jnp.sum(of_y**2, axis=1))[:, None]  # errors of variance 1 leave (A A^T)_ii
    signs = jax.random.rademacher(rng_key, (num_draws, y.shape[0]), dtype=y.dtype)
    # Residuals of the data and of the draws, (q, draws and 1, n).
    drawn = jax.lax.map(lambda e: jnp.concatenate([e[0][None], (signs * e[1][None]) @ of_y.T]), (residuals.T, noise.T))
    totals = jnp.sum(jax.lax.map(lambda e: _quadratic(e, weights), drawn), axis=0)
    pairs = jax.lax.map(lambda e: jnp.sum(jax.lax.map(lambda f: _quadratic(e * f, weights**2), drawn), axis=0), drawn)
    return _ratio(totals, jnp.sum(pairs, axis=0))


def _ridge(gram: Float[Array, "n n"], regularization: Array) -> Callable[[Array], Float[Array, "n n"]]:
    r"""Return a function to :math:`A = I - L (L + n \lambda I)^{-1}`, whose rows and columns are centered."""
    size = gram.shape[0]
    factor = linalg.cholesky(linalg.add_diagonal(gram, size * regularization))
    residual_maker = size * regularization * linalg.cho_solve(factor, jnp.eye(size, dtype=gram.dtype))
    return lambda features: centered(centered(residual_maker).T)


def _quadratic(rows: Float[Array, "s n"], matrix: Float[Array, "n n"]) -> Float[Array, " s"]:
    return jnp.sum((rows @ matrix) * rows, axis=1)


def _ratio(total: Float[Array, " s"], spread: Float[Array, "*s"]) -> Float[Array, " s"]:
    """Divide by the standard deviation; if it is 0, as for a constant kernel, all totals are 0."""
    return total / jnp.where(spread > 0, jnp.sqrt(2 * spread), 1.0)


def _without_diagonal(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return jnp.fill_diagonal(matrix, 0.0, inplace=False)
