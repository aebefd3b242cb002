r"""Bayesian quadrature: the posterior of expectations of a function under a Gaussian process.

An expectation is a linear functional of the function, so under a Gaussian process it is Gaussian. An embedding of the
distribution, or of the conditional distribution at each query, represents the functional.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.means.embedding import AbstractEmbedding, AbstractEmpiricalEmbedding
from kpp.foundation.validation import is_concrete
from kpp.functionals import GPPosterior
from kpp.typing import Points


class QuadraturePosterior(NamedTuple):
    """The joint Gaussian law of p expectations.

    Attributes:
        mean: The posterior means, (*batch_shape, p).
        covariance: The posterior covariances, (*batch_shape, p, p), from the uncertainty of the function.
    """

    mean: Float[Array, "*batch p"]
    covariance: Float[Array, "*batch p p"]

    @property
    def variance(self) -> Float[Array, "*batch p"]:
        """The posterior variances, (*batch_shape, p), at least 0."""
        return jnp.maximum(jnp.diagonal(self.covariance, axis1=-2, axis2=-1), 0.0)


def bayesian_quadrature(
    posterior: GPPosterior, embedding: AbstractEmbedding, query: Points | None = None
) -> QuadraturePosterior:
    r"""Return the posterior of expectations of a function, such as E[f(X) | y] for several y.

    .. math::

        E\bigl[\langle f, \mu_q \rangle\bigr] = \langle m, \mu_q \rangle, \qquad
        \mathrm{Cov}\bigl(\langle f, \mu_q \rangle, \langle f, \mu_{q'} \rangle\bigr)
        = w(q)^\top\, \mathrm{Cov}\bigl(f(Z), f(Z)\bigr)\, w(q')

    m is the posterior mean, and :math:`\mu_q = \sum_i w_i(q) k(z_i, \cdot)` the embedding. With a `MeanEmbedding` of a
    sample it is classical Bayesian quadrature of a mean; with a conditional embedding it is the regression function
    E[f(X) | y]. The covariance is the uncertainty about f. The embedding is taken as exact: the uncertainty about the
    distribution is not included.

    Args:
        posterior: The posterior of f; it may have axes for draws of the hyperparameters.
        embedding: The embedding. If its support points are a sample (`AbstractEmpiricalEmbedding`), it may have any
            kernel, since f is evaluated at these points; otherwise it must have the kernel of the posterior.
        query: The p queries of the embedding, or None.

    Returns:
        Means and covariances, with the draw axes of the posterior first.

    Raises:
        TypeError: If the embedding is a weighted sum of sections of a kernel that is not the kernel of its space.
        ValueError: If the embedding must have the kernel of the posterior and does not.

    References:
        O'Hagan, Bayes-Hermite quadrature, 1991, section 2; Rasmussen and Ghahramani, Bayesian Monte Carlo, 2003,
        equations (9) and (10).
    """
    if embedding.space is not embedding.kernel:
        raise TypeError(
            f"`embedding` must be held by sections of the kernel of its space, {type(embedding).__name__} is not: its "
            "expectations are no sums over its support points"
        )
    if not isinstance(embedding, AbstractEmpiricalEmbedding):
        _check_same_kernel(posterior, embedding)
    weights = embedding.weights(query)
    mean = embedding.expectation(posterior.mean, query)
    return QuadraturePosterior(mean, posterior.map_draws(lambda draw: _covariance(draw, embedding.points, weights)))


def _covariance(posterior: GPPosterior, points: Points, weights: Float[Array, "m p"]) -> Float[Array, "p p"]:
    """Return the covariance of weighted sums of values at the support points, under one draw."""
    prior = weights.T @ posterior.mean.kernel.gram(points) @ weights
    reduction = weights.T @ posterior.whitened(points)
    covariance = prior - reduction @ reduction.T
    return (covariance + covariance.T) / 2


def _check_same_kernel(posterior: GPPosterior, embedding: AbstractEmbedding) -> None:
    """Raise ValueError if the kernels differ; traced values are not compared, and each draw has its own kernel."""
    kernel, other = posterior.mean.kernel, embedding.kernel
    same = jax.tree.structure(kernel) == jax.tree.structure(other)
    if same and not posterior.batch_shape and all(is_concrete(leaf) for leaf in jax.tree.leaves((kernel, other))):
        same = bool(eqx.tree_equal(kernel, other))
    if not same:
        raise ValueError(
            f"`embedding` must have the kernel of `posterior` for {type(embedding).__name__}, whose support points are "
            f"no sample; got {other!r} and not {kernel!r}"
        )
