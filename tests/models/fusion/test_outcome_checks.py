"""The choice of the outcome's lengthscale and the test of normal outcomes, against refits by NumPy and scikit-learn."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import norm, shapiro
from sklearn.kernel_ridge import KernelRidge

import kpp
from kpp.kernels import RBF, Matern32, median_heuristic
from kpp_models import IMP, BayesIMP, CausalLink, InterventionData
from oracles.kernels import rbf

QUICK = kpp.MAP(num_restarts=0, progress=False)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 1))
DATA = InterventionData.create(X, np.sin(X) + 0.1 * RNG.normal(size=(12, 1)))
PLACES = RNG.uniform(-2.0, 2.0, size=(15, 1))
FACTORS = (1.0, 0.4, 0.1)


def targets(frequency):
    return np.sin(frequency * PLACES[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=15)


def held_out_density(t, lengthscale):
    """The sum of log p(t_i | t_-i) of a Gaussian process with unit variance and noise variance .02, row by row."""
    total = 0.0
    for i in range(len(t)):
        kept = np.arange(len(t)) != i
        gram = rbf(PLACES[kept], PLACES[kept], lengthscale) + 0.02 * np.eye(len(t) - 1)
        weights = np.linalg.solve(gram, rbf(PLACES[kept], PLACES[[i]], lengthscale))[:, 0]
        variance = 1.02 - weights @ rbf(PLACES[kept], PLACES[[i]], lengthscale)[:, 0]
        total += norm.logpdf(t[i], weights @ t[kept], np.sqrt(variance))
    return total


@pytest.mark.slow_variants("1.0", "3.0")
@pytest.mark.parametrize("frequency", [1.0, 3.0])
def test_the_lengthscale_has_the_highest_density_of_targets_left_out(frequency):
    model, t = IMP(CausalLink(RBF(1.0), RBF(2.0), 0.1), 0.02), targets(frequency)
    fit = model.select_lengthscale(jax.random.key(0), DATA, t, mediators=PLACES, factors=FACTORS, inference=QUICK)
    expected = max((2.0 * factor for factor in FACTORS), key=lambda each: held_out_density(t, each))
    assert float(fit.model.links[-1].outcome_kernel.lengthscale) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_a_kernel_of_the_default_is_scaled_for_bayesian_embeddings():
    fit = BayesIMP(CausalLink(RBF(1.0), None, 0.1), 0.02).select_lengthscale(
        jax.random.key(0), DATA, targets(5.0), mediators=PLACES, inference=QUICK
    )
    whole = float(median_heuristic(np.concatenate([DATA.outcome, PLACES]))[0])
    factor = float(fit.model.links[-1].outcome_kernel.lengthscale[0]) / whole
    assert factor == pytest.approx(min((0.5, 0.3, 0.2), key=lambda each: abs(each - factor)), rel=1e-12)


@pytest.mark.parametrize(
    ("kernel", "factors", "message"),
    [
        (RBF(1.0), (), "`factors` must be numbers"),
        (RBF(1.0), (1.0, -0.5), "`factors` must be positive"),
        (Matern32(1.0), (1.0,), "`outcome_kernel` an RBF"),
    ],
)
def test_factors_that_do_not_fit_are_refused(kernel, factors, message):
    model = IMP(CausalLink(RBF(1.0), kernel, 0.1), 0.02)
    with pytest.raises(ValueError, match=message):
        model.select_lengthscale(jax.random.key(0), DATA, targets(1.0), mediators=PLACES, factors=factors)


@pytest.mark.slow
def test_normality_is_tested_on_residuals_of_refits():
    rng = np.random.default_rng(2)
    x, z = rng.normal(size=(22, 1)), rng.normal(size=(22, 2))
    y = np.column_stack([np.sin(x[:, 0]) + z[:, 0], x[:, 0] + rng.exponential(size=22)])
    found = InterventionData.create(x, y, z).normality()
    points = np.hstack([x, z]) / np.asarray(median_heuristic(np.hstack([x, z])))
    for column, p_value in zip((y - y.mean(axis=0)).T, found, strict=True):
        best, least = None, np.inf
        for stretch in (0.1, 0.3, 1.0, 3.0):
            for ridge in 10.0 ** np.arange(-5.0, 0.0):
                machine = KernelRidge(alpha=22 * ridge, kernel="rbf", gamma=0.5 / stretch**2)
                kept = [np.arange(22) != i for i in range(22)]
                residuals = [
                    column[i] - machine.fit(points[rows], column[rows]).predict(points[[i]])[0]
                    for i, rows in enumerate(kept)
                ]
                if np.sum(np.square(residuals)) < least:
                    best, least = residuals, np.sum(np.square(residuals))
        np.testing.assert_allclose(p_value, shapiro(best).pvalue, rtol=1e-6)


@pytest.mark.slow
def test_two_peaks_are_not_normal():
    """The rate of rejections is in the guide; here one sample of each kind."""
    rng = np.random.default_rng(3)
    x, noise = rng.uniform(-3.0, 3.0, size=(80, 1)), 0.3 * rng.normal(size=(80, 1))
    assert InterventionData.create(x, np.sin(x) + noise).normality()[0] > 0.05
    assert InterventionData.create(x, np.sin(x) + noise + rng.choice([-1.0, 1.0], (80, 1))).normality()[0] < 1e-3


@pytest.mark.parametrize("outcome", [np.ones((30, 1)), np.arange(19.0)[:, None]])
def test_too_few_or_equal_outcomes_are_refused(outcome):
    data = InterventionData.create(np.arange(float(len(outcome)))[:, None], outcome)
    with pytest.raises(ValueError, match="at least 20 rows that are not all equal"):
        data.normality()
