"""Marginal likelihoods of Gaussian-process models as NumPyro distributions, for an ``obs=`` site of one vector."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp import linalg
from kpp.gp.feature_laplace import FeatureCovariance, feature_log_evidence
from kpp.gp.gaussian import gaussian_log_density, prior_factor
from kpp.gp.laplace import laplace_log_evidence
from kpp.gp.likelihoods import AbstractPointwiseLikelihood, BernoulliLikelihood
from kpp.gp.links import LINKS
from kpp.random import standard_normal
from kpp.typing import AnyArray
from kpp.validation import one_of

__all__ = [
    "AbstractLaplaceMarginal",
    "ExpectedBernoulli",
    "GaussianProcessMarginal",
    "InducingBound",
    "LaplaceBernoulliMarginal",
]


class GaussianProcessMarginal(dist.Distribution):
    r"""The marginal likelihood of Gaussian-process regression, with a gradient in closed form.

    .. math:: y \sim N(m 1,\; K + \sigma^2 I)

    Equal to `numpyro.distributions.MultivariateNormal`, but several times faster if the gradient is needed (see
    `kpp.gp.gaussian.gaussian_log_density`).

    Args:
        mean: m, a scalar, or one number per observation, (n,).
        kernel_matrix: K, of shape (n, n).
        noise_variance: :math:`\sigma^2`, a scalar.
        validate_args: As for every NumPyro distribution.

    References:
        Rasmussen and Williams (2006), equations 2.30 and 5.9.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.independent(constraints.real, 2),
    }
    support = constraints.real_vector
    reparametrized_params = ["loc", "covariance_matrix"]

    def __init__(
        self,
        mean: AnyArray | float,
        kernel_matrix: Float[AnyArray, "n n"],
        noise_variance: AnyArray | float,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.covariance_matrix = linalg.add_diagonal(kernel_matrix, noise_variance)
        self.loc = jnp.broadcast_to(mean, self.covariance_matrix.shape[:1])
        super().__init__((), self.loc.shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw vectors of observations, of shape (*sample_shape, n)."""
        factor = linalg.cholesky(self.covariance_matrix, what="the covariance matrix of `y`")
        white = standard_normal(key, (*sample_shape, *self.event_shape), factor.dtype)
        return jnp.broadcast_to(self.loc, white.shape) + white @ factor.T

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the log density of vectors of observations, of shape (*sample_shape, n)."""
        value = jnp.asarray(value)
        return _over_leading(lambda y: gaussian_log_density(y - self.loc, self.covariance_matrix), value)

    @property
    def mean(self) -> Array:
        """The mean, of shape (n,)."""
        return self.loc

    @property
    def variance(self) -> Array:
        """The variances, of shape (n,)."""
        return jnp.diagonal(self.covariance_matrix)


class AbstractLaplaceMarginal(dist.Distribution):
    r"""Observations of a latent Gaussian process, the latent values integrated out by Laplace's approximation.

    .. math:: y_i \sim p(y_i \mid f_i), \qquad f \sim N(m 1, K)

    `log_prob` is the approximate log evidence and has derivatives of every order; `sample` is exact. Subclasses define
    the likelihood.

    Args:
        mean: m, a scalar.
        covariance_matrix: K, of shape (n, n), which may be singular, or a `kpp.gp.FeatureCovariance`.
        event_shape: The shape of all observations; its first entry is n.
        validate_args: As for every NumPyro distribution.

    References:
        Rasmussen and Williams (2006), equation 3.32.
    """

    arg_constraints = {"loc": constraints.real}
    pytree_data_fields = ("loc", "covariance_matrix")

    def __init__(
        self,
        mean: AnyArray | float,
        covariance_matrix: Float[AnyArray, "n n"] | FeatureCovariance,
        event_shape: tuple[int, ...],
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.covariance_matrix = jax.tree.map(jnp.asarray, covariance_matrix)
        self.loc = jnp.asarray(mean, dtype=self._dtype)
        super().__init__((), event_shape, validate_args=validate_args)

    @abc.abstractmethod
    def likelihood(self, y: Array) -> AbstractPointwiseLikelihood:
        """Return the likelihood of one data set."""

    def draw(self, key: Array, f: Float[Array, "*sample n"]) -> Array:
        """Draw observations given latent values, (*sample, *event_shape); by default from the likelihood."""
        return self.likelihood(jnp.zeros(self.event_shape, f.dtype)).draw(key, f)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw sets of observations, of shape (*sample_shape, *event_shape)."""
        first, second = jax.random.split(key)
        covariance = self.covariance_matrix
        root = covariance.features if isinstance(covariance, FeatureCovariance) else prior_factor(covariance)
        white = standard_normal(first, (*sample_shape, root.shape[1]), root.dtype)
        return self.draw(second, self.loc + white @ root.T)

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the approximate log evidence of sets of observations, of shape (*sample_shape, *event_shape)."""
        value, covariance = jnp.asarray(value, dtype=self._dtype), self.covariance_matrix

        def evidence(y: Array) -> Array:
            if isinstance(covariance, FeatureCovariance):
                return feature_log_evidence(self.likelihood(y), covariance.features, self.loc)
            return laplace_log_evidence(self.likelihood(y), covariance, self.loc)

        return _over_leading(evidence, value, len(self.event_shape))

    @property
    def _dtype(self) -> Any:
        return jax.tree.leaves(self.covariance_matrix)[0].dtype


class LaplaceBernoulliMarginal(AbstractLaplaceMarginal):
    r"""Labels of a latent Gaussian process, the latent values integrated out by Laplace's approximation.

    .. math:: y_i \sim \mathrm{Bernoulli}(\sigma(f_i)), \qquad f \sim N(m 1, K)

    Args:
        mean: m, a scalar.
        covariance_matrix: K, of shape (n, n), which may be singular, or a `kpp.gp.FeatureCovariance`.
        link: "logit" or "probit".
        validate_args: As for every NumPyro distribution.

    References:
        Rasmussen and Williams (2006), equation 3.32.
    """

    support = constraints.independent(constraints.boolean, 1)
    pytree_aux_fields = ("link",)

    def __init__(
        self,
        mean: AnyArray | float,
        covariance_matrix: Float[AnyArray, "n n"] | FeatureCovariance,
        link: str = "logit",
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.link = one_of(link, "link", LINKS)
        num_rows = jnp.shape(jax.tree.leaves(covariance_matrix)[0])[0]
        super().__init__(mean, covariance_matrix, (num_rows,), validate_args=validate_args)

    def likelihood(self, y: Array) -> BernoulliLikelihood:
        """Return the likelihood of n labels in {0, 1}."""
        return BernoulliLikelihood(y, self.link)


class InducingBound(dist.LowRankMultivariateNormal):
    r"""The bound of n observations with independent noise, as the density of an observed site, in time of order n w^2.

    .. math:: \log N(y;\, m,\, \Phi \Phi^\top + D) - \tfrac12 \sum_i \frac{r_i}{D_i}, \qquad
        \Phi = K_{nw} L^{-\top}, \quad L L^\top = K_{ww}, \quad r_i = k(x_i, x_i) - \|\phi_i\|^2

    `sample` adds independent noise of the variances r, so that each observation has its own law under the process.

    Args:
        mean: m, a number or (n,).
        features: :math:`\Phi`, (n, w); see `kpp.gp.inducing_features`.
        noise: D, the variances of the noise, a number or (n,), positive.
        rest: r, (n,).
        validate_args: As for every NumPyro distribution.

    References:
        Titsias, Variational learning of inducing variables in sparse Gaussian processes, 2009, equation (9).
    """

    pytree_data_fields = ("loc", "cov_factor", "cov_diag", "_capacitance_tril", "rest")

    def __init__(
        self,
        mean: AnyArray | float,
        features: Float[AnyArray, "n w"],
        noise: AnyArray | float,
        rest: Float[AnyArray, " n"],
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.rest = jnp.asarray(rest)
        center, variances = (jnp.broadcast_to(jnp.asarray(value), self.rest.shape) for value in (mean, noise))
        super().__init__(center, jnp.asarray(features), variances, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw vectors of observations, of shape (*sample_shape, n)."""
        first, second = jax.random.split(key)
        values = super().sample(first, sample_shape)
        return values + jnp.sqrt(self.rest) * jax.random.normal(second, values.shape, values.dtype)

    def log_prob(self, value: AnyArray) -> Array:
        """Return the bound for vectors of observations, of shape (*sample_shape, n)."""
        return super().log_prob(value) - 0.5 * jnp.sum(self.rest / self.cov_diag)


class ExpectedBernoulli(dist.Distribution):
    r"""Labels whose latent values are Gaussian, for the evidence lower bound.

    .. math:: \log p(y_i) := E_{N(f; \mu_i, v_i)} \log p(y_i \mid f) \le \log \int p(y_i \mid f)\, N(f; \mu_i, v_i)\, df

    `sample` is exact: it draws f and then the label.

    Args:
        mean: :math:`\mu`, (b,).
        variance: v, (b,).
        link: "logit" or "probit".
        validate_args: As for every NumPyro distribution.

    References:
        Hensman, Matthews and Ghahramani, Scalable variational Gaussian process classification, 2015, equation (18).
    """

    arg_constraints = {"loc": constraints.real, "latent_variance": constraints.nonnegative}
    support = constraints.boolean
    pytree_aux_fields = ("link",)

    def __init__(
        self,
        mean: Float[AnyArray, " b"],
        variance: Float[AnyArray, " b"],
        link: str = "logit",
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.latent_variance, self.link = (
            jnp.asarray(mean),
            jnp.asarray(variance),
            one_of(link, "link", LINKS),
        )
        super().__init__(self.loc.shape, (), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw labels, of shape (*sample_shape, b)."""
        first, second = jax.random.split(key)
        white = standard_normal(first, (*sample_shape, *self.batch_shape), self.loc.dtype)
        center, scale = (jnp.broadcast_to(part, white.shape) for part in (self.loc, jnp.sqrt(self.latent_variance)))
        return BernoulliLikelihood(jnp.zeros_like(self.loc), self.link).draw(second, center + scale * white)

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the expected log probabilities of labels, of shape (b,)."""
        value = jnp.asarray(value, self.loc.dtype)
        return BernoulliLikelihood(value, self.link).expected_log_density(self.loc, self.latent_variance)


def _over_leading(log_density: Callable[[Array], Array], value: Array, event_ndim: int = 1) -> Array:
    """Apply a function of an event over all leading axes of an array."""
    for _ in range(value.ndim - event_ndim):
        log_density = jax.vmap(log_density)
    return log_density(value)
