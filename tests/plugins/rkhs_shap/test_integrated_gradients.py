"""Integrated gradients: closed forms, a fine trapezoid rule, and the law of linear functionals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.functionals import Gradient
from kpp.kernels import RBF, Matern12, Matern52, Polynomial
from kpp_models import GPRegression

RNG = np.random.default_rng(0)
POINTS, X, BASELINE = RNG.normal(size=(6, 3)), RNG.normal(size=(2, 3)), np.array([[0.3, -0.2, 0.5]])


def posterior_of(kernel):
    root = jnp.linalg.cholesky(jnp.linalg.inv(kernel.gram(jnp.asarray(POINTS)) + 0.1 * jnp.eye(6)))
    return kpp.GPPosterior(kpp.RKHSFunction(kernel, POINTS, jnp.cos(jnp.arange(6.0)), 0.3), root)


def explain(predictor, x=X, **options):
    return kpp.explain(predictor, x, explainer="integrated-gradients", background=BASELINE, **options)


def test_of_a_quadratic_they_are_the_closed_form():
    """Of f = x'Ax + c'x + e they are (x - b) * (A (x + b) + c)."""
    weights = np.cos(np.arange(6.0))
    found = explain(kpp.RKHSFunction(Polynomial(degree=2, offset=1.0), POINTS, weights))
    quadratic, linear = (POINTS.T * weights) @ POINTS, 2 * weights @ POINTS
    expected = (X - BASELINE) * ((X + BASELINE) @ quadratic + linear)
    np.testing.assert_allclose(found.values, expected, atol=1e-12)
    assert found.attrs["nodes"] == 8


@pytest.mark.slow_variants("RBF")
@pytest.mark.nightly_variants("Matern52")
@pytest.mark.parametrize("kernel", [RBF(jnp.array([0.6, 1.4, 0.9])), Matern52(1.2)], ids=["RBF", "Matern52"])
def test_of_a_mean_they_are_the_integral_along_the_path(kernel):
    """A trapezoid rule of 20,000 steps has an error of some 1e-8."""
    function = posterior_of(kernel).mean
    share = np.linspace(0, 1, 20_001)
    path = BASELINE + share[:, None] * (X[0] - BASELINE)
    slopes = np.asarray(Gradient(path).of(function)).reshape(-1, 3)
    found = explain(function)
    np.testing.assert_allclose(found.values[0], np.trapezoid(slopes, share, axis=0) * (X - BASELINE)[0], atol=1e-7)
    assert found.attrs["completeness_gap"] < 1e-5


@pytest.mark.slow
def test_draws_are_complete_and_have_the_law_of_the_functional():
    posterior = posterior_of(RBF(jnp.array([0.6, 1.4, 0.9])))
    found = explain(posterior, X[:1])
    assert (found.attrs["uncertainty"], found.values.shape) == ("function only", (1, 200, 1, 3))
    np.testing.assert_allclose(
        found.base_values + found.values.sum("feature"), found.predictions.transpose(..., "instance"), atol=1e-8
    )
    share, weight = np.polynomial.legendre.leggauss(40)
    path = BASELINE + (share[:, None] + 1) / 2 * (X[0] - BASELINE)
    law = posterior.of(np.kron(weight[None] / 2, np.diag((X - BASELINE)[0])) @ Gradient(path))
    both = np.concatenate([X[:1], BASELINE])
    change = posterior.covariance(both, both)
    # The sum of the contributions is f(x) - f(b).
    assert law.covariance.sum() == pytest.approx(float(change[0, 0] + change[1, 1] - 2 * change[0, 1]), rel=1e-9)
    draws = explain(posterior, X[:1], rng_key=jax.random.key(3)).values.to_numpy()[0, :, 0]
    np.testing.assert_allclose(draws.mean(axis=0), law.mean, atol=5 * np.sqrt(law.variance.max() / 200))
    # Five standard errors of a variance from 200 draws.
    np.testing.assert_allclose(draws.var(axis=0), law.variance, rtol=5 * np.sqrt(2 / 200))


@pytest.mark.slow
def test_refuses_categories_and_kinks():
    table = pd.DataFrame({"dose": POINTS[:, 0], "place": ["sea", "land"] * 3})
    fit = GPRegression(RBF(1.0).on(["dose"]), noise_variance=0.1).fit(
        jax.random.key(0), table, POINTS[:, 1], inference=kpp.MAP()
    )
    with pytest.raises(ValueError, match="need features that are numbers, and place are categories"):
        kpp.explain(fit, table, explainer="integrated-gradients")
    with pytest.raises(ValueError, match="Matern12 with a kink"):
        explain(posterior_of(Matern12()))
    with pytest.raises(ValueError, match="`tolerance` must be"):
        explain(posterior_of(RBF()), tolerance=0.0)
