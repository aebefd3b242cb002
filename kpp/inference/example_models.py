"""The NumPyro models in the examples of inferences, for the conformance suite: a linear regression, written twice."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.typing import RngKey

_NOISE_VARIANCE = 0.25


def regression_data(rng_key: RngKey) -> dict[str, Array]:
    """Return points x (12, 2) and targets y (12,) that are far from those of weights at their prior mean."""
    x = jax.random.normal(rng_key, (12, 2))
    return {"x": x, "y": x @ jnp.array([1.5, -1.0]) + 0.1 * jnp.cos(jnp.arange(12.0))}


def linear_regression(x: Float[Array, "n d"], y: Float[Array, " n"] | None = None) -> None:
    r"""The model :math:`y_i \sim N(w^\top x_i, s^2)` with priors on the weights and on the noise s."""
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    mean = numpyro.deterministic("mean", x @ weights)
    with numpyro.plate("instance", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def regression_through_features(x: Float[Array, "n d"], y: Float[Array, " n"] | None = None) -> None:
    """The same regression with known noise, its points as features, in the form that `kpp.NaturalGradient` needs."""
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("instance", x.shape[0]):
        numpyro.sample("y", _ThroughFeatures(x, weights), obs=y)


class _Gaussian(eqx.Module):
    """A Gaussian likelihood of known variance."""

    y: Any = None

    def observe(self, y: Float[Array, " n"]) -> _Gaussian:
        return _Gaussian(y)

    def expected_log_density(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> Float[Array, " n"]:
        density = dist.Normal(mean, jnp.sqrt(_NOISE_VARIANCE)).log_prob(self.y)
        return density - 0.5 * variance / _NOISE_VARIANCE


class _ThroughFeatures(dist.Distribution):
    """Observations of a function that is linear in its weights."""

    support = dist.constraints.real
    pytree_data_fields = ("likelihood", "features", "white", "scale", "loc", "latent_variance")

    whitened = "weights"

    def __init__(self, features: Float[Array, "n w"], white: Float[Array, " w"]) -> None:
        self.likelihood, self.features, self.white = _Gaussian(), features, white
        self.scale, self.loc = jnp.ones((), features.dtype), features @ white
        self.latent_variance = jnp.zeros_like(self.loc)
        super().__init__(batch_shape=self.loc.shape)

    def sample(self, key: RngKey, sample_shape: tuple[int, ...] = ()) -> Array:
        return dist.Normal(self.loc, jnp.sqrt(_NOISE_VARIANCE)).sample(key, sample_shape)

    def log_prob(self, value: Array) -> Array:
        return dist.Normal(self.loc, jnp.sqrt(_NOISE_VARIANCE)).log_prob(value)
