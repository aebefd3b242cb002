r"""Distribution functions and quantiles under an intervention, from the weights of an embedding.

Some weights of a conditional or interventional embedding are negative. Their cumulative sums over the sorted outcomes
estimate a distribution function, but need not increase. The sums are normalized and sorted in increasing order
(rearrangement), which never increases the error of the estimate. Setting negative weights to 0 instead would widen the
distribution, also in the limit of a large sample.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.embeddings.means.embedding import AbstractEmpiricalEmbedding
from kpp.foundation.validation import as_targets, check_same_rows, is_concrete
from kpp.typing import Numbers, Points


def interventional_cdf(
    embedding: AbstractEmpiricalEmbedding, query: Points | None, thresholds: Numbers, *, values: Numbers | None = None
) -> Float[Array, "p t"]:
    r"""Return the distribution function of the outcome for each query.

    .. math:: \hat F_q(t) = \frac{\sum_i w_i(q)\, 1\{y_i \le t\}}{\sum_i w_i(q)}

    Its values at the outcomes are clipped to [0, 1] and sorted, so that it increases.

    Args:
        embedding: An embedding whose support points are a sample of the outcome.
        query: The p queries, or None for an embedding without queries.
        thresholds: t, (t,).
        values: The outcome at each support point, (m,); by default the points themselves, which must then have one
            column.

    Returns:
        The probabilities, (p, t).

    Raises:
        TypeError: If the support points are not a sample.
        ValueError: If the points have several columns and `values` is None, or the sum of the weights is not positive.

    References:
        Chernozhukov, Fernández-Val and Galichon, Quantile and probability curves without crossing, 2010, section 2.
    """
    thresholds = as_targets(thresholds, name="thresholds")
    values, cumulative = _distribution(embedding, query, values)
    return _at_thresholds(values, cumulative, thresholds)


@jax.jit
def _at_thresholds(
    values: Float[Array, " m"], cumulative: Float[Array, "p m"], thresholds: Float[Array, " t"]
) -> Float[Array, "p t"]:
    padded = jnp.concatenate([jnp.zeros((cumulative.shape[0], 1), dtype=cumulative.dtype), cumulative], axis=1)
    return padded[:, jnp.searchsorted(values, thresholds, side="right")]


def interventional_quantiles(
    embedding: AbstractEmpiricalEmbedding, query: Points | None, levels: Numbers, *, values: Numbers | None = None
) -> Float[Array, "p l"]:
    r"""Return quantiles of the outcome for each query, such as the median under each treatment.

    .. math:: \hat Q_q(\alpha) = \min\{y_i : \hat F_q(y_i) \ge \alpha\}

    Args:
        embedding: An embedding whose support points are a sample of the outcome.
        query: The p queries, or None for an embedding without queries.
        levels: :math:`\alpha`, (l,), above 0 and at most 1.
        values: As for `interventional_cdf`.

    Returns:
        The quantiles, (p, l).

    Raises:
        TypeError: If the support points are not a sample.
        ValueError: If a level is outside (0, 1], the points have several columns and `values` is None, or the sum of
            the weights is not positive.
    """
    levels = as_targets(levels, name="levels")
    if is_concrete(levels) and not np.all((np.asarray(levels) > 0) & (np.asarray(levels) <= 1)):
        raise ValueError(f"`levels` must lie above 0 and at most at 1, got {levels}")
    return _at_levels(*_distribution(embedding, query, values), levels)


@jax.jit
def _at_levels(
    values: Float[Array, " m"], cumulative: Float[Array, "p m"], levels: Float[Array, " l"]
) -> Float[Array, "p l"]:
    wanted = levels - values.shape[0] * jnp.finfo(cumulative.dtype).eps  # rounding must not skip a point
    first = jax.vmap(lambda row: jnp.searchsorted(row, wanted))(cumulative)
    return values[jnp.minimum(first, values.shape[0] - 1)]


def _distribution(
    embedding: AbstractEmpiricalEmbedding, query: Points | None, values: Numbers | None
) -> tuple[Float[Array, " m"], Float[Array, "p m"]]:
    """Return the sorted outcomes, and the distribution function of each query at them, rearranged."""
    if not isinstance(embedding, AbstractEmpiricalEmbedding):
        raise TypeError(
            "`embedding` must be one whose support points are a sample, an AbstractEmpiricalEmbedding, got "
            f"{type(embedding).__name__}"
        )
    ordered, cumulative, distributions = _accumulate(_values(embedding, values), embedding.weights(query))
    if is_concrete(cumulative) and not ((totals := np.asarray(cumulative)[:, -1]) > 0).all():
        position = int(np.argmin(totals > 0))
        raise ValueError(
            f"`query` must have weights that sum to something positive, got {totals[position]:.3g} at "
            f"position {position}: it is too far from the sample"
        )
    return ordered, distributions


@jax.jit
def _accumulate(
    values: Float[Array, " m"], weights: Float[Array, "m p"]
) -> tuple[Float[Array, " m"], Float[Array, "p m"], Float[Array, "p m"]]:
    """Return the sorted outcomes, the sums of the weights up to each, and these as rearranged distributions."""
    order = jnp.argsort(values)
    cumulative = jnp.cumsum(weights[order], axis=0).T
    return values[order], cumulative, jnp.sort(jnp.clip(cumulative / cumulative[:, -1:], 0.0, 1.0), axis=1)


def _values(embedding: AbstractEmpiricalEmbedding, values: Numbers | None) -> Float[Array, " m"]:
    points = embedding.points
    if values is not None:
        values = as_targets(values, name="values")
        check_same_rows(jax.tree.leaves(points)[0].shape[0], values.shape[0], "points", "values")
        return values
    if not isinstance(points, jax.Array) or points.ndim != 2 or points.shape[1] != 1:
        shapes = [leaf.shape for leaf in jax.tree.leaves(points)]
        raise ValueError(
            f"`values` must be given, one number for each support point, unless these have shape (m, 1), got {shapes}"
        )
    return points[:, 0]
