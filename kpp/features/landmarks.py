"""The choice of a few points that represent a sample, and the error of this choice."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.foundation.validation import as_points, check_rng_key, count, one_of
from kpp.kernels import RBF, AbstractKernel, median_heuristic
from kpp.typing import Numbers, Points, RngKey

_METHODS = ("kmeans", "herding", "random")
_BATCH = 256  # rows of a kernel matrix that are computed at a time, which bounds the memory


class Landmarks(NamedTuple):
    """Points that represent a sample.

    Attributes:
        points: The points, (m, d).
        indices: The positions of the points in the sample, (m,), or None for centers of clusters, which are not rows of
            it.
        error: The maximum mean discrepancy of the points from the sample, in the units of the root of the kernel.
        kernel: The kernel of the discrepancy.
    """

    points: Float[Array, "m d"]
    indices: Int[np.ndarray, " m"] | None
    error: float
    kernel: AbstractKernel


def landmarks(
    x: Numbers,
    num: int,
    *,
    method: str = "herding",
    kernel: AbstractKernel | None = None,
    rng_key: RngKey | None = None,
    max_rows: int = 10_000,
) -> Landmarks:
    r"""Choose points that represent a sample: landmarks of `Nystrom`, or a background of explanations.

    Herding picks rows one by one. Each row is the one that most reduces the maximum mean discrepancy of all rows so
    far,

    .. math:: \arg\min_x\ \frac{k(x, x)}{2 (t + 1)} + \frac{1}{t + 1} \sum_{s \le t} k(x, x_s) - \hat\mu(x),

    k-means takes the centers of clusters, "random" draws rows. Herding and "random" return rows of the sample, whose
    values (categories, for example) occur in the data; the values of cluster centers need not occur.

    Args:
        x: The sample, (n, d).
        num: m, how many points to choose, at most n.
        method: "herding", "kmeans" or "random". k-means measures distances in the units of x.
        kernel: The kernel of herding and of the error; by default an RBF with the lengthscales of `median_heuristic`
            times the root of d.
        rng_key: A JAX random key, which herding does not need.
        max_rows: If there are more rows, a random sample of this size is used instead, which needs `rng_key`. Time and
            memory grow with the square of this number and with this number.

    Returns:
        The points, their positions in the sample, and their discrepancy from the rows that were used.

    Raises:
        ValueError: If `num` or `method` is invalid, or a random key is needed and not given.

    Example:
        >>> kpp.features.landmarks(x, 5).points.shape
        (5, 2)

    References:
        Chen, Welling and Smola, Super-samples from kernel herding, 2010, equation (8), with the first term for kernels
        whose diagonal varies.
    """
    points = as_points(x)
    _check(points.shape[0], num, method, rng_key, max_rows)
    rows = np.arange(points.shape[0])
    if max_rows < len(rows):
        rng_key, thin_key = jax.random.split(check_rng_key(rng_key))
        rows = np.sort(np.asarray(jax.random.choice(thin_key, rows, (max_rows,), replace=False)))
    sample = points[rows]
    kernel = RBF(median_heuristic(sample) * sample.shape[1] ** 0.5) if kernel is None else kernel
    chosen, index = _choose(sample, num, method, kernel, rng_key)
    indices = None if index is None else rows[index]
    return Landmarks(chosen, indices, float(mean_discrepancy(kernel, chosen, sample)), kernel)


def _check(num_points: int, num: int, method: str, rng_key: RngKey | None, max_rows: int) -> None:
    num_rows = min(num_points, max_rows)
    one_of(method, "method", _METHODS)
    count(num, "num", most=num_rows, most_is="the number of rows")
    if rng_key is None and (method != "herding" or num_rows < num_points):
        raise ValueError(f"`rng_key` is needed for method {method!r} and {num_points} rows, got None")


def mean_discrepancy(kernel: AbstractKernel, first: Points, second: Points) -> Float[Array, ""]:
    r"""Return the maximum mean discrepancy of two samples, in memory that does not grow with their product.

    .. math:: \Big\| \frac1m \sum_i k(z_i, \cdot) - \frac1n \sum_j k(x_j, \cdot) \Big\|

    References:
        Gretton et al., A kernel two-sample test, 2012, equation (5).
    """
    first = as_points(first, "first")
    second = as_points(second, "second", num_features=first.shape[1])
    return _discrepancy(kernel, first, second)


def _choose(
    sample: Array, num: int, method: str, kernel: AbstractKernel, rng_key: RngKey | None
) -> tuple[Array, np.ndarray | None]:
    if method == "kmeans":
        return _centers(sample, num, rng_key), None
    if method == "herding":
        index = np.asarray(_herd(kernel, sample, num))
    else:
        index = np.asarray(jax.random.choice(check_rng_key(rng_key), sample.shape[0], (num,), replace=False))
    return sample[index], index


def _centers(sample: Array, num: int, rng_key: RngKey) -> Array:
    from sklearn.cluster import KMeans

    seed = int(jax.random.randint(check_rng_key(rng_key), (), 0, 2**31 - 1))
    fitted = KMeans(num, n_init=1, random_state=seed).fit(np.asarray(sample))
    return jnp.asarray(fitted.cluster_centers_, dtype=sample.dtype)


@eqx.filter_jit
def _discrepancy(kernel: AbstractKernel, first: Array, second: Array) -> Float[Array, ""]:
    pairs = ((first, first), (first, second), (second, second))
    within, across, other = (jnp.mean(_section_means(kernel, *pair)) for pair in pairs)
    return jnp.sqrt(jnp.maximum(within - 2 * across + other, 0.0))  # rounding may make the square negative


def _section_means(kernel: AbstractKernel, x: Array, z: Array) -> Float[Array, " n"]:
    """Return the mean of each row of k(x, z)."""
    return jax.lax.map(lambda row: jnp.mean(kernel(row[None], z)), x, batch_size=_BATCH)


@eqx.filter_jit
def _herd(kernel: AbstractKernel, sample: Array, num: int) -> Int[Array, " m"]:
    means, diagonal = _section_means(kernel, sample, sample), kernel.diagonal(sample)

    def step(state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], Array]:
        total, taken = state
        loss = (diagonal / 2 + total) / (t + 1) - means
        index = jnp.argmin(jnp.where(taken, jnp.inf, loss))
        total = total + kernel(sample, sample[index][None])[:, 0]
        return (total, taken.at[index].set(True)), index

    start = (jnp.zeros_like(means), jnp.zeros(means.shape, dtype=bool))
    return jax.lax.scan(step, start, jnp.arange(num))[1]
