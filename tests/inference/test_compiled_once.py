"""A second fit to data of the same shapes compiles nothing: data and a model's numbers are arguments of programs."""

import jax
import numpy as np
import pytest
from numpyro import distributions as dist

import kpp
from kpp.kernels import RBF
from kpp_models import GPRegression


def regression(seed, linear_model):
    lengthscale = dist.LogNormal(0.1 * seed, 0.5)  # the prior has other numbers, too
    return GPRegression(RBF(lengthscale.expand([3])), noise_variance=dist.LogNormal(-1.0, 0.5), mean=0.1 * seed)


def linear(seed, linear_model):
    return linear_model(dist.Normal(0.1 * seed, 1.0).expand([3]), 0.5 + 0.1 * seed)


def fit_and_use(seed, model, inference):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    fit = model.fit(jax.random.key(seed), x, y, inference=inference, num_prior_samples=0)
    fit.predict(x[:5], covariance=True)
    fit.sample_predictive(jax.random.key(0), x[:5], 3)


MAP = kpp.MAP(num_restarts=1, progress=False)
LAPLACE = kpp.Laplace(num_samples=4, num_restarts=0, progress=False)


@pytest.mark.nightly_variants("regression-inference2")
@pytest.mark.parametrize(
    ("model", "inference"),
    [(linear, LAPLACE), *(pytest.param(regression, inference, marks=pytest.mark.slow) for inference in (MAP, LAPLACE))],
)
def test_a_second_data_set_compiles_nothing(model, inference, linear_model, compilations):
    fit_and_use(1, model(1, linear_model), inference)
    assert compilations  # else the test would see nothing
    compilations.clear()
    fit_and_use(2, model(2, linear_model), inference)
    assert compilations == []
