r"""Distribution functions and quantiles under an intervention, from the weights of an embedding.

The weights of a conditional or interventional embedding need not be positive, nor sum to 1. Here they are clipped at 0
and normalised, which makes a distribution on the support points of them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.base import AbstractEmpiricalEmbedding
from kpp.validation import as_targets, check_same_rows, is_concrete

__all__ = ["interventional_cdf", "interventional_quantiles", "probabilities"]


def probabilities(embedding: AbstractEmpiricalEmbedding, query: Any = None) -> Float[Array, "m p"]:
    r"""Return the weights of the support points as probabilities.

    .. math:: \pi_i(q) = \frac{\max(w_i(q), 0)}{\sum_j \max(w_j(q), 0)}

    Args:
        embedding: An embedding whose support points are a sample.
        query: The p queries, or None.

    Returns:
        The probabilities, (m, p); each column sums to 1.

    Raises:
        TypeError: If the support points are no sample.
        ValueError: If a query has no positive weight.
    """
    if not isinstance(embedding, AbstractEmpiricalEmbedding):
        raise TypeError(
            "`embedding` must be one whose support points are a sample, an AbstractEmpiricalEmbedding, got "
            f"{type(embedding).__name__}"
        )
    positive = jnp.maximum(embedding.weights(query), 0.0)
    totals = jnp.sum(positive, axis=0)
    if is_concrete(totals) and not bool((totals > 0).all()):
        raise ValueError(
            f"`query` must have positive weights, got none at position {int(jnp.argmin(totals > 0))}: it is too far "
            "from the sample"
        )
    return positive / totals[None, :]


def interventional_cdf(
    embedding: AbstractEmpiricalEmbedding, query: Any, thresholds: Any, *, values: Any = None
) -> Float[Array, "p t"]:
    r"""Return the distribution function of the outcome for each query.

    .. math:: \hat F_q(t) = \sum_i \pi_i(q)\, 1\{y_i \le t\}

    Args:
        embedding: An embedding whose support points are a sample of the outcome.
        query: The p queries, or None for an embedding that takes none.
        thresholds: t, (t,).
        values: A number for each support point, (m,), whose distribution is asked for; by default the points
            themselves, which must then have one column.

    Returns:
        The probabilities, (p, t).

    Raises:
        TypeError: If the support points are no sample.
        ValueError: If the points have several columns and there are no values, or a query has no positive weight.
    """
    thresholds = as_targets(thresholds, name="thresholds")
    below = _values(embedding, values)[:, None] <= thresholds[None, :]
    return probabilities(embedding, query).T @ below.astype(float)


def interventional_quantiles(
    embedding: AbstractEmpiricalEmbedding, query: Any, levels: Any, *, values: Any = None
) -> Float[Array, "p l"]:
    r"""Return quantiles of the outcome for each query, such as the median under each treatment.

    .. math:: \hat Q_q(\alpha) = \min\{y_i : \hat F_q(y_i) \ge \alpha\}

    Args:
        embedding: An embedding whose support points are a sample of the outcome.
        query: The p queries, or None for an embedding that takes none.
        levels: :math:`\alpha`, (l,), above 0 and at most 1.
        values: A number for each support point, (m,), whose quantiles are asked for; by default the points themselves,
            which must then have one column.

    Returns:
        The quantiles, (p, l).

    Raises:
        TypeError: If the support points are no sample.
        ValueError: If a level is outside (0, 1], the points have several columns and there are no values, or a query
            has no positive weight.
    """
    levels = as_targets(levels, name="levels")
    if not bool(((levels > 0) & (levels <= 1)).all()):
        raise ValueError(f"`levels` must lie above 0 and at most at 1, got {levels}")
    values = _values(embedding, values)
    order = jnp.argsort(values)
    cumulative = jnp.cumsum(probabilities(embedding, query)[order], axis=0)
    wanted = levels - values.shape[0] * jnp.finfo(cumulative.dtype).eps  # rounding of the sums must not skip a point
    first = jax.vmap(lambda column: jnp.searchsorted(column, wanted), in_axes=1)(cumulative)
    return values[order][jnp.minimum(first, values.shape[0] - 1)]


def _values(embedding: AbstractEmpiricalEmbedding, values: Any) -> Float[Array, " m"]:
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
