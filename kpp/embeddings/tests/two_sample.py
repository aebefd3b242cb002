r"""The difference of two distributions: the witness function and a two-sample test.

The witness of two embeddings is their difference, :math:`\mu_P - \mu_Q`. It is large where P has more mass than Q. It
is a function of the RKHS, so it has Shapley values: they show which features of a point make it typical of P rather
than of Q.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.embeddings.means.embedding import AbstractEmbedding, check_same_kernel
from kpp.embeddings.means.mean import MeanEmbedding
from kpp.foundation.validation import as_points, count
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel
from kpp.runtime.memory import check_count, check_matrices
from kpp.typing import Numbers, Points, RngKey


def witness(
    first: AbstractEmbedding, second: AbstractEmbedding, query: Points | None = None, other_query: Points | None = None
) -> RKHSFunction:
    r"""Return the difference of the elements of two embeddings as a function.

    .. math:: f = \mu_q - \nu_r = \sum_i w_i(q)\, k(z_i, \cdot) - \sum_j w'_j(r)\, k(z'_j, \cdot)

    If the kernel is the kernel of the `space`, its squared norm is `AbstractEmbedding.mmd_squared`. For mean embeddings
    this equals the mean of f over the first sample less the mean of f over the second.

    Args:
        first: An embedding.
        second: Another embedding with the same kernel.
        query: The p queries of the first embedding, or None.
        other_query: The p queries of the second embedding, or None; a single query is repeated p times.

    Returns:
        The function; with queries it has p outputs.

    Raises:
        ValueError: If the kernels, or the numbers of queries, differ.

    Example:
        >>> first = embeddings.MeanEmbedding(RBF(1.0), x)
        >>> second = embeddings.MeanEmbedding(RBF(1.0), x + 3)
        >>> embeddings.witness(first, second)(np.array([[0.0], [3.0]])).round(2)
        Array([ 0.71, -0.74], dtype=float64)
    """
    check_same_kernel(second.kernel, first.kernel, "other")
    weights, others = first.weights(query), second.weights(other_query)
    if weights.shape[1] != others.shape[1] and 1 not in (weights.shape[1], others.shape[1]):
        raise ValueError(
            f"`other_query` must hold as many queries as `query`, {weights.shape[1]}, or one, got {others.shape[1]}"
        )
    outputs = max(weights.shape[1], others.shape[1])
    parts = [jnp.broadcast_to(part, (part.shape[0], outputs)) for part in (weights, -others)]
    coefficients = jnp.concatenate(parts)
    points = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), first.points, second.points)
    if query is None and other_query is None:
        coefficients = coefficients[:, 0]
    return RKHSFunction(first.kernel, points, coefficients)


class TwoSampleTest(NamedTuple):
    """The result of `two_sample_test`.

    Attributes:
        statistic: The estimate of the squared maximum mean discrepancy.
        p_value: The fraction of permutations, the order of the data included, whose statistic is at least as large as
            that of the data.
        permuted: The statistics of the permuted samples.
        witness: The witness function of the two samples.
    """

    statistic: float
    p_value: float
    permuted: Float[np.ndarray, " permutations"]
    witness: RKHSFunction


def two_sample_test(
    rng_key: RngKey, kernel: AbstractKernel, first: Numbers, second: Numbers, *, num_permutations: int = 999
) -> TwoSampleTest:
    r"""Test whether two samples come from the same distribution.

    .. math::

        \widehat{\mathrm{MMD}}{}^2_u = \frac{1}{n(n-1)} \sum_{i \ne i'} k(x_i, x_{i'}) +
        \frac{1}{m(m-1)} \sum_{j \ne j'} k(z_j, z_{j'}) - \frac{2}{nm} \sum_{ij} k(x_i, z_j)

    The samples are pooled and split again at random. If both come from the same distribution, this does not change the
    distribution of the statistic, so the test rejects at level :math:`\alpha` with probability at most :math:`\alpha`,
    for any n and m.

    Args:
        rng_key: A JAX random key for the permutations.
        kernel: The kernel k. The choice of the kernel must not use the labels of the samples.
        first: The sample x, (n, d), n > 1.
        second: The sample z, (m, d), m > 1.
        num_permutations: The number B of random splits; the smallest possible p-value is 1/(B + 1).

    Returns:
        The unbiased statistic, which may be negative, its p-value, and the witness function.

    Raises:
        ValueError: If a sample has fewer than two points, or the samples have different features.

    Example:
        >>> found = embeddings.two_sample_test(jax.random.key(0), RBF(1.0), x, x + 3.0)
        >>> float(found.p_value)
        0.001

    References:
        Gretton et al., A kernel two-sample test, 2012, equation (3) and section 5; Phipson and Smyth, Permutation
        p-values should never be zero, 2010, equation (2).
    """
    first = as_points(first, "first")
    second = as_points(second, "second", num_features=first.shape[1])
    for name, sample in (("first", first), ("second", second)):
        if sample.shape[0] < 2:
            raise ValueError(f"`{name}` must hold at least two points, got {sample.shape[0]}")
    size = first.shape[0] + second.shape[0]
    check_count(count(num_permutations, "num_permutations"), "num_permutations", 2 * size)
    check_matrices(2, size, "`two_sample_test`")
    statistics = np.asarray(_statistics(rng_key, kernel, first, second, num_permutations))
    statistic, permuted = statistics[0], statistics[1:]
    rounding = 1e3 * np.finfo(statistics.dtype).eps * max(abs(statistics))  # equal splits must count as equal
    p_value = (1 + np.sum(permuted >= statistic - rounding)) / (1 + num_permutations)
    difference = witness(MeanEmbedding(kernel, first), MeanEmbedding(kernel, second))
    return TwoSampleTest(float(statistic), float(p_value), permuted, difference)


@eqx.filter_jit
def _statistics(
    rng_key: RngKey, kernel: AbstractKernel, first: Array, second: Array, num_permutations: int
) -> Float[Array, " permutations_and_1"]:
    """Return the statistic of the samples, then the statistics of random splits, from one matrix product."""
    n, m = first.shape[0], second.shape[0]
    gram = kernel.gram(jnp.concatenate([first, second]))
    gram = jnp.fill_diagonal(gram, 0.0, inplace=False)
    belongs = jnp.concatenate([jnp.ones(n, gram.dtype), jnp.zeros(m, gram.dtype)])
    keys = jax.random.split(rng_key, num_permutations)
    splits = jax.vmap(lambda key: jax.random.permutation(key, belongs))(keys)
    splits = jnp.concatenate([belongs[None], splits])
    sums = jnp.sum(gram, axis=1)
    within = jnp.sum((splits @ gram) * splits, axis=1)
    from_first = splits @ sums
    across, other = from_first - within, jnp.sum(sums) - 2 * from_first + within
    return within / (n * (n - 1)) + other / (m * (m - 1)) - 2 * across / (n * m)
