r"""A test of conditional independence by kernels, with a null distribution that knows of the regressions.

X is independent of Y given Z exactly if the residuals of the features of X and of Y in their regressions on Z are
uncorrelated at every value of Z. Tests of this kind reject too often if they treat the residuals as noise: the
regressions leave a part of the curves in the residuals, and make the residuals of neighboring rows dependent. Here the
signs of the noise of X are drawn at random *before* the regression is applied again, which accounts for the second; and
the regressions compare values of Z also by what a first regression says there, which makes the first small also if Z
has several columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.data.tables import Schema, columns_of_names, is_table, read_points
from kpp.embeddings.tests.residuals import (
    LENGTHSCALES,
    IndependenceTest,
    centered_features,
    is_constant,
    rank_p_value,
    regressions_on,
)
from kpp.foundation.validation import check_same_rows, count, warn_if_float32
from kpp.kernels import AbstractKernel, default_kernel, median_heuristic, resolve_features
from kpp.runtime.memory import check_count, check_matrices
from kpp.typing import RngKey

_NO_VARIATION = 1e-8  # the share of the variation of X or Y below which the residuals are rounding errors


class _Variable(NamedTuple):
    """A variable of the test: its rows, (n, d), and its columns."""

    points: Array
    schema: Schema


def conditional_independence_test(
    rng_key: RngKey,
    x: object,
    y: object,
    given: object = None,
    *,
    x_kernel: AbstractKernel | None = None,
    y_kernel: AbstractKernel | None = None,
    given_kernel: AbstractKernel | None = None,
    num_permutations: int = 999,
    max_rows: int = 1000,
) -> IndependenceTest:
    r"""Test whether X is independent of Y, given Z or without conditioning.

    .. math::

        T = \Bigl\| \sum_i (A \Phi)_i \otimes (B \Psi)_i \otimes m(z_i, \cdot) \Bigr\|^2 = \mathrm{tr}(K A G A),
        \qquad G = (B L B) \circ M

    :math:`\Phi` and :math:`\Psi` are the features of the kernels k of X and l of Y, K and L are their matrices, M is
    that of a kernel m of Z. A and B return the residuals of kernel ridge regressions of these features on Z, with an
    intercept. The null distribution is that of the statistic if the residuals of X have random signs w and are then
    put through the same regression,

    .. math::

        T^* = w^\top (\hat R \circ A G A)\, w, \qquad
        \hat R = D^{-1/2} A K A D^{-1/2}, \quad D = \mathrm{diag}(A^2)

    Each regression chooses among regularizations, and kernels of Z, by the leave-one-out error; it then uses the least
    regularization whose error is within one standard error of the lowest. One of the kernels multiplies the kernel of Z
    by an RBF of the distance between the fitted embeddings of a first regression: if the law of X depends on few
    combinations of the columns of Z, this kernel has found them.

    Without Z the regressions are means, T is n squared times the Hilbert-Schmidt independence criterion, and the rows
    of Y are permuted: the test then rejects at level :math:`\alpha` with probability at most :math:`\alpha`, for any n.
    With Z no test holds its level for all laws. The level is right if the product of the errors of the two regressions
    is small relative to :math:`n^{-1/2}`; the test rejects too often if X and Y both depend strongly on Z along a curve
    that the rows are too few to show, which happens with few rows and many columns.

    Args:
        rng_key: A JAX random key for the permutations or signs, and the rows.
        x: X, (n, d) or (n,), n > 3: an array of numbers, or a data frame, whose columns of text, categories and
            booleans are categories.
        y: Y, likewise.
        given: Z, likewise, or None.
        x_kernel: k; by default `kpp.kernels.default_kernel` with the lengthscales of `median_heuristic` times the
            square root of the number of columns of numbers. Its 100 leading components are used.
        y_kernel: l, likewise.
        given_kernel: m, also the kernel of Z in the regressions; by default as for X, and the regressions also try half
            and twice these lengthscales.
        num_permutations: The number B of random permutations, or of draws of signs; the smallest possible p-value is
            1/(B + 1).
        max_rows: The maximal number of rows to use. If there are more, a random subset of this size is used, which does
            not change the level. Memory grows with the square of this number, and time with the cube.

    Returns:
        The statistic and its p-value. If X or Y does not vary, or does not vary given Z, the statistic is 0 and the
        p-value 1.

    Raises:
        ValueError: If the numbers of rows differ, there are too few, a column of text has a value of its own in each
            row, values are missing or not finite, or a number is out of range.

    References:
        Zhang, Peters, Janzing and Schölkopf, Kernel-based conditional independence test and application in causal
        discovery, 2011, for the features of X and Y; Shah and Peters, The hardness of conditional independence testing
        and the generalised covariance measure, 2020, theorem 6, for the product of errors; Scheidegger, Hörrmann and
        Bühlmann, The weighted generalised covariance measure, 2022, for the factor m; Freedman and Lane, A
        nonstochastic interpretation of reported significance levels, 1983, for regressing again what was resampled;
        Gretton et al., A kernel statistical test of independence, 2007, for the test without Z.
    """
    row_key, key = jax.random.split(rng_key)
    first, second = _read(x, "x"), _read(y, "y")
    third = None if given is None else _read(given, "given")
    num_rows = first.points.shape[0]
    for name, variable in (("y", second), ("given", third)):
        if variable is not None:
            check_same_rows(num_rows, variable.points.shape[0], "x", name)
    if num_rows < 4:
        raise ValueError(f"`x` must hold at least four rows, got {num_rows}")
    count(num_permutations, "num_permutations")
    count(max_rows, "max_rows", 4)
    warn_if_float32("conditional_independence_test")
    if num_rows > max_rows:
        rows = jax.random.choice(row_key, num_rows, (max_rows,), replace=False)
        first, second = (part._replace(points=part.points[rows]) for part in (first, second))
        third = None if third is None else third._replace(points=third.points[rows])
        num_rows = max_rows
    check_count(num_permutations, "num_permutations", 3 if third is None else 2 * num_rows)
    check_matrices(
        2 if third is None else 6, num_rows, "`conditional_independence_test`", "choose a smaller `max_rows`"
    )
    if is_constant(first.points) or is_constant(second.points):
        return IndependenceTest(0.0, 1.0, num_permutations, num_rows)
    kernels = (_kernel(first) if x_kernel is None else x_kernel, _kernel(second) if y_kernel is None else y_kernel)
    if third is None or is_constant(third.points):
        statistics = _permuted(key, *kernels, first.points, second.points, num_permutations)
        return _outcome(np.asarray(statistics), num_rows)
    family = (given_kernel,) if given_kernel is not None else tuple(_kernel(third, c) for c in LENGTHSCALES)
    left, statistics = _signed(key, *kernels, family, first.points, second.points, third.points, num_permutations)
    if float(left) < _NO_VARIATION:
        return IndependenceTest(0.0, 1.0, num_permutations, num_rows)
    return _outcome(np.asarray(statistics), num_rows)


def _read(values: Any, name: str) -> _Variable:
    if not is_table(values) and np.ndim(values) == 1:
        values = np.asarray(values)[:, None]
    points, schema = read_points(values, name)
    unusable = columns_of_names(values, schema)
    if unusable:
        raise ValueError(f"`{name}` must not hold columns of text with a value of its own in each row, got {unusable}")
    return _Variable(jnp.asarray(points), schema)


def _kernel(variable: _Variable, factor: float = 1.0) -> AbstractKernel:
    """Return the default kernel of a variable, with some multiple of the lengthscales of the median heuristic."""
    schema = variable.schema
    numbers = [index for index, name in enumerate(schema.feature_names) if name not in schema.categories]
    lengthscale = 1.0
    if numbers:
        lengthscale = factor * median_heuristic(variable.points[:, np.array(numbers)]) * len(numbers) ** 0.5
    return resolve_features(default_kernel(schema, priors=False, lengthscale=lengthscale), schema.feature_names)


def _outcome(statistics: Float[np.ndarray, " draws_and_1"], num_rows: int) -> IndependenceTest:
    """Return the result: the rank of the first statistic among all."""
    if not np.isfinite(statistics).all():
        raise ValueError("`x_kernel`, `y_kernel` and `given_kernel` must be finite at the rows; the statistic is not")
    statistic, drawn = statistics[0], statistics[1:]
    p_value, rounding = rank_p_value(statistics)
    spread = drawn.std()
    score = (statistic - drawn.mean()) / spread if spread > rounding else 0.0
    return IndependenceTest(float(score), p_value, len(drawn), num_rows)


@eqx.filter_jit
def _permuted(
    rng_key: RngKey, x_kernel: AbstractKernel, y_kernel: AbstractKernel, x: Array, y: Array, num_permutations: int
) -> Float[Array, " permutations_and_1"]:
    """Return the statistic of the data, then the statistics of permutations of the rows of Y."""
    first, second = centered_features(x_kernel.gram(x)), centered_features(y_kernel.gram(y))
    rows = jnp.arange(x.shape[0])
    drawn = jax.lax.map(
        lambda key: jnp.sum((first.T @ second[jax.random.permutation(key, rows)]) ** 2),
        jax.random.split(rng_key, num_permutations),
    )
    return jnp.append(jnp.sum((first.T @ second) ** 2), drawn)


@eqx.filter_jit
def _signed(
    rng_key: RngKey,
    x_kernel: AbstractKernel,
    y_kernel: AbstractKernel,
    given_kernels: tuple[AbstractKernel, ...],
    x: Array,
    y: Array,
    z: Array,
    num_draws: int,
) -> tuple[Float[Array, ""], Float[Array, " draws_and_1"]]:
    """Return the lesser share of variation left given Z, and the statistics of the data and of random signs."""
    grams = jnp.stack([kernel.gram(z) for kernel in given_kernels])
    residual_maker = regressions_on(grams)
    first, second = centered_features(x_kernel.gram(x)), centered_features(y_kernel.gram(y))
    of_x, of_y = (residual_maker(features) for features in (first, second))
    residuals, others = of_x @ first, of_y @ second
    weights = of_x @ ((others @ others.T) * grams[len(given_kernels) // 2]) @ of_x
    noise = residuals / jnp.sqrt(jnp.sum(of_x**2, axis=1))[:, None]  # errors of variance 1 leave (A A^T)_ii
    terms = (noise @ noise.T) * weights
    signs = jax.random.rademacher(rng_key, (num_draws, x.shape[0]), dtype=x.dtype)
    drawn = jnp.sum((signs @ terms) * signs, axis=1)
    left = jnp.minimum(jnp.sum(residuals**2) / jnp.sum(first**2), jnp.sum(others**2) / jnp.sum(second**2))
    return left, jnp.append(jnp.sum(first * (weights @ first)), drawn)
