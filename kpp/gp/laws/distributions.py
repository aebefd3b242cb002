"""Marginal likelihoods of Gaussian-process models as NumPyro distributions, for an ``obs=`` site of one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp import linalg
from kpp.gp.laplace.by_features import FeatureCovariance, feature_log_evidence
from kpp.gp.laplace.by_values import draw_whitened, laplace_log_evidence
from kpp.gp.laws.gaussian_laws import gaussian_log_density, prior_factor
from kpp.gp.likelihoods.base import AbstractLikelihood, AbstractPointwiseLikelihood
from kpp.runtime.random import standard_normal
from kpp.typing import AnyArray, RngKey


class GaussianProcessMarginal(dist.Distribution):
    r"""The marginal likelihood of Gaussian-process regression, with a gradient in closed form.

    .. math:: y \sim N(m 1,\; K + \sigma^2 I)

    Equal to `numpyro.distributions.MultivariateNormal`, but several times faster if the gradient is needed (see
    `kpp.gp.laws.gaussian_laws.gaussian_log_density`).

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


class LaplaceMarginal(dist.Distribution):
    r"""Observations of one latent value each, the latent values integrated out by Laplace's approximation.

    .. math:: y_i \sim p(y_i \mid f_i), \qquad f \sim N(m 1, K)

    `log_prob` is the approximate log evidence and has derivatives of every order; `sample` is exact.

    Args:
        mean: m, a scalar, or one number per observation, (n,).
        covariance_matrix: K, of shape (n, n), which may be singular, or a `kpp.gp.FeatureCovariance`.
        likelihood: The likelihood without observations, log-concave.
        whitened: The name of a site of the whitened latent values, if the model's posterior accepts draws of them:
            ``kpp.Laplace(importance=True)`` then draws them. None if it does not.
        validate_args: As for every NumPyro distribution.

    Raises:
        ValueError: If the likelihood is not log-concave.

    References:
        Rasmussen and Williams (2006), equation 3.32.
    """

    arg_constraints = {"loc": constraints.real}
    pytree_data_fields: tuple[str, ...] = ("loc", "covariance_matrix", "likelihood")
    pytree_aux_fields: tuple[str, ...] = ("whitened",)

    def __init__(
        self,
        mean: AnyArray | float,
        covariance_matrix: Float[AnyArray, "n n"] | FeatureCovariance,
        likelihood: AbstractPointwiseLikelihood,
        *,
        whitened: str | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not likelihood.log_concave:
            raise ValueError(
                f"`likelihood` must be log-concave for Laplace's approximation, got {type(likelihood).__name__}"
            )
        self.likelihood, self.whitened = likelihood, whitened
        self.covariance_matrix = jax.tree.map(jnp.asarray, covariance_matrix)
        self.loc = jnp.asarray(mean, dtype=self._dtype)
        num_rows = jnp.shape(jax.tree.leaves(covariance_matrix)[0])[0]
        super().__init__((), (num_rows, *likelihood.observation_shape), validate_args=validate_args)

    @property
    def support(self) -> Any:
        """The constraint on all observations."""
        return constraints.independent(self.likelihood.support, 1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw sets of observations, of shape (*sample_shape, n, *observation_shape)."""
        first, second = jax.random.split(key)
        covariance = self.covariance_matrix
        root = covariance.features if isinstance(covariance, FeatureCovariance) else prior_factor(covariance)
        white = standard_normal(first, (*sample_shape, root.shape[1]), root.dtype)
        return _draw_observed(self.likelihood, second, self.loc + white @ root.T)

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the approximate log evidence of sets of observations, of shape (*sample_shape,)."""
        value, covariance = jnp.asarray(value, dtype=self._dtype), self.covariance_matrix

        def evidence(y: Array) -> Array:
            law = self.likelihood.observe(y)
            if isinstance(covariance, FeatureCovariance):
                return feature_log_evidence(law, covariance.features, self.loc)
            return laplace_log_evidence(law, covariance, self.loc)

        return _over_leading(evidence, value, len(self.event_shape))

    def draw_latents(self, rng_key: RngKey, value: AnyArray) -> tuple[dict[str, Array], Array]:
        """Draw the whitened latent values; see `kpp.gp.laplace.by_values.draw_whitened`.

        Without a name for them, or with a covariance of features, none are drawn, and the log ratio is 0.
        """
        if self.whitened is None or isinstance(self.covariance_matrix, FeatureCovariance):
            return {}, jnp.zeros((), self._dtype)
        law = self.likelihood.observe(jnp.asarray(value, self._dtype))
        white, log_ratio = draw_whitened(rng_key, law, self.covariance_matrix, self.loc)
        return {self.whitened: white}, log_ratio

    @property
    def _dtype(self) -> Any:
        return jax.tree.leaves(self.covariance_matrix)[0].dtype


class InducingBound(dist.LowRankMultivariateNormal):
    r"""The bound of n observations with independent noise, as the density of an observed site, in time of order n w^2.

    .. math:: \log N(y;\, m,\, \Phi \Phi^\top + D) - \tfrac12 \sum_i \frac{r_i}{D_i}, \qquad
        \Phi = K_{nw} L^{-\top}, \quad L L^\top = K_{ww}, \quad r_i = k(x_i, x_i) - \|\phi_i\|^2

    `sample` adds independent noise of the variances r, so that each observation has its own law under the process.

    Args:
        mean: m, a number or (n,).
        features: :math:`\Phi`, (n, w); see `kpp.gp.inducing.features`.
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


class LatentObservations(dist.Distribution):
    r"""Observations of latent values that are known, or Gaussian for the evidence lower bound.

    .. math:: \log p(y_i) := E_{N(f; \mu_i, v_i)} \log p(y_i \mid f) \le \log \int p(y_i \mid f)\, N(f; \mu_i, v_i)\, df

    `sample` is exact: it draws f and then the observation.

    Args:
        likelihood: The likelihood of n observations, without them.
        mean: :math:`\mu`, (n,), or the latent values; (n, l) if an observation has l latent values.
        variance: v, of the same shape; None if the latent values are known.
        validate_args: As for every NumPyro distribution.

    References:
        Hensman, Matthews and Ghahramani, Scalable variational Gaussian process classification, 2015, equation (18).
    """

    arg_constraints = {"loc": constraints.real}
    pytree_data_fields = ("likelihood", "loc", "latent_variance")

    def __init__(
        self,
        likelihood: AbstractLikelihood,
        mean: Float[AnyArray, "n *l"],
        variance: Float[AnyArray, "n *l"] | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.likelihood, self.loc = likelihood, jnp.asarray(mean)
        self.latent_variance = None if variance is None else jnp.asarray(variance)
        super().__init__(self.loc.shape[:1], likelihood.observation_shape, validate_args=validate_args)

    @property
    def support(self) -> Any:
        """The constraint on the observations."""
        return self.likelihood.support

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw observations, of shape (*sample_shape, n, *observation_shape)."""
        first, second = jax.random.split(key)
        latent = jnp.broadcast_to(self.loc, (*sample_shape, *self.loc.shape))
        if self.latent_variance is not None:
            scale = jnp.broadcast_to(jnp.sqrt(self.latent_variance), latent.shape)
            latent = latent + scale * standard_normal(first, latent.shape, latent.dtype)
        return _draw_observed(self.likelihood, second, latent)

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the log densities of observations, or their expectations, of shape (n,)."""
        law = self.likelihood.observe(jnp.asarray(value, self.loc.dtype))
        if self.latent_variance is None:
            return law.log_density(self.loc)
        return law.expected_log_density(self.loc, self.latent_variance)

    @property
    def mean(self) -> Array:
        """The means of the observations, of shape (n,).

        Raises:
            NotImplementedError: If an observation has several latent values.
        """
        if not isinstance(self.likelihood, AbstractPointwiseLikelihood):
            raise NotImplementedError(f"{type(self.likelihood).__name__} has no mean of an observation")
        variance = jnp.zeros_like(self.loc) if self.latent_variance is None else self.latent_variance
        return self.likelihood.response_mean(self.loc, variance)


class FeatureObservations(LatentObservations):
    r"""Observations whose latent values are linear in whitened values z at inducing points, plus an independent rest.

    .. math:: f_{il} \sim N\bigl(c_{il} + s_l\, \phi_i^\top z_l,\; s_l^2\, r_i\bigr)

    `kpp.NaturalGradient` finds the law of z from these parts.

    Args:
        likelihood: The likelihood of n observations, without them.
        center: c, a number, (n,) or (n, l).
        features: :math:`\phi`, (n, w).
        white: z, (w,), or (w, l) if an observation has l latent values.
        rest: r, (n,).
        scale: s, (l,); only with l latent values.
        whitened: The name of the site of z.
        validate_args: As for every NumPyro distribution.
    """

    pytree_data_fields = ("features", "white", "scale")
    pytree_aux_fields = ("whitened",)

    def __init__(
        self,
        likelihood: AbstractLikelihood,
        center: AnyArray | float,
        features: Float[AnyArray, "n w"],
        white: Float[AnyArray, "w *l"],
        rest: Float[AnyArray, " n"],
        scale: Float[AnyArray, " l"] | None = None,
        *,
        whitened: str,
        validate_args: bool | None = None,
    ) -> None:
        self.features, self.white, self.whitened = jnp.asarray(features), jnp.asarray(white), whitened
        several = self.white.ndim == 2
        self.scale = jnp.ones(self.white.shape[1:], self.white.dtype) if scale is None else jnp.asarray(scale)
        each = self.scale[None] if several else self.scale
        variance = jnp.square(each) * (jnp.asarray(rest)[:, None] if several else jnp.asarray(rest))
        super().__init__(
            likelihood, center + each * (self.features @ self.white), variance, validate_args=validate_args
        )


def _draw_observed(likelihood: AbstractLikelihood, key: Array, latent: Float[Array, "..."]) -> Array:
    """Draw the n observations for each set of latent values."""
    draw, sample_shape = likelihood.draw_observed, latent.shape[: latent.ndim - likelihood.latent_ndim]
    for _ in sample_shape:
        draw = jax.vmap(draw)
    return draw(jax.random.split(key, sample_shape) if sample_shape else key, latent)


def _over_leading(log_density: Callable[[Array], Array], value: Array, event_ndim: int = 1) -> Array:
    """Apply a function of an event over all leading axes of an array."""
    for _ in range(value.ndim - event_ndim):
        log_density = jax.vmap(log_density)
    return log_density(value)
