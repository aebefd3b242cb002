"""Functions drawn from a posterior: their law is the exact posterior, and they can be compiled and differentiated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist

import kpp
from kpp.functionals import Values
from kpp.kernels import (
    RBF,
    Categorical,
    DeepKernel,
    Linear,
    Matern32,
    Matern52,
    Periodic,
    Preferential,
    ProductKernel,
)
from kpp_models import GPRegression, sample_function

RNG = np.random.default_rng(0)
X, QUERIES = np.round(RNG.normal(size=(8, 2)) * 2) / 2, RNG.normal(size=(3, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
KERNELS = {
    "a product on columns, and a trend": Matern32(1.0).on(0) * Periodic(1.0, period=2.0).on(1) + Linear(0.5),
    "a kernel per feature": ProductKernel((RBF(1.0), Matern52(1.0))) * 2.0,
    "stationary times finite": RBF(1.0) * Linear(1.0) + 0.5,
    "categories": Categorical(np.array([0.3, 0.5])),
}


def posterior_of(kernel, x=X, noise=0.1):
    model, data, _ = GPRegression(kernel, noise).prepare(x, Y)
    return model.posterior_draw({}, data)


@pytest.mark.nightly_variants("stationary times finite", "a kernel per feature")
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_mean_and_covariance_over_the_draws_are_those_of_the_posterior(name):
    # Over the keys both moments are exact for any number of frequencies, so only the number of draws matters: five
    # standard errors of a normal sample are allowed for 9 numbers; with 50 frequencies the kurtosis adds little.
    posterior = posterior_of(KERNELS[name], np.round(X) if name == "categories" else X)
    x, count = jnp.asarray(np.round(QUERIES) if name == "categories" else QUERIES), 3000

    @jax.jit
    def draw(key):
        return sample_function(key, posterior, num_frequencies=50)(x)

    drawn = np.asarray(jax.lax.map(draw, jax.random.split(jax.random.key(1), count)))
    law = posterior.of(Values(x))
    mean, covariance = np.asarray(law.mean), np.asarray(law.covariance)
    variance = np.diag(covariance)
    assert np.all(np.abs(drawn.mean(0) - mean) < 5 * np.sqrt(variance / count) + 1e-9)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    assert np.all(np.abs(np.cov(drawn.T) - covariance) < 5 * error + 1e-9)


@pytest.mark.slow
def test_a_drawn_function_can_be_compiled_and_differentiated_and_keeps_values_without_noise():
    function = sample_function(
        jax.random.key(0), posterior_of(RBF(np.array([0.7, 1.2]), variance=1.5), noise=0.0), num_frequencies=200
    )
    # The nugget of the draw has the standard deviation 1e-5 in units of the prior.
    np.testing.assert_allclose(function(X), Y, atol=1e-4)
    compiled = jax.jit(lambda f, x: f(x[None])[0])  # a drawn function is a pytree
    point, step = jnp.asarray(QUERIES[0]), 1e-5
    gradient = jax.grad(compiled, argnums=1)(function, point)
    moved = [[compiled(function, point + sign * step * unit) for sign in (1, -1)] for unit in np.eye(2)]
    # The rounding error of central differences is 1e-16 / 1e-5, times the values of the features, about 1e2.
    np.testing.assert_allclose(gradient, [(up - down) / (2 * step) for up, down in moved], atol=1e-7)
    np.testing.assert_allclose(compiled(function, point), function(point[None])[0], rtol=1e-10)


@pytest.mark.slow
def test_a_fit_draws_its_hyperparameters_too():
    model = GPRegression(RBF(dist.LogNormal(0.0, 1.0)), 0.01)
    model, data, schema = model.prepare(X, Y)
    fit = kpp.Fit(model, None, data, schema, {"kernel.lengthscale": jnp.array([[0.3, 3.0]])}, kpp.MAP())
    functions = [sample_function(jax.random.key(seed), fit, num_frequencies=20) for seed in range(6)]
    assert {float(function.update.kernel.lengthscale) for function in functions} == {0.3, 3.0}
    assert functions[0](QUERIES).shape == (3,)


@pytest.mark.nightly
def test_functions_of_pairs_are_skew_symmetric():
    pairs = jnp.stack([X[:4], X[4:]], axis=1)
    mean = kpp.RKHSFunction(Preferential(RBF(1.0)), pairs, jnp.ones(4))
    function = sample_function(jax.random.key(0), kpp.GPPosterior(mean, jnp.eye(4) * 0.1), num_frequencies=20)
    np.testing.assert_allclose(function(pairs[:, ::-1]), -function(pairs), atol=1e-12)


def test_kernels_without_features_and_bad_numbers_are_refused():
    network = lambda x: x  # noqa: E731
    mean = kpp.RKHSFunction(DeepKernel(RBF(1.0), network), X, jnp.ones(8))
    posterior = kpp.GPPosterior(mean, jnp.eye(8) * 0.1)
    with pytest.raises(TypeError, match="DeepKernel has a part that is neither stationary nor of finitely many"):
        sample_function(jax.random.key(0), posterior)
    with pytest.raises(TypeError, match="`posterior` must be"):
        sample_function(jax.random.key(0), None)
    with pytest.raises(ValueError, match="`num_frequencies` must be"):
        sample_function(jax.random.key(0), posterior_of(RBF(np.array([0.7, 1.2]), variance=1.5)), num_frequencies=0)
    with pytest.raises(ValueError, match="finite"):
        sample_function(jax.random.key(0), posterior_of(RBF(np.array([0.7, 1.2]), variance=1.5)))(
            np.full((1, 2), np.nan)
        )
