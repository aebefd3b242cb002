"""Identified expressions in a Gaussian law, as quadratic forms."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.causal.identification.expressions import Expression, Probability, ProbabilityProduct, ProbabilitySum, Ratio
from kpp.linalg import add_diagonal, cho_inverse, cho_solve, cholesky


def gaussian_precision(
    expression: Expression, covariance: Float[Array, "d d"], nodes: Sequence[str]
) -> Float[Array, "d d"]:
    r"""Return the quadratic form of an expression whose probabilities are those of a Gaussian law of mean 0.

    .. math:: \log E(v) = \text{constant} - \tfrac12 v^\top \Lambda v

    A product adds the forms, a ratio subtracts them, and a sum over nodes takes the Schur complement, because an
    integral of a Gaussian density over some variables is Gaussian. So any identified effect of a linear Gaussian model
    is exact: its covariance given the intervened nodes is the inverse of the block of the outcomes.

    Returns:
        :math:`\Lambda`, (d, d), zero outside of the nodes that the expression depends on.
    """
    if isinstance(expression, Probability):
        free, given = (jnp.array([node in names for node in nodes]) for names in (expression.free, expression.given))
        return marginal_precision(covariance, free) - marginal_precision(covariance, given)
    if isinstance(expression, ProbabilityProduct):
        forms = [gaussian_precision(factor, covariance, nodes) for factor in expression.factors]
        return sum(forms, start=jnp.zeros_like(covariance))
    if isinstance(expression, Ratio):
        above, below = (gaussian_precision(part, covariance, nodes) for part in (expression.above, expression.below))
        return above - below
    if isinstance(expression, ProbabilitySum):
        return _integrated(gaussian_precision(expression.body, covariance, nodes), _positions(nodes, expression.over))
    raise TypeError(f"`expression` must be a probability, product, ratio or sum, got {type(expression).__name__}")


def marginal_precision(covariance: Float[Array, "d d"], kept: Bool[Array, " d"]) -> Float[Array, "d d"]:
    """Return the inverse of the block of some variables, in its place in a matrix of zeros."""
    both = kept[:, None] & kept[None, :]
    block = add_diagonal(jnp.where(both, covariance, 0.0), ~kept)
    return jnp.where(both, cho_inverse(cholesky(block, what="the covariance matrix")), 0.0)


def _integrated(form: Float[Array, "d d"], over: Sequence[int]) -> Float[Array, "d d"]:
    """Return the Schur complement of some variables, whose rows and columns become 0."""
    out = jnp.array(over)
    rest = jnp.array([j for j in range(form.shape[0]) if j not in over])
    factor = cholesky(form[jnp.ix_(out, out)], what="the precision matrix")
    cross = form[jnp.ix_(out, rest)]
    reduced = form[jnp.ix_(rest, rest)] - cross.T @ cho_solve(factor, cross)
    return jnp.zeros_like(form).at[jnp.ix_(rest, rest)].set(reduced)


def _positions(nodes: Sequence[str], names: Collection[str]) -> list[int]:
    return [position for position, node in enumerate(nodes) if node in names]
