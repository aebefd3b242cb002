r"""Inducing points: their placement, and the bounds that they give.

A Gaussian process that is observed at many points, or through bag means, is summarized by its values at w points,
:math:`q(u) = N(\eta, \Sigma)`. With Gaussian noise the best q is known in closed form. The bound that it attains, the
collapsed bound, is a density of the targets less a trace term: the variance that the points do not explain.

For bag means, column j of A (N, M) holds the weights of the bags in target j; B (w, N) holds the mean
    embeddings of the bags at the inducing points, G (N, N) their inner products, and T (M, M) is the covariance of the
    noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp import linalg
from kpp.foundation.validation import as_points, count
from kpp.gp.laws.distributions import GaussianProcessMarginal
from kpp.kernels import AbstractKernel
from kpp.priors import is_prior
from kpp.typing import AnyArray, Leaf

_MAX_ROWS = 20_000  # the maximal number of rows used by k-means
_MAX_LEVELS = 100  # k-means distinguishes the most frequent categories of a column, up to this number


class InducingSettings(NamedTuple):
    """The placement of inducing points.

    Attributes:
        points: The points, (w, d), or a prior for them, or None to place `num` of them.
        num: w, the number of points to place; None if `points` are given.
        learn: Whether the points are sites of the model rather than fixed.
        seed: The seed of k-means.
    """

    points: Any = None
    num: int | None = None
    learn: bool = False
    seed: int = 0


def code_columns(kernel: AbstractKernel, points: Float[AnyArray, "n d"]) -> tuple[int, ...]:
    """Return the positions of the columns that hold codes of categories.

    These are the columns of whole numbers that the kernel does not read as numbers, such as the columns of
    `kpp.kernels.Categorical`. A mean of codes is not a code.

    Args:
        kernel: The kernel of the points, with or without priors; names of features are resolved.
        points: The points, (n, d).
    """
    names = [str(j) for j in range(points.shape[1])]
    numbers = kernel.features_as_numbers(names)
    known = np.asarray(points)
    return tuple(j for j, name in enumerate(names) if name not in numbers and np.all(known[:, j] % 1 == 0))


def place_inducing(settings: InducingSettings, points: Float[AnyArray, "n d"], codes: Sequence[int] = ()) -> Leaf:
    r"""Place inducing points, or check given ones.

    Points are placed by k-means, started by k-means++, on the given points in units of each feature's standard
    deviation; with more than 20,000 points, on 20,000 of them drawn at random. Their codes are those of data points;
    see `k_means_centers`. If the number of different points equals `num`, these are the inducing points.

    Args:
        settings: The settings.
        points: The points of the data, such as those of all bags, (n, d).
        codes: The positions of the columns that hold codes of categories, as `code_columns` returns them.

    Returns:
        The points, (w, d). With `learn`, a prior for them: independent normal distributions centered at the points,
            whose standard deviation is half the standard deviation of each feature. A given prior is returned
            unchanged.

    Raises:
        ValueError: If both or neither of `points` and `num` are given, if `num` is below 1 or above the number of
            different points, if the inducing points do not have as many columns as the points, or if `learn` is asked
            for with columns of codes, which cannot be moved.
    """
    if (settings.points is None) == (settings.num is None):
        raise ValueError("give either `inducing_points` or `num_inducing`, got " + ("both" if settings.num else "none"))
    num_features = points.shape[1]
    if is_prior(settings.points):
        shape = settings.points.shape()
        if len(shape) != 2 or shape[1] != num_features:
            raise ValueError(f"`inducing_points` must have shape (w, {num_features}), got a prior of shape {shape}")
        return settings.points
    if settings.learn and codes:
        raise ValueError(
            f"`learn_inducing` cannot move codes of categories, and the kernel does not read the columns {list(codes)} "
            "of the points as numbers; leave it False, or give a prior for `inducing_points`"
        )
    if settings.points is None:
        num = count(settings.num, "num_inducing")
        chosen = jnp.asarray(k_means_centers(np.asarray(points), num, settings.seed, codes))
    else:
        chosen = as_points(settings.points, "inducing_points", num_features=num_features)
    chosen = chosen.astype(points.dtype)
    return _prior_about(chosen, np.asarray(points)) if settings.learn else chosen


def trace_deficit(
    noise: Float[AnyArray, "M M"], target_gram: Float[AnyArray, "M M"], low_rank: Float[AnyArray, "w M"]
) -> Float[Array, ""]:
    r"""Return the trace of the variance that the inducing points do not explain, in units of the noise.

    .. math:: \mathrm{tr}\bigl(T^{-1} (A^\top G A - V_0^\top V_0)\bigr)

    Args:
        noise: T, (M, M), positive definite.
        target_gram: :math:`A^\top G A`, (M, M).
        low_rank: :math:`V_0 = L_w^{-1} B A`, (w, M), where :math:`L_w L_w^\top = K_{ww}`.

    Returns:
        The trace, a scalar; it can be negative only by the sampling error of G.
    """
    factor = linalg.cholesky(noise, what="the covariance matrix of the noise")
    missing = jnp.asarray(target_gram) - jnp.matmul(low_rank.T, low_rank, precision="highest")
    return jnp.trace(linalg.cho_solve(factor, missing))


class CollapsedBound(GaussianProcessMarginal):
    r"""The bound on the log evidence that the best q(u) attains, as the density of an observed site.

    .. math:: \log N(y;\, \nu,\, V_0^\top V_0 + T) - \tfrac12 \delta

    Its gradient with respect to the matrices is in closed form. `sample` draws from the normal distribution.

    Args:
        mean: :math:`\nu`, (M,).
        low_rank: :math:`V_0`, (w, M).
        noise: T, (M, M), symmetric.
        deficit: :math:`\delta`, the trace of `trace_deficit`, a scalar.
        validate_args: As for every NumPyro distribution.

    References:
        Titsias, Variational learning of inducing variables in sparse Gaussian processes, 2009, equation (9), with
        bag means in place of values.
    """

    arg_constraints = {**GaussianProcessMarginal.arg_constraints, "deficit": constraints.real}
    reparametrized_params = [*GaussianProcessMarginal.reparametrized_params, "deficit"]

    def __init__(
        self,
        mean: Float[AnyArray, " M"],
        low_rank: Float[AnyArray, "w M"],
        noise: Float[AnyArray, "M M"],
        deficit: AnyArray | float,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.deficit = jnp.asarray(deficit)
        covariance = jnp.matmul(low_rank.T, low_rank, precision="highest") + noise
        super().__init__(mean, covariance, 0.0, validate_args=validate_args)

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the bound for vectors of targets, of shape (*sample_shape, M)."""
        return super().log_prob(value, intermediates) - 0.5 * self.deficit


