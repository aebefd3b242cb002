r"""The contracts of likelihoods of n observations, and of one latent value for each; a likelihood by a function."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp.foundation.validation import as_array, as_targets, refuse_masked, wrong_kind
from kpp.gp.integrals.expectations import expectation, log_expectation
from kpp.gp.integrals.links import Derivatives
from kpp.gp.laws.gaussian_laws import LatentPredictive, draw_joint
from kpp.typing import AnyArray, RngKey

Likelihood = TypeVar("Likelihood", bound="AbstractLikelihood")


def observed_field(name: str = "y") -> Any:
    """Return an Equinox field that holds one value for each observation, (n,), or None before they are known.

    Args:
        name: The field's name for messages.
    """

    def convert(value: Any) -> Array | None:
        if value is None or isinstance(value, jax.Array):
            return value
        refuse_masked(value, name)
        array = as_array(value, name)
        if array.dtype.kind not in "biuf":
            raise wrong_kind(value, name, ["an array of numbers", "None"])
        return jnp.asarray(array)

    return eqx.field(converter=convert, default=None)


class AbstractLikelihood(eqx.Module):
    r"""The likelihood of n observations given their latent values.

    Its arrays hold the observations `y`, and the parameters, if any. A likelihood without observations (y is None) is a
    part of a model; `observe` adds them.
    """

    #: The number of axes of the latent values: 1 for (n,), 2 for several latent values per observation.
    latent_ndim: ClassVar[int] = 1
    #: The fields that hold one value for each observation.
    per_observation: ClassVar[tuple[str, ...]] = ("y",)

    @abstractmethod
    def log_density(self, f: Float[AnyArray, "n *l"]) -> Float[Array, " n"]:
        r"""Return :math:`\log p_i(y_i \mid f_i)` for every i."""

    @abstractmethod
    def expected_log_density(
        self, mean: Float[AnyArray, "n *l"], variance: Float[AnyArray, "n *l"]
    ) -> Float[Array, " n"]:
        r"""Return :math:`E \log p_i(y_i \mid f)` for every i, over independent :math:`f \sim N(\mu, v)`."""

    @abstractmethod
    def marginal_log_density(
        self, mean: Float[AnyArray, "n *l"], variance: Float[AnyArray, "n *l"]
    ) -> Float[Array, " n"]:
        r"""Return :math:`\log E\, p_i(y_i \mid f)` for every i, over independent :math:`f \sim N(\mu, v)`."""

    @abstractmethod
    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Array:
        """Draw one new observation per point, given latent values that may differ from those of the observations."""

    def draw_observed(self, rng_key: RngKey, f: Float[AnyArray, "n *l"]) -> Array:
        """Draw the n observations anew, given their latent values; by default as at any other points."""
        return self.draw(rng_key, f)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return ()

    @property
    def support(self) -> Any:
        """The NumPyro constraint on one observation; real numbers by default."""
        return constraints.real

    def observe(self: Likelihood, y: Array) -> Likelihood:
        """Return the likelihood of these observations."""
        return eqx.tree_at(lambda tree: tree.y, self, jnp.asarray(y), is_leaf=lambda leaf: leaf is None)

    def take(self: Likelihood, rows: Array) -> Likelihood:
        """Return the likelihood of some of the observations."""
        names = [name for name in self.per_observation if np.ndim(getattr(self, name))]
        chosen = [jnp.asarray(getattr(self, name))[rows] for name in names]
        return eqx.tree_at(lambda tree: [getattr(tree, name) for name in names], self, chosen) if names else self


class AbstractPointwiseLikelihood(AbstractLikelihood):
    r"""The likelihood of n observations, :math:`\prod_i p_i(y_i \mid f_i)`, as a function of n latent values.

    Laplace's approximation is differentiable in its parameters.

    Law: `derivatives` are those of :math:`\log p_i`, which is concave if `log_concave` says so.
    """

    #: Whether :math:`\log p_i` is concave in the latent value; Laplace's approximation needs this.
    log_concave: ClassVar[bool] = True

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        r"""Return :math:`\partial \log p_i`, :math:`-\partial^2 \log p_i` and :math:`\partial^3 \log p_i`."""
        first = _slope(self.log_density)
        second = _slope(first)
        f = jnp.asarray(f)
        return Derivatives(first(f), -second(f), _slope(second)(f))

    def read_targets(self, y: object, name: str = "y") -> Float[Array, " n"]:
        """Read the observations that a user gives, by default any finite numbers.

        Raises:
            ValueError: If they do not fit the likelihood.
        """
        return as_targets(y, name=name)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, "p *k"]]:
        r"""Return predictive quantities besides the latent moments, for :math:`f \sim N(\mu, v)`; none by default.

        Args:
            mean: :math:`\mu`, (p,).
            variance: v, (p,).

        Returns:
            Some of ``noise_variance``, ``probability`` and ``response_mean``, each (p,), or quantities specific to the
            likelihood.
        """
        return {}

    def response_mean(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return the means of the n observations for :math:`f \sim N(\mu, v)`; by default :math:`\mu`."""
        return jnp.asarray(mean)

    def draw_predictive(self, rng_key: RngKey, latent: LatentPredictive, scale: Float[AnyArray, ""]) -> Array:
        """Draw one new observation at each of p points; their latent values are drawn jointly.

        Args:
            rng_key: A random key.
            latent: The law of the latent values, with their covariance.
            scale: The prior variance of the latent values, for `kpp.gp.draw_joint`.

        Returns:
            The observations, with the axis of the p points first.
        """
        latent_key, observation_key = jax.random.split(rng_key)
        return self.draw(observation_key, draw_joint(latent_key, latent, scale))

    def draw_again(self, rng_key: RngKey, latent: LatentPredictive, scale: Float[AnyArray, ""]) -> Array:
        """Draw the n observations anew, given the joint law of their latent values; see `draw_predictive`."""
        latent_key, observation_key = jax.random.split(rng_key)
        return self.draw_observed(observation_key, draw_joint(latent_key, latent, scale))

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return :math:`\log \int p_i(y_i \mid f)\, N(f; \mu_i, v_i)\, df` for every i."""
        return log_expectation(self.log_density, mean, variance)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        r"""Return :math:`\int \log p_i(y_i \mid f)\, N(f; \mu_i, v_i)\, df` for every i."""
        return expectation(self.log_density, mean, variance)


def _slope(function: Any) -> Any:
    """Return the derivative of a function that maps n numbers to n numbers, elementwise."""
    return lambda at: jax.jvp(function, (at,), (jnp.ones_like(at),))[1]


class FunctionLikelihood(AbstractPointwiseLikelihood):
    """The law of the observations as a function of their latent values and exposures.

    Its density should be log-concave in the latent values, because Laplace's approximation takes it as such unchecked.

    Args:
        function: Takes f (n,) and the exposure, and returns a NumPyro distribution with the batch shape (n,).
        y: The observations, (n,), or None.
        exposure: (n,), or None.
    """

    per_observation: ClassVar[tuple[str, ...]] = ("y", "exposure")

    function: Callable[[Any, Any], dist.Distribution] = eqx.field(static=True)
    y: Any = observed_field()
    exposure: Any = observed_field("exposure")

    @property
    def support(self) -> Any:
        like = self.exposure if self.y is None else self.y  # the support is taken at latent values of 0
        return self.function(jnp.zeros(()) if like is None else jnp.zeros_like(like), self.exposure).support

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return self.function(f, self.exposure).log_prob(self.y)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Array:
        """Draw observations at an exposure of 1, or without an exposure if there is none."""
        exposure = None if self.exposure is None else jnp.ones_like(jnp.asarray(f))
        return self.function(f, exposure).sample(rng_key)

    def draw_observed(self, rng_key: RngKey, f: Float[AnyArray, " n"]) -> Array:
        exposure = None if self.exposure is None else jnp.broadcast_to(self.exposure, jnp.shape(f))
        return self.function(f, exposure).sample(rng_key)

    def response_mean(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return expectation(lambda f: self.function(f, self.exposure).mean, mean, variance)
