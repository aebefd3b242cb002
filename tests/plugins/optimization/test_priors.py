"""Priors and beliefs: conditioning against solving the whole system, moments of draws, learned hyperparameters."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from kpp.kernels import RBF
from kpp_optimization import (
    Belief,
    FitPrior,
    FunctionPrior,
    KernelPrior,
    RefittedPrior,
    WidenedPrior,
)

POINTS = jnp.linspace(-2.0, 2.0, 9)[:, None]


def condition_by_brute_force(mean, covariance, index, values, noise_variance):
    """Solve for all observations at once, repeated ones included."""
    gain = np.linalg.solve(covariance[np.ix_(index, index)] + noise_variance * np.eye(len(index)), covariance[index]).T
    return mean + gain @ (values - mean[index]), covariance - gain @ covariance[index]


@pytest.mark.parametrize("noise_variance", [0.3, 0.0])
def test_one_observation_after_the_other_is_all_at_once(noise_variance):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    mean, covariance = rng.normal(size=6), root @ root.T
    index, values = np.array([4, 1, 5, 1] if noise_variance else [4, 1, 5]), rng.normal(size=4)
    belief = Belief.create(mean, covariance)
    for i, value in zip(index, values, strict=False):
        belief = belief.observe(int(i), float(value), noise_variance)
    expected = condition_by_brute_force(mean, covariance, index, values[: len(index)], noise_variance)
    # The nugget, 1e-10 of the variance, is what they differ by; the condition number is below 100.
    np.testing.assert_allclose(belief.mean, expected[0], atol=1e-7)
    np.testing.assert_allclose(belief.covariance, expected[1], atol=1e-7)


@pytest.mark.slow
def test_the_standard_deviation_of_what_is_known_is_zero():
    belief = Belief.create(np.zeros(9), np.asarray(RBF(1.0).gram(POINTS)))
    for i in range(9):  # a matrix with a condition number of 1e8
        belief = belief.observe(i, np.sin(i))
    np.testing.assert_allclose(belief.mean, np.sin(np.arange(9)), atol=1e-3)
    assert (belief.standard_deviation < 3e-5).all()  # a few times the root of the nugget


class DrawnFit:
    """Stands for a fit: draws of mean and covariance with dims (chain, draw, ...)."""

    def __init__(self, means, covariances):
        self.means, self.covariances = means, covariances

    def predict(self, x, *, covariance=False):
        dims = ("chain", "draw", "instance")
        arrays = {"mean": (dims, self.means), "latent_covariance": ((*dims, "instance_other"), self.covariances)}
        assert covariance and x.shape == (3, 1)
        return xr.Dataset(arrays)


def test_the_posterior_of_a_fit_is_the_mixture_of_its_draws():
    """Against the moments of 4e5 samples of the mixture; five standard errors are allowed."""
    rng = np.random.default_rng(1)
    means, roots = rng.normal(size=(2, 2, 3)), rng.normal(size=(2, 2, 3, 3))
    covariances = roots @ np.swapaxes(roots, -1, -2)
    mean, covariance = FitPrior(DrawnFit(means, covariances)).moments(POINTS[:3])
    samples = np.concatenate(
        [multivariate_normal(means[c, d], covariances[c, d]).rvs(100_000, rng) for c in range(2) for d in range(2)]
    )
    sd = samples.std(axis=0)
    np.testing.assert_array_less(np.abs(mean - samples.mean(axis=0)), 5 * sd / np.sqrt(len(samples)))
    np.testing.assert_array_less(np.abs(covariance - np.cov(samples.T)), 10 * np.outer(sd, sd) / np.sqrt(len(samples)))


def test_priors_by_functions_by_kernel_and_widened():
    kernel = RBF(0.7, 2.0)
    by_functions = FunctionPrior(lambda x: jnp.full(len(x), 0.5), kernel)
    for first, second in zip(by_functions.moments(POINTS), KernelPrior(kernel, 0.5).moments(POINTS), strict=True):
        np.testing.assert_array_equal(first, second)
    mean, covariance = WidenedPrior(by_functions, RBF(1.0)).moments(POINTS)
    np.testing.assert_array_equal(mean, 0.5)
    np.testing.assert_allclose(covariance, np.asarray(RBF(1.0).gram(POINTS)) + 2.0, rtol=1e-12)  # sd * sd' = 2


def test_the_refitted_prior_has_the_scale_and_lengthscale_of_highest_density():
    """Against SciPy: the density of the queries, times that of the scale, over a grid of lengthscales."""
    index, lengthscales = np.array([0, 3, 4, 8]), np.array([0.3, 0.6, 1.2, 2.4])
    values, start = np.array([1.0, -0.5, 0.2, 2.0]), 1.5
    found = RefittedPrior(lengthscales, scale=start).given(POINTS, index, values, 0.0)

    def negative_density(log_scale, gram):
        likelihood = multivariate_normal(np.full(4, values.mean()), np.exp(log_scale) * gram).logpdf(values)
        return -likelihood + 0.5 * log_scale + 0.5 * start * np.exp(-log_scale)

    grams = [np.asarray(RBF(lengthscale).gram(POINTS[index])) for lengthscale in lengthscales]
    fits = [minimize_scalar(negative_density, args=(gram,), tol=1e-10) for gram in grams]
    best = int(np.argmin([fit.fun for fit in fits]))
    assert found.lengthscale == lengthscales[best]
    np.testing.assert_allclose([found.mean, found.variance], [values.mean(), np.exp(fits[best].x)], rtol=1e-6)
    assert 0 < best  # the shortest is not simply taken


def test_bad_priors_are_refused():
    with pytest.raises(ValueError, match="`lengthscales` must be"):
        RefittedPrior([1.0, -1.0])
    with pytest.raises(ValueError, match="`scale` must be positive, got 0"):
        RefittedPrior([1.0], scale=0.0)
