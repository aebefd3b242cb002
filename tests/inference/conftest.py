"""A conjugate model whose posterior is known in closed form, against which every inference is held."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import kpp
from kpp.data.tables import read_points
from kpp.foundation.validation import as_targets
from kpp.inference import AbstractModel
from kpp.kernels import Linear


class BayesianLinear(AbstractModel):
    """y ~ N(x w, noise^2) with w ~ N(0, 1): `weights` is a prior or fixed numbers, `noise_scale` too."""

    weights: Any
    noise_scale: Any

    def numpyro_model(self, x, y=None):
        weights = kpp.sample("weights", self.weights)
        scale = kpp.sample("noise_scale", self.noise_scale)
        with numpyro.plate("instance", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)

    def prepare(self, x, y, feature_names=None):
        points, schema = read_points(x, feature_names=feature_names)
        return self, {"x": jnp.asarray(points), "y": as_targets(y, points.shape[0])}, schema

    def _parts(self, sample):
        weights = kpp.priors.substitute("weights", self.weights, sample)
        return jnp.asarray(weights), jnp.asarray(kpp.priors.substitute("noise_scale", self.noise_scale, sample))

    def log_likelihood(self, sample, data):
        weights, scale = self._parts(sample)
        return {"y": dist.Normal(data["x"] @ weights, scale).log_prob(data["y"])}

    def predictive(self, sample, data, x, *, covariance=False):
        weights, scale = self._parts(sample)
        mean = x @ weights
        moments = {
            "mean": mean,
            "latent_variance": jnp.zeros_like(mean),
            "noise_variance": jnp.full(mean.shape, scale**2),
        }
        if covariance:
            moments["latent_covariance"] = jnp.zeros((mean.size, mean.size))
        return moments

    def draw_predictive(self, rng_key, sample, data, x):
        weights, scale = self._parts(sample)
        return x @ weights + scale * jax.random.normal(rng_key, (x.shape[0],))

    def function_draw(self, sample, data):
        # x.w = sum_j w_j k(x, e_j) under the linear kernel: the points are the d unit vectors.
        weights, _ = self._parts(sample)
        return kpp.RKHSFunction(Linear(variance=1.0), jnp.eye(weights.shape[0]), weights)


class Conjugate(eqx.Module):
    """The data and the exact answers at noise 0.5."""

    x: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    noise: float = 0.5


@pytest.fixture(scope="session")
def conjugate():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(20, 3))
    y = x @ np.array([1.0, -0.5, 0.0]) + 0.5 * rng.normal(size=20)
    precision = np.eye(3) + x.T @ x / 0.25
    covariance = np.linalg.inv(precision)
    return Conjugate(x, y, covariance @ x.T @ y / 0.25, covariance)


@pytest.fixture(scope="session")
def linear_model():
    """The class, to be given priors."""
    return BayesianLinear


@pytest.fixture(scope="session")
def prior():
    return dist.Normal(0.0, 1.0).expand([3])


@pytest.fixture(scope="session")
def nuts_fit(linear_model, prior, conjugate):
    inference = kpp.NUTS(num_warmup=200, num_samples=200, num_chains=2, progress=False)
    return linear_model(prior, conjugate.noise).fit(jax.random.key(0), conjugate.x, conjugate.y, inference=inference)


@pytest.fixture(scope="session")
def map_fit(linear_model, prior, conjugate):
    inference = kpp.MAP(progress=False)
    return linear_model(prior, conjugate.noise).fit(jax.random.key(1), conjugate.x, conjugate.y, inference=inference)


@pytest.fixture(scope="session")
def laplace_fit(linear_model, prior, conjugate):
    inference = kpp.Laplace(num_samples=500, progress=False)
    return linear_model(prior, conjugate.noise).fit(jax.random.key(2), conjugate.x, conjugate.y, inference=inference)


@pytest.fixture(scope="session")
def svi_fit(linear_model, prior, conjugate):
    inference = kpp.SVI(guide="multivariate_normal", num_steps=2000, num_samples=1000, progress=False)
    return linear_model(prior, conjugate.noise).fit(jax.random.key(3), conjugate.x, conjugate.y, inference=inference)
