r"""Bayesian quadrature: the posterior of expectations of a function under a Gaussian process.

An expectation is a linear functional of the function, so under a Gaussian process it is Gaussian. An embedding of the
distribution, or of the conditional distribution at each query, represents the functional.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.means.bayesian import BayesianConditionalMeanEmbedding
from kpp.embeddings.means.embedding import AbstractEmbedding, AbstractEmpiricalEmbedding
from kpp.foundation.validation import is_concrete
from kpp.functionals import AbstractFunctional, FunctionalLaw, GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel
from kpp.typing import PointFunction, Points


class Embedded(AbstractFunctional):
    r"""The expectations of a function under the elements of an embedding, such as E[f(X) | y] for several y.

    .. math:: \langle f, \mu_q \rangle, \qquad \mu_q = \sum_i w_i(q)\, k(z_i, \cdot)

    Args:
        embedding: The embedding. If its support points are a sample (`AbstractEmpiricalEmbedding`), it may have any
            kernel, since f is evaluated at these points; otherwise it must have the kernel of the function.
        query: The p queries of the embedding, or None.

    Raises:
        TypeError: If the embedding is a weighted sum of sections of a kernel that is not the kernel of its space.
    """

    embedding: AbstractEmbedding
    query: Points | None = None

    def __check_init__(self) -> None:
        if self.embedding.space is not self.embedding.kernel:
            raise TypeError(
                f"`embedding` must be held by sections of the kernel of its space, {type(self.embedding).__name__} is "
                "not: its expectations are no sums over its support points"
            )

    @property
    def num_values(self) -> int:
        """The number of queries, p; 1 without queries."""
        return eqx.filter_eval_shape(self.embedding.weights, self.query).shape[1]

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        """Return the expectations of a function; it must be an `RKHSFunction` if the support points are no sample."""
        values = function if isinstance(function, RKHSFunction) else function(self.embedding.points)
        return self.embedding.expectation(values, self.query)

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        return RKHSFunction(kernel, self.embedding.points, self.embedding.weights(self.query))

    def adjoint(self, kernel: AbstractKernel, coefficients: Float[Array, "q *outputs"]) -> RKHSFunction:
        """Return the combination of the elements, a sum of sections at the support points."""
        weights = jnp.tensordot(self.embedding.weights(self.query), coefficients, axes=1, precision="highest")
        return RKHSFunction(kernel, self.embedding.points, weights)

    def check_space(self, function: RKHSFunction) -> None:
        """Raise ValueError if the support points are no sample, and the function has another kernel.

        Values that are traced, or that differ from draw to draw, are not compared.
        """
        kernel, other = function.kernel, self.embedding.kernel
        same = jax.tree.structure(kernel) == jax.tree.structure(other)
        if same and not function.batch_shape and all(map(is_concrete, jax.tree.leaves((kernel, other)))):
            same = bool(eqx.tree_equal(kernel, other))
        if not same and not isinstance(self.embedding, AbstractEmpiricalEmbedding):
            raise ValueError(
                f"`embedding` must have the kernel of the function for {type(self.embedding).__name__}, whose support "
                f"points are no sample; got {other!r} and not {kernel!r}"
            )


def bayesian_quadrature(
    posterior: GPPosterior, embedding: AbstractEmbedding, query: Points | None = None
) -> FunctionalLaw:
    r"""Return the posterior of expectations of a function, such as E[f(X) | y] for several y.

    .. math::

        E\bigl[\langle f, \mu_q \rangle\bigr] = \langle m, \mu_q \rangle, \qquad
        \mathrm{Cov}\bigl(\langle f, \mu_q \rangle, \langle f, \mu_{q'} \rangle\bigr)
        = w(q)^\top\, \mathrm{Cov}\bigl(f(Z), f(Z)\bigr)\, w(q')

    m is the posterior mean, and :math:`\mu_q = \sum_i w_i(q) k(z_i, \cdot)` the embedding. With a `MeanEmbedding` of a
    sample it is classical Bayesian quadrature of a mean; with a conditional embedding it is the regression function
    E[f(X) | y]. The covariance is the uncertainty about f, and the law is ``posterior.of(Embedded(embedding, query))``.
    The uncertainty about the distribution is included for a `BayesianConditionalMeanEmbedding` only, whose method
    `inner_product` gives the law; any other embedding is taken as exact.

    Args:
        posterior: The posterior of f; it may have axes for draws of the hyperparameters.
        embedding: The embedding; see `Embedded`.
        query: The p queries of the embedding, or None.

    Returns:
        Means and covariances, with the draw axes of the posterior first.

    Raises:
        TypeError: If the embedding is a weighted sum of sections of a kernel that is not the kernel of its space.
        ValueError: If the embedding must have the kernel of the posterior and does not, or the posterior has draws and
            the embedding is Bayesian.

    Example:
        >>> from kpp.embeddings import MeanEmbedding, bayesian_quadrature
        >>> law = bayesian_quadrature(posterior, MeanEmbedding(kpp.kernels.RBF(1.5), x))
        >>> law.mean.round(2)
        Array([[[-0.15]]], dtype=float64)

    References:
        O'Hagan, Bayes-Hermite quadrature, 1991, section 2; Rasmussen and Ghahramani, Bayesian Monte Carlo, 2003,
        equations (9) and (10).
    """
    if isinstance(embedding, BayesianConditionalMeanEmbedding):
        return embedding.inner_product(posterior, query)
    return posterior.of(Embedded(embedding, query))
