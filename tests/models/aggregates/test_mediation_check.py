"""The shares that covariates leave unexplained, against leaving out one bag at a time."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import kpp
from kpp.kernels import RBF, Constant, Linear
from kpp_models import check_mediation, operator_errors
from kpp_models.aggregates.mediators.mediation import MediationCheck
from oracles.kernels import rbf

RNG = np.random.default_rng(3)
SIZES = np.array([2, 4, 3, 2, 4, 1, 3])
BAG = np.repeat(np.arange(7), SIZES)
COVARIATES = RNG.uniform(-1.0, 1.0, size=(7, 2))
POINTS = COVARIATES[BAG] + 0.3 * RNG.normal(size=(len(BAG), 2))
BAGS = kpp.Bags.create(POINTS, BAG, COVARIATES)
PLACES, TARGETS = RNG.uniform(-1.0, 1.0, size=(9, 2)), RNG.normal(size=9)
LAMBDA = 0.02


@pytest.mark.slow_variants("exact", "shrinkage")
@pytest.mark.parametrize("estimator", ["exact", "shrinkage"])
def test_operator_errors_are_prior_variances_of_what_other_bags_do_not_predict(estimator):
    found = eqx.filter_jit(operator_errors)(RBF(0.6, 1.3), RBF(0.5), BAGS, LAMBDA, estimator=estimator)
    ridge = LAMBDA * (SIZES.sum() / SIZES if estimator == "exact" else np.full(7, 7.0))
    average = np.zeros((7, len(BAG)))
    average[BAG, np.arange(len(BAG))] = 1 / SIZES[BAG]
    prior = rbf(POINTS, POINTS, 0.6, 1.3)
    for j in range(7):
        others = np.delete(np.arange(7), j)
        gram = rbf(COVARIATES[others], COVARIATES[others], 0.5) + np.diag(ridge[others])
        weights = np.linalg.solve(gram, rbf(COVARIATES[others], COVARIATES[[j]], 0.5))[:, 0]
        difference = average[j] - weights @ average[others]  # on the values at all points
        np.testing.assert_allclose(found[j], difference @ prior @ difference, rtol=1e-9)


def least_share(covariates, outputs):
    """The least share over the documented grid, by scikit-learn and one row left out at a time."""
    centered = outputs - outputs.mean(axis=0)
    scaled = covariates / np.asarray(kpp.kernels.median_heuristic(covariates))
    count, shares = len(covariates), []
    for stretch in (0.25, 0.5, 1.0, 2.0, 4.0):
        for regularization in 10.0 ** np.arange(-6, 0):
            machine = KernelRidge(alpha=regularization * count, kernel="rbf", gamma=0.5 / stretch**2)
            errors = []
            for j in range(count):
                kept = np.arange(count) != j
                predicted = machine.fit(scaled[kept], centered[kept]).predict(scaled[[j]])
                errors.append(np.sum((predicted - centered[j]) ** 2))
            shares.append(np.sum(errors) / np.sum(centered**2))
    return min(shares)


@pytest.mark.slow
def test_shares_are_those_of_kernel_ridge_regressions_with_one_row_left_out():
    # With a linear kernel the mean embedding of a bag is its centroid.
    check = check_mediation(BAGS, PLACES, TARGETS, Linear())
    np.testing.assert_allclose(check.operator, least_share(COVARIATES, np.asarray(BAGS.centroids())), rtol=1e-7)
    np.testing.assert_allclose(check.regression, least_share(PLACES, TARGETS[:, None]), rtol=1e-7)


@pytest.mark.slow
def test_kernels_of_ones_own_are_candidates_by_name():
    named = kpp.Bags(BAGS.points, BAGS.index, BAGS.sizes, BAGS.covariates, ("u", "v"), ("a", "b"))
    kernel, candidates = RBF(0.6).on(("u",)), [RBF(0.5).on(("b",)), RBF(2.0)]
    best = [check_mediation(named, PLACES, TARGETS, kernel, [each]) for each in candidates]
    both = check_mediation(named, PLACES, TARGETS, kernel, candidates)
    assert both == tuple(min(pair) for pair in zip(*best, strict=True))


def field_means(num, rng):
    centers = rng.uniform(-1.0, 1.0, size=(num, 2))
    points = centers[:, None] + 0.2 * rng.normal(size=(num, 5, 2))
    means = np.sin(2 * points[..., 0]).mean(axis=1)
    return centers, kpp.Bags.create(points.reshape(-1, 2), np.repeat(np.arange(num), 5), centers), means


@pytest.mark.nightly
def test_more_bags_and_less_noise_leave_less_unexplained():
    rng = np.random.default_rng(0)
    few, many = (field_means(count, rng)[1] for count in (9, 50))
    places, _, targets = field_means(50, rng)
    noisy = targets + rng.normal(size=50)
    first, second = check_mediation(few, places, noisy, RBF(0.7)), check_mediation(many, places, targets, RBF(0.7))
    assert second.operator < 0.5 * first.operator
    assert second.regression < 0.5 * first.regression


@pytest.mark.slow
def test_covariates_without_information_leave_everything_unexplained():
    rng = np.random.default_rng(0)
    bags = field_means(50, rng)[1]
    shuffled = kpp.Bags(bags.points, bags.index, bags.sizes, jnp.asarray(rng.uniform(size=(50, 2))))
    check = check_mediation(shuffled, rng.uniform(size=(50, 2)), rng.normal(size=50))
    # Leave-one-out errors of a mean alone are 1 + 2 / 50; the best of 30 settings is a little less than 1.
    assert 0.85 < check.operator < 1.1
    assert 0.85 < check.regression < 1.1


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((0.95, 0.1), "no model can"),
        ((0.2, 0.93), "no model can"),
        ((0.1, 0.3), "do not say which way"),
        ((0.2, 0.2), "do not say which way"),
        ((0.15, 0.09), "do not say which way"),
        ((0.2, 0.09), "For predictions take `mediate`"),
        ((0.034, 0.03), "simpler"),
        ((0.2, 0.03), "For intervals take `CMP`"),
    ],
)
def test_the_shares_come_with_advice(shares, said):
    """The rules of the page on aggregates."""
    assert said in MediationCheck(*shares).advice


@pytest.mark.slow_variants("arguments6-`bags` must hold bags that `kernel` can tell apart")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((kpp.Bags.create(POINTS, BAG), PLACES, TARGETS), "`bags` must have covariates, got None"),
        ((BAGS.take([0]), PLACES, TARGETS), "`bags` must hold at least 2 bags, got 1"),
        ((BAGS, PLACES, np.ones(9)), "`y` must hold at least 2 targets that differ, got 9 of 1.0"),
        ((BAGS, PLACES[:, :1], TARGETS), "`covariates` must have 2"),
        ((BAGS, PLACES[:5], TARGETS), "`covariates` and `y`"),
        ((BAGS, PLACES, TARGETS, RBF(1.0), []), "`bag_kernels` must hold at least one kernel, or be None"),
        ((BAGS, PLACES, TARGETS, Constant(1.0)), "`bags` must hold bags that `kernel` can tell apart"),
    ],
)
def test_invalid_data_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_mediation(*arguments)
