"""The posterior of sensitivity indices of a Gaussian process against dense algebra over all combinations of rows."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import kpp
from kpp.inspection.variances import function_indices
from kpp.kernels import RBF, Linear, Matern32, ProductKernel
from kpp_models import GPRegression
from oracles.variance_games import all_combinations, indices_of_game, projections

RNG = np.random.default_rng(1)
ROWS = RNG.normal(size=(3, 3))
X = RNG.normal(size=(6, 3))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
NOISE = 0.3
MEASURES = ["first_order", "total", "shapley"]
FORMS = projections(len(ROWS), 3)
GRID = all_combinations(ROWS, [(0,), (1,), (2,)]).reshape(-1, 3)
KERNELS = {
    "rbf": RBF(np.array([0.7, 1.0, 2.0]), variance=1.3),
    "sum": RBF(0.8).on((0, 1)) + 0.6 * RBF(1.5).on((1, 2)) + 0.3,
    "any sign": ProductKernel((Linear(0.5) + 1.0, RBF(1.0), Linear(1.0) + 0.2)) * 0.7,
    "matern": Matern32(np.array([0.7, 1.0, 2.0])),
}


@pytest.fixture(autouse=True)
def one_number_of_points(monkeypatch):
    """Represent every function by as many points, so that programs are shared."""
    for name, num in {"_FEWEST_POINTS": 150, "_MOST_POINTS": 150, "_CHECKED": 50}.items():
        monkeypatch.setattr(function_indices, name, num)


def posterior(kernel, x=X, y=Y):
    """Return the posterior of a regression."""
    inverse = np.linalg.inv(np.asarray(kernel.gram(x)) + NOISE * np.eye(len(x)))
    return kpp.GPPosterior(kpp.RKHSFunction(kernel, x, inverse @ y), np.linalg.cholesky(inverse))


def arrays(scores):
    return np.stack([scores[name].to_numpy().reshape(-1, 3) for name in MEASURES])


def dense_law(process):
    """Return mean and covariance of the function at all combinations of the rows."""
    return np.asarray(process.mean(GRID)), np.asarray(process.covariance(GRID, GRID))


@pytest.mark.nightly_variants("sum", "any sign")
@pytest.mark.slow_variants("any sign", "rbf")
@pytest.mark.parametrize("name", ["rbf", "sum", "any sign"])
def test_the_posterior_mean_is_exact(name):
    r"""E f'Af = m'Am + tr(AC)."""
    process = posterior(KERNELS[name])
    mean, covariance = dense_law(process)
    expected = indices_of_game(lambda kept: mean @ FORMS[kept] @ mean + np.sum(FORMS[kept] * covariance), 3)
    scores = kpp.sensitivity(process, ROWS, relative=False, num_draws=8)
    found = [scores[measure].attrs["posterior_mean"] for measure in MEASURES]
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.slow_variants("sum", "any sign", "matern", "rbf")
@pytest.mark.parametrize("name", KERNELS)
def test_draws_have_the_law_of_quadratic_forms(name):
    r"""Var f'Af = 2 tr(ACAC) + 4 m'ACAm; on 27 points the draws leave nothing out."""
    process, num = posterior(KERNELS[name]), 4000
    mean, covariance = dense_law(process)
    scores = kpp.sensitivity(process, ROWS, relative=False, num_draws=num)
    assert scores.dataset.attrs["variance_left_out"] < 1e-6
    found = arrays(scores)
    for j, measure in itertools.product(range(3), (0, 1)):
        kept = (j,) if measure == 0 else tuple(k for k in range(3) if k != j)
        form = FORMS[kept] if measure == 0 else FORMS[0, 1, 2] - FORMS[kept]
        product = form @ covariance
        sd = np.sqrt(2 * np.trace(product @ product) + 4 * mean @ product @ form @ mean)
        draws = found[measure, :, j]
        # Five standard errors of the mean; the standard deviation of skewed draws has a relative error of some 4 %.
        np.testing.assert_allclose(draws.mean(), mean @ form @ mean + np.trace(product), atol=5 * sd / num**0.5)
        np.testing.assert_allclose(draws.std(), sd, rtol=0.15)


def test_few_points_keep_the_posterior_mean(monkeypatch):
    monkeypatch.setattr(function_indices, "_FEWEST_POINTS", 2)
    monkeypatch.setattr(function_indices, "_MOST_POINTS", 2)
    process = posterior(KERNELS["rbf"])
    scores = kpp.sensitivity(process, RNG.normal(size=(9, 3)), relative=False, num_draws=3000)
    assert 0.1 < scores.dataset.attrs["variance_left_out"] < 1
    for measure in MEASURES:
        draws = scores[measure][0]
        error = draws.std("draw") / 3000**0.5
        assert (abs(draws.mean("draw") - scores[measure].attrs["posterior_mean"]) < 5 * error).all()


@pytest.fixture(scope="module")
def fit():
    model = GPRegression(RBF(dist.LogNormal(0.0, 0.5).expand([3])), noise_variance=0.1)
    inference = kpp.Laplace(num_samples=30, progress=False)
    return model.fit(jax.random.key(0), X, Y, inference=inference, num_prior_samples=0)


@pytest.mark.nightly
def test_a_fit_has_all_of_its_uncertainty(fit):
    scores = kpp.sensitivity(fit, X, num_draws=50)
    assert scores.dataset.sizes == {"chain": 1, "draw": 60, "feature": 3}
    assert scores.dataset.attrs["uncertainty"] == "full"
    assert scores.dataset.attrs["hyperparameter_draws"] == "30 of 30"
    again = kpp.sensitivity(fit, X, num_draws=50, rng_key=jax.random.key(0))
    assert again.dataset.identical(scores.dataset)
    other = kpp.sensitivity(fit, X, num_draws=50, rng_key=jax.random.key(1))
    assert (other["total"] != scores["total"]).all()


@pytest.mark.slow
def test_draws_of_the_posterior_are_taken_like_those_of_the_fit(fit):
    scores = kpp.sensitivity(fit, X, num_draws=30, relative=False)
    same = kpp.sensitivity(fit.function_posterior(), X, num_draws=30, relative=False)
    np.testing.assert_allclose(arrays(same), arrays(scores), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_posterior_means_of_a_function_are_its_draws(fit):
    """The RKHS function of a fit has draws of the hyperparameters only, all of them in the closed form."""
    function = fit.function()
    scores = kpp.sensitivity(function, X)
    assert scores.dataset.attrs["hyperparameter_draws"] == "30 of 30"
    one = kpp.sensitivity(function.at_draw((0, 29)), X)
    np.testing.assert_allclose(arrays(scores)[:, 29], arrays(one)[:, 0], rtol=1e-9)


@pytest.mark.slow
def test_indices_of_dependent_features_have_draws(fit):
    scores = kpp.sensitivity(fit, X, value_function="observational", num_draws=30)
    found = arrays(scores)
    assert np.isfinite(found).all() and (found.std(axis=1) > 0).all()
    # Values at the rows determine these indices, and all rows are among the points of a draw.
    assert scores.dataset.attrs["variance_left_out"] < 1e-4
