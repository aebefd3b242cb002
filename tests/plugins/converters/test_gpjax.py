"""Kernels and exact posteriors of GPJax, and what is refused."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import kpp
from kpp_converters import kernel_from_gpjax

gpjax = pytest.importorskip("gpjax")

from gpjax import kernels
from gpjax.kernels.computations import DiagonalKernelComputation
from gpjax.likelihoods import Gaussian, Poisson
from gpjax.mean_functions import Constant, Zero

RNG = np.random.default_rng(0)
X, X_TEST = jnp.asarray(RNG.normal(size=(12, 3))), jnp.asarray(RNG.normal(size=(5, 3)))
Y = jnp.sin(X[:, :1]) + X[:, 1:2]
DATA = gpjax.Dataset(X, Y)
ARD = jnp.array([0.7, 1.3, 2.0])

two = kernels.Constant(constant=2.0)  # `kernel * 2.0` is an error of GPJax 1.0
KERNELS = {
    "RBF": kernels.RBF(lengthscale=0.8, variance=1.3),
    "RBF, ARD": kernels.RBF(lengthscale=ARD),
    "Matern12": kernels.Matern12(lengthscale=ARD),
    "Matern32": kernels.Matern32(lengthscale=ARD, variance=1.3),
    "Matern52": kernels.Matern52(lengthscale=0.8),
    "RationalQuadratic": kernels.RationalQuadratic(lengthscale=ARD, variance=1.3, alpha=0.6),
    "Periodic": kernels.Periodic(lengthscale=ARD, variance=1.3, period=1.7),
    "Linear": kernels.Linear(variance=0.7),
    "Polynomial": kernels.Polynomial(degree=3, shift=0.6, variance=0.7),
    "columns": kernels.RBF([2, 0], lengthscale=jnp.array([0.7, 1.3])),
    "slice": kernels.Matern32(slice(1, 3), lengthscale=0.7),
    "tree": kernels.RBF([0]) * kernels.Matern52([1, 2]) * two + kernels.Linear([1]) + two,
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_kernels_have_the_same_values(kernel):
    found = kernel_from_gpjax(kernel, 3)(X, X_TEST)
    np.testing.assert_allclose(found, kernel.cross_covariance(X, X_TEST), rtol=1e-12, atol=1e-12)


class Slope(gpjax.mean_functions.AbstractMeanFunction):
    """A mean that GPJax does not have."""

    def __call__(self, x):
        return jnp.sin(x[:, :1]) - 0.5 * x[:, 2:]


def model(kernel=KERNELS["RBF"], mean=None, likelihood=None, **options):
    prior = gpjax.gps.Prior(kernel=kernel, mean_function=Zero() if mean is None else mean, **options)
    return prior * (Gaussian(0.3) if likelihood is None else likelihood)


MODELS = {
    "zero mean": lambda: model(),
    "constant mean, tree": lambda: model(KERNELS["tree"], Constant(0.7)),
    "sum of means": lambda: model(mean=Constant(0.7) + Slope()),
    "jitter": lambda: model(jitter=1e-3),
}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_predictions_and_covariances_agree(build):
    joint = build()
    law = joint.condition(DATA)(X_TEST)
    covariance = law.covariance() - joint.prior.jitter * jnp.eye(5)  # GPJax adds it to what it returns
    for given in (joint.condition(DATA), (joint, DATA)):
        posterior = kpp.as_gp_posterior(given)
        np.testing.assert_allclose(posterior.mean(X_TEST), law.mean, rtol=0, atol=1e-10)
        np.testing.assert_allclose(posterior.covariance(X_TEST, X_TEST), covariance, rtol=0, atol=1e-10)


REFUSED = {
    "kernel gpjax.White": lambda: model(kernels.White()),
    "kernel gpjax.ArcCosine": lambda: model(kernels.ArcCosine()),
    "compute engine DiagonalKernelComputation": lambda: model(kernels.RBF(compute_engine=DiagonalKernelComputation())),
}


@pytest.mark.parametrize(("message", "build"), REFUSED.items(), ids=REFUSED)
def test_what_has_no_counterpart_is_refused_by_name(message, build):
    with pytest.raises(ValueError, match=message):
        kpp.as_gp_posterior(build().condition(DATA))


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("gpjax.ConjugateModel of GPJax holds no data", lambda: model()),
        ("gpjax.VariationalGaussian of GPJax holds no data", lambda: sparse("VariationalGaussian")),
        ("NonConjugateModel is not gpjax.ExactPosterior", lambda: model(likelihood=Poisson())),
    ],
)
def test_what_is_no_posterior_is_a_type_error(message, build):
    with pytest.raises(TypeError, match=message):
        kpp.as_gp_posterior(build())


def sparse(family, *moments, mean=None, **options):
    prior_mean = Constant(0.7) if mean is None else mean
    return getattr(gpjax.variational_families, family)(model(KERNELS["tree"], prior_mean, **options), X[:5], *moments)


ROOT = jnp.linalg.cholesky(0.3 * jnp.eye(5) + 0.02)
CENTER = jnp.linspace(-0.5, 1.0, 5)[:, None]
SPARSE = {
    "collapsed": lambda: sparse("CollapsedVariationalGaussian"),
    "whitened": lambda: sparse("WhitenedVariationalGaussian", CENTER, ROOT),
    "values themselves": lambda: sparse("VariationalGaussian", CENTER, 0.1 * ROOT),
    "values themselves, mean function": lambda: sparse("VariationalGaussian", CENTER, 0.1 * ROOT, mean=Slope()),
    "dual": lambda: sparse("DualVariationalGaussian", CENTER, jnp.eye(5) + 0.1),
    "counts, jitter": lambda: sparse("WhitenedVariationalGaussian", CENTER, ROOT, likelihood=Poisson(), jitter=1e-3),
}


@pytest.mark.parametrize("build", SPARSE.values(), ids=SPARSE)
def test_sparse_predictions_and_covariances_agree(build):
    family = build()
    law = family.condition(DATA)(X_TEST)
    covariance = law.covariance() - family.model.prior.jitter * jnp.eye(5)
    for given in (family.condition(DATA), (family, DATA)):
        posterior = kpp.as_gp_posterior(given)
        np.testing.assert_allclose(posterior.mean(X_TEST), law.mean, rtol=0, atol=1e-9)
        np.testing.assert_allclose(posterior.covariance(X_TEST, X_TEST), covariance, rtol=0, atol=1e-9)


def test_a_variance_above_the_prior_is_refused():
    with pytest.raises(ValueError, match="1.44 times that of the prior"):
        kpp.as_gp_posterior(sparse("WhitenedVariationalGaussian", CENTER, 1.2 * jnp.eye(5)).condition(DATA))