def _prior_about(inducing: Float[Array, "w d"], points: Float[np.ndarray, "n d"]) -> dist.Distribution:
    return dist.Normal(inducing, jnp.broadcast_to(0.5 * jnp.asarray(_scale(points)), inducing.shape))


def k_means_centers(
    points: Float[np.ndarray, "n d"], num: int, seed: int, codes: Sequence[int] = ()
) -> Float[np.ndarray, "w d"]:
    """Return centers of points by k-means, in units of each feature's standard deviation.

    A column of codes enters k-means by an indicator for each of its 100 most frequent categories. The indicators of a
    column have the total variance 1, which is the variance of a column of numbers. A center takes all its codes from
    one point, the nearest point of its cluster; its numbers are the means of the cluster.

    Args:
        points: The points, (n, d); if there are more than 20,000, k-means uses 20,000 of them, drawn at random.
        num: w, the number of centers.
        seed: The seed of k-means and of the random subset.
        codes: The positions of the columns that hold codes of categories.

    Returns:
        The centers, (w, d); the points themselves if only w of them are different.

    Raises:
        ValueError: If fewer than w points are different.
    """
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(seed)
    if len(points) > _MAX_ROWS:
        points = points[np.sort(rng.choice(len(points), _MAX_ROWS, replace=False))]
    different = np.unique(points, axis=0)
    if num > len(different):
        raise ValueError(f"`num_inducing` must be at most the {len(different)} different points, got {num}")
    if num == len(different):
        return different
    codes = list(codes)
    numbers = np.delete(points, codes, axis=1)
    scale = _scale(numbers)
    scaled = np.concatenate([numbers / scale, *(_indicators(points[:, j]) for j in codes)], axis=1)
    fitted = KMeans(num, init="k-means++", n_init=1, max_iter=50, random_state=seed).fit(scaled)
    centers = np.empty((num, points.shape[1]))
    centers[:, np.delete(np.arange(points.shape[1]), codes)] = fitted.cluster_centers_[:, : numbers.shape[1]] * scale
    if codes:
        centers[:, codes] = points[_nearest_members(scaled, fitted.labels_, fitted.cluster_centers_)][:, codes]
    return centers


def _indicators(codes: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n l"]:
    """Return a column for each of the most frequent codes, 1 where a point has the code; the total variance is 1."""
    values, counts = np.unique(codes, return_counts=True)
    frequent = values[np.argsort(-counts, kind="stable")[:_MAX_LEVELS]]
    found = (codes[:, None] == frequent).astype(float)
    variance = found.var(axis=0).sum()
    return found / np.sqrt(variance) if variance > 0 else found


def _nearest_members(
    points: Float[np.ndarray, "n q"], labels: np.ndarray, centers: Float[np.ndarray, "w q"]
) -> np.ndarray:
    """Return the number of the point of each cluster that is nearest to its center, (w,)."""
    distance = np.square(points - centers[labels]).sum(axis=1)
    order = np.lexsort((distance, labels))
    return order[np.searchsorted(labels[order], np.arange(len(centers)))]


def _scale(points: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each feature, or 1 for a constant feature."""
    scale = points.std(axis=0)
    return np.where(scale > 0, scale, 1.0)
