"""The uncertainty of the estimated operator against conditioning by hand, and where it shows."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as SklearnRBF

import kpp
from kpp.kernels import RBF
from kpp_models import CMP
from kpp_models.aggregates.operators.conditional_mean import ConditionalMeanOperator, Places, operator_amplitude
from oracles.kernels import rbf

RNG = np.random.default_rng(0)
SIZES = np.array([2, 4, 3, 2, 4])
BAG = np.repeat(np.arange(5), SIZES)
COVARIATES = np.linspace(-1.0, 0.0, 5)[:, None]
X = COVARIATES[BAG] + 0.2 * RNG.normal(size=(15, 1))
TARGETS = np.linspace(0.0, 1.0, 4)[:, None]
Z = RNG.normal(size=4) + 1.0
FIELD_AT, NEW = np.array([[-0.8], [0.3], [1.0]]), np.array([[-0.4], [1.4]])
amplitude = eqx.filter_jit(operator_amplitude)
LAMBDA, NOISE, MEAN, LENGTHS = 0.02, 0.1, 0.7, (0.6, 0.5)
ESTIMATORS = ["exact", pytest.param("shrinkage", marks=pytest.mark.slow)]
BAGS = kpp.Bags.create(X, BAG, COVARIATES)


def penalty(estimator):
    return LAMBDA * (SIZES.sum() / SIZES if estimator == "exact" else np.full(5, 5.0))


def by_hand(estimator, tau2):
    """Condition the joint Gaussian of f at points, residuals of g at places, and noise, on the targets."""
    everywhere = np.vstack([TARGETS, NEW])
    regularized = rbf(COVARIATES, COVARIATES, LENGTHS[1]) + np.diag(penalty(estimator))
    sections = rbf(COVARIATES, everywhere, LENGTHS[1])
    weights = np.linalg.solve(regularized, sections)
    residual = tau2 * (rbf(everywhere, everywhere, LENGTHS[1]) - sections.T @ weights)
    points = np.vstack([X, FIELD_AT])
    averages = np.zeros((5, 18))
    averages[BAG, np.arange(15)] = 1 / SIZES[BAG]
    to_aggregates = np.hstack([weights.T @ averages, np.eye(6)])  # of (f at 18 points, 6 residuals)
    prior = np.zeros((24, 24))
    prior[:18, :18], prior[18:, 18:] = rbf(points, points, LENGTHS[0]), residual
    prior_mean = np.concatenate([np.full(18, MEAN), np.zeros(6)])
    select = np.zeros((3, 24))
    select[np.arange(3), 15 + np.arange(3)] = 1.0
    wanted, seen = np.vstack([select, to_aggregates[4:]]), to_aggregates[:4]
    gain = wanted @ prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + NOISE * np.eye(4))
    mean = wanted @ prior_mean + gain @ (Z - seen @ prior_mean)
    return mean, wanted @ prior @ wanted.T - gain @ seen @ prior @ wanted.T


def cmp(tau2, estimator="exact"):
    return CMP(RBF(LENGTHS[0]), RBF(LENGTHS[1]), NOISE, LAMBDA, mean=MEAN, operator_variance=tau2, estimator=estimator)


@eqx.filter_jit
def moments(model, data, field_at, new):
    field = model.predictive({}, data, field_at, covariance=True)
    places = Places(new, jnp.zeros(new.shape[0], dtype=data["target_source"].dtype))
    return field, model.aggregate_moments({}, data, places, field_at)


def posterior(tau2, estimator="exact"):
    model, data, _ = cmp(tau2, estimator).prepare(BAGS, Z, covariates=TARGETS)
    field, aggregate = moments(model, data, jnp.asarray(FIELD_AT), jnp.asarray(NEW))
    mean = np.concatenate([field["mean"], aggregate["mean"]])
    cross = np.asarray(aggregate["field_covariance"])
    return mean, np.block([[field["latent_covariance"], cross], [cross.T, aggregate["latent_covariance"]]])


@pytest.mark.slow_variants("exact-0.8")
@pytest.mark.parametrize(
    ("estimator", "tau2"), [("exact", 0.8), pytest.param("shrinkage", 2.5, marks=pytest.mark.slow)]
)
def test_field_and_aggregates_are_conditioned_by_hand(estimator, tau2, tolerance):
    for found, expected in zip(posterior(tau2, estimator), by_hand(estimator, tau2), strict=True):
        np.testing.assert_allclose(found, expected, **tolerance(factor=10))


@pytest.mark.slow
def test_without_it_the_operator_is_taken_as_known(tolerance):
    for found, expected in zip(posterior(0.0), by_hand("exact", 0.0), strict=True):
        np.testing.assert_allclose(found, expected, **tolerance(factor=10))
    # What 1e-9 adds to the covariance of the targets moves nothing by more than some 1e-8, the noise being 0.1.
    for found, expected in zip(posterior(1e-9), posterior(0.0), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_the_joint_posterior_stays_positive_and_widens():
    narrow, wide = (posterior(tau2)[1] for tau2 in (0.0, 1.0))
    assert np.linalg.eigvalsh(wide).min() > -1e-12
    # More noise in the targets: no functional of f is known better.
    assert np.linalg.eigvalsh(wide[:3, :3] - narrow[:3, :3]).min() > -1e-12
    ratio = np.diag(wide)[3:] / np.diag(narrow)[3:]
    assert ratio[1] > ratio[0] > 1  # at y = 1.4, beyond all bags, more than at y = -0.4, among them


@pytest.mark.slow_variants("exact")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_it_is_the_posterior_covariance_of_the_regression_on_covariates(estimator):
    """scikit-learn's, on bags, or on points that carry their bag's covariate."""
    rows = COVARIATES[BAG] if estimator == "exact" else COVARIATES
    regression = GaussianProcessRegressor(SklearnRBF(LENGTHS[1], "fixed"), alpha=len(rows) * LAMBDA, optimizer=None)
    _, expected = regression.fit(rows, np.zeros(len(rows))).predict(NEW, return_cov=True)
    source = jnp.zeros(5, dtype=int)
    operator = ConditionalMeanOperator((RBF(LENGTHS[1]),), jnp.asarray(LAMBDA), estimator, BAGS, source)
    places = Places(jnp.asarray(NEW), source[:2])
    found = eqx.filter_jit(lambda part: part.residual_covariance(places, places))(operator)
    np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.slow_variants("exact")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_amplitude_is_the_most_likely_one_on_average(estimator):
    """By the average log-likelihood of 4000 fields on a grid of scales, and in closed form."""
    regularized = rbf(COVARIATES, COVARIATES, LENGTHS[1]) + np.diag(penalty(estimator))
    averages = np.zeros((5, 15))
    averages[BAG, np.arange(15)] = 1 / SIZES[BAG]
    second = averages @ (rbf(X, X, LENGTHS[0]) + MEAN**2) @ averages.T
    found = amplitude(RBF(LENGTHS[0]), RBF(LENGTHS[1]), BAGS, LAMBDA, mean=MEAN, estimator=estimator)
    np.testing.assert_allclose(found, np.trace(np.linalg.solve(regularized, second)) / 5, rtol=1e-10)

    means = np.linalg.cholesky(second + 1e-12 * np.eye(5)) @ RNG.normal(size=(5, 4000))
    grid = float(found) * np.linspace(0.5, 1.5, 101)
    quadratic = np.mean(np.sum(means * np.linalg.solve(regularized, means), axis=0))
    best = grid[np.argmax(-0.5 * quadratic / grid - 2.5 * np.log(grid))]
    np.testing.assert_allclose(best, found, rtol=0.1)  # five standard errors: quadratic forms of 4000 vectors


@pytest.mark.slow
def test_the_amplitude_is_one_where_points_are_their_own_covariates():
    points = np.linspace(-1.0, 1.0, 6)[:, None]
    bags = kpp.Bags.of_single_points(points, points)
    found = amplitude(RBF(0.3), RBF(0.3), bags, 1e-12)
    np.testing.assert_allclose(found, 1.0, rtol=1e-6)  # the condition number of the kernel matrix times 1e-11


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="`bags` must have covariates"):
        operator_amplitude(RBF(), RBF(), kpp.Bags.create(X, BAG), 0.1)
    with pytest.raises(ValueError, match="`estimator` must be one of .* got 'naive'"):
        operator_amplitude(RBF(), RBF(), BAGS, 0.1, estimator="naive")
