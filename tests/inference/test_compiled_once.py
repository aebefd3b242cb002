"""A second fit to data of the same shapes compiles nothing: data and a model's numbers are arguments of programs."""

import jax
import numpy as np
import pytest
from numpyro import distributions as dist

import kpp
from kpp.kernels import RBF
from kpp_models import GPRegression


def fit_and_use(seed, inference):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    lengthscale = dist.LogNormal(0.1 * seed, 0.5)  # the prior has other numbers, too
    model = GPRegression(RBF(lengthscale.expand([2])), noise_variance=dist.LogNormal(-1.0, 0.5), mean=0.1 * seed)
    fit = model.fit(jax.random.key(seed), x, y, inference=inference, num_prior_samples=0)
    fit.predict(x[:5])
    fit.predict(x[:5], covariance=True)
    fit.sample_predictive(jax.random.key(0), x[:5], 3)
    return fit


@pytest.mark.parametrize(
    "inference", [kpp.MAP(num_restarts=1, progress=False), kpp.Laplace(num_samples=4, num_restarts=0, progress=False)]
)
def test_a_second_data_set_compiles_nothing(inference, compilations):
    fit_and_use(1, inference)
    assert compilations  # else the test would see nothing
    compilations.clear()
    fit_and_use(2, inference)
    assert compilations == []
