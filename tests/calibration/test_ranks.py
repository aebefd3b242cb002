"""Ranks of truths among draws: counted by hand, uniform for a conjugate posterior, not for a wrong one."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC
from scipy import stats

from kpp.calibration import (
    CalibrationResult,
    rank_statistics,
    simulate,
    simulation_based_calibration,
    uniformity_test,
)

RNG = np.random.default_rng(0)
TIMES = np.linspace(0.5, 2.0, 4)


def conjugate(num_datasets=1000, num_draws=31, noise=1.0):
    """Ranks under y_i ~ N(a t_i, 1), a ~ N(0, 1), whose posterior is known; `noise` is what the posterior assumes."""
    truth = RNG.normal(size=num_datasets)
    y = truth[:, None] * TIMES + RNG.normal(size=(num_datasets, 4))
    precision = 1 + TIMES @ TIMES / noise
    draws = RNG.normal((y @ TIMES / noise / precision)[:, None], precision**-0.5, (num_datasets, num_draws))
    return rank_statistics(truth, draws)


def model(times, y=None, noise=1.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * times, noise**0.5).to_event(1), obs=y)


def test_ranks_are_counts():
    values, draws = RNG.normal(size=(3, 2)), RNG.normal(size=(3, 5, 2))
    expected = [[sum(draws[s, i, e] < values[s, e] for i in range(5)) for e in range(2)] for s in range(3)]
    np.testing.assert_array_equal(rank_statistics(values, draws), expected)


def test_the_tests_are_scipys():
    ranks = RNG.integers(0, 32, size=100)
    found = uniformity_test(ranks, 31, num_bins=8)
    counts = np.histogram(ranks, bins=8, range=(0, 32))[0]
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_allclose(found.chi_square_p_value, stats.chisquare(counts).pvalue)
    np.testing.assert_allclose(found.kolmogorov_p_value, stats.kstest((ranks + 0.5) / 32, "uniform").pvalue)
    assert found.p_value == min(1.0, 2 * min(found[1:3]))


def test_bins_of_unequal_width_have_unequal_expectations():
    """All ranks of 0, ..., 10 once: three bins of 4, 4 and 3 ranks fit perfectly."""
    assert uniformity_test(np.arange(11), 10, num_bins=3).chi_square_p_value == 1.0


def test_the_right_posterior_passes_and_wrong_ones_fail():
    assert uniformity_test(conjugate(), 31).p_value > 1e-4
    # Posteriors that are too narrow by half and too wide by half.
    assert uniformity_test(conjugate(noise=0.25), 31).p_value < 1e-4
    assert uniformity_test(conjugate(noise=4.0), 31).p_value < 1e-4


def test_p_values_are_uniform_under_the_hypothesis():
    """300 tests of 200 uniform ranks: their chi-square p-values pass Kolmogorov's test themselves."""
    values = [uniformity_test(RNG.integers(0, 64, 200), 63).chi_square_p_value for _ in range(300)]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_coordinates_are_tested_one_by_one():
    ranks = {"a": RNG.integers(0, 8, size=50), "b": RNG.integers(0, 8, size=(50, 2))}
    result = CalibrationResult(ranks, 7, {})
    tests = result.tests(num_bins=4)
    assert list(tests) == ["a", "b[0]", "b[1]"]
    assert result.p_value(num_bins=4) == min(1.0, 3 * min(test.p_value for test in tests.values()))


def test_simulations_come_from_the_prior_and_the_likelihood():
    latent, seen = simulate(jax.random.key(0), model, {"times": TIMES}, 2000)
    assert (latent["slope"].shape, seen["y"].shape) == ((2000,), (2000, 4))
    covariance = np.outer(TIMES, TIMES) + np.eye(4)
    # Entries of a sample covariance of 2000 deviate by at most sqrt(2 / 2000) of 5: four standard errors.
    np.testing.assert_allclose(np.cov(seen["y"].T), covariance, atol=4 * 5 * (2 / 2000) ** 0.5)
    slopes = np.linalg.lstsq(np.asarray(latent["slope"])[:, None], np.asarray(seen["y"]), rcond=None)[0]
    np.testing.assert_allclose(slopes[0], TIMES, atol=4 / 2000**0.5)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [None, lambda model: HMC(model, num_steps=6, trajectory_length=None)])
def test_nuts_and_hmc_are_calibrated_and_a_wrong_noise_is_found(kernel):
    options = {"num_datasets": 200, "num_draws": 31, "num_warmup": 100, "thinning": 3, "kernel": kernel}
    data = {"times": TIMES}
    assert simulation_based_calibration(jax.random.key(1), model, data, **options).p_value() > 1e-4
    if kernel is not None:
        wrong = simulation_based_calibration(
            jax.random.key(1), model, data, simulator=lambda times: model(times, noise=4.0), **options
        )
        assert wrong.p_value() < 1e-4


MISTAKES = [
    (lambda: rank_statistics(np.zeros(3), np.zeros((2, 5))), r"`draws` must have shape \(s, L, \*event\)"),
    (lambda: uniformity_test([0, 9], 8), "`ranks` must hold integers from 0 to 8"),
    (lambda: uniformity_test([0, 8], 8, num_bins=10), "`num_bins` must be between 2 and 9, got 10"),
    (
        lambda: simulate(jax.random.key(0), model, {"times": TIMES}, 3, observed=("z",)),
        r"`observed` names \['z'\], which are not sites; the sites are \['slope', 'y'\]",
    ),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
