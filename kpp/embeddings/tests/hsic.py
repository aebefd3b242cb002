r"""The Hilbert-Schmidt independence criterion: how strongly two variables depend on each other, and which features do.

It is the squared distance between the embedding of the joint distribution of X and Y and the embedding of the product
of their marginal distributions. With characteristic kernels it is 0 exactly if X and Y are independent.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.embeddings.tests.residuals import centered
from kpp.foundation.validation import as_points, check_same_rows, probability
from kpp.kernels import RBF, AbstractKernel, median_heuristic
from kpp.runtime.memory import check_matrices
from kpp.typing import Numbers

_MIN_ROWS = 4  # the unbiased estimator averages over quadruples of different rows


def hsic(
    x_kernel: AbstractKernel, y_kernel: AbstractKernel, x: Numbers, y: Numbers, *, unbiased: bool = True
) -> Float[Array, ""]:
    r"""Estimate the Hilbert-Schmidt independence criterion of two samples whose rows belong together.

    .. math::

        \mathrm{HSIC} = E[k l] + E[k]\, E[l] - 2\, E\bigl[E[k \mid X]\, E[l \mid Y]\bigr]

    with k = k(X, X') and l = l(Y, Y') at independent pairs. The biased estimate is :math:`\mathrm{tr}(K H L H) / n^2`,
    :math:`H = I - 1 1^\top / n`. It is never negative, and exceeds 0 by a term of order 1/n even if X and Y are
    independent. The unbiased estimate is, with the diagonals of K and L set to 0,

    .. math::

        \frac{1}{n (n - 3)} \Bigl[\mathrm{tr}(\tilde K \tilde L) +
        \frac{1^\top \tilde K 1\; 1^\top \tilde L 1}{(n - 1)(n - 2)} -
        \frac{2}{n - 2}\, 1^\top \tilde K \tilde L 1\Bigr]

    Args:
        x_kernel: k, a kernel of X.
        y_kernel: l, a kernel of Y.
        x: X, (n, d), n > 3.
        y: Y, (n, e).
        unbiased: Whether to compute the unbiased estimate, which may be negative.

    Returns:
        The estimate, in the product of the units of both kernels. `kpp.embeddings.conditional_independence_test` tests
        whether it is 0.

    Raises:
        ValueError: If the numbers of rows differ, or there are fewer than four.

    Example:
        >>> bool(embeddings.hsic(RBF(1.0), RBF(1.0), x, y) > 0.0)
        True

    References:
        Gretton et al., Measuring statistical dependence with Hilbert-Schmidt norms, 2005, definition 2; Song et al.,
        Feature selection via dependence maximization, 2012, equations (3), (4) and (5).
    """
    x, y = _rows(x, y)
    estimate = _unbiased if unbiased else _biased
    return estimate(x_kernel.gram(x), y_kernel.gram(y))


def rank_features(
    x: Numbers, y: Numbers, y_kernel: AbstractKernel, *, x_kernel: AbstractKernel | None = None, fraction: float = 0.1
) -> Int[np.ndarray, " d"]:
    r"""Rank features by how much Y depends on them: backward elimination by HSIC (BAHSIC).

    Beginning with all features, each round removes the features without which the unbiased HSIC of the remaining
    features and Y is largest. So features that matter only together with others can be found, while a ranking of single
    features misses them.

    Args:
        x: The features, (n, d), n > 3.
        y: Y, (n, e).
        y_kernel: The kernel of Y; `kpp.kernels.Linear` for numbers -1 and 1.
        x_kernel: A kernel of all features, in which a feature that is 0 in all rows has no effect, as in stationary and
            linear kernels. By default it is an RBF, in each round with the lengthscales of `median_heuristic` times the
            square root of the number of features that remain.
        fraction: The fraction of the remaining features to remove in a round, at least one feature.

    Returns:
        The numbers of the features, (d,), the most important one first: those that were removed last.

    Raises:
        ValueError: If the numbers of rows differ, there are fewer than four, or `fraction` is not between 0 and 1.

    Example:
        >>> noise = rng.normal(size=(30, 1))
        >>> embeddings.rank_features(np.hstack([noise, x]), y, RBF(1.0))
        array([1, 0])

    References:
        Song et al., Feature selection via dependence maximization, 2012, algorithm 1.
    """
    probability(fraction, "fraction")
    x, y = _rows(x, y)
    scales = median_heuristic(x)
    target, remaining, removed = y_kernel.gram(y), list(range(x.shape[1])), []
    while len(remaining) > 1:
        kernel = RBF(jnp.sqrt(len(remaining)) * scales) if x_kernel is None else x_kernel
        mask = jnp.asarray(np.isin(np.arange(x.shape[1]), remaining), float)
        without = np.asarray(_without_each(kernel, x, target, mask))
        order = sorted(remaining, key=lambda feature: -without[feature])
        gone = order[: max(1, int(fraction * len(remaining)))]
        removed += gone
        remaining = [feature for feature in remaining if feature not in gone]
    return np.array([*remaining, *removed[::-1]])


@eqx.filter_jit
def _without_each(
    kernel: AbstractKernel, x: Float[Array, "n d"], target: Float[Array, "n n"], mask: Float[Array, " d"]
) -> Float[Array, " d"]:
    """Return the HSIC of the features in the mask but one, for each one."""
    masks = mask[None, :] * (1 - jnp.eye(x.shape[1]))
    return jax.lax.map(lambda kept: _unbiased(kernel.gram(x * kept[None, :]), target), masks)


def _rows(x: Numbers, y: Numbers) -> tuple[Float[Array, "n d"], Float[Array, "n e"]]:
    """Return two samples with the same number of rows."""
    first, second = as_points(x, "x"), as_points(y, "y")
    check_same_rows(first.shape[0], second.shape[0], "x", "y")
    if first.shape[0] < _MIN_ROWS:
        raise ValueError(f"`x` must have at least {_MIN_ROWS} rows, got shape {first.shape}")
    check_matrices(3, first.shape[0], "the Hilbert-Schmidt independence criterion")
    return first, second


@jax.jit
def _biased(k: Float[Array, "n n"], m: Float[Array, "n n"]) -> Float[Array, ""]:
    return jnp.mean(centered(centered(k).T) * m)  # tr(H K H M) / n^2: centering one of the two is enough


@jax.jit
def _unbiased(k: Float[Array, "n n"], m: Float[Array, "n n"]) -> Float[Array, ""]:
    n = k.shape[0]
    k, m = (jnp.fill_diagonal(gram, 0.0, inplace=False) for gram in (k, m))
    of_k, of_m = jnp.sum(k, axis=1), jnp.sum(m, axis=1)
    product = jnp.sum(of_k) * jnp.sum(of_m) / ((n - 1) * (n - 2))
    return (jnp.sum(k * m) + product - 2 * jnp.dot(of_k, of_m) / (n - 2)) / (n * (n - 3))
