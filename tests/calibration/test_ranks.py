"""Ranks of truths among draws: counted by hand, uniform for a conjugate posterior, not for a wrong one."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC
from scipy import stats

import kpp
from kpp.calibration import (
    CalibrationResult,
    rank_statistics,
    simulate,
    simulation_based_calibration,
    uniformity_test,
)
from kpp.kernels import RBF
from kpp.metrics import uniform_band
from kpp.plots import rank_ecdf
from kpp.storage import arviz_data
from kpp_models import GPRegression

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


def six_steps(model):
    return HMC(model, num_steps=6, trajectory_length=None)


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


@pytest.mark.slow
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


def result_of(noise, num_datasets=400):
    truth = {"a": np.arange(num_datasets, dtype=float), "b": np.ones((num_datasets, 2))}
    ranks = conjugate(num_datasets, noise=noise)
    other = conjugate(2 * num_datasets, noise=noise).reshape(num_datasets, 2)
    return CalibrationResult({"a": ranks, "b": other}, 31, truth)


@pytest.mark.parametrize(("num_ranks", "num_draws"), [(200, 31), (60, 99)])
def test_a_band_holds_whole_curves_with_its_probability(num_ranks, num_draws):
    """1000 further sets of uniform ranks: the share within the band misses 90 % by less than 4 standard errors.

    The band itself comes from 2000 simulations, and ranks are discrete, so that it may hold somewhat more.
    """
    low, high = uniform_band(num_ranks, num_draws, 0.9)
    ranks = np.random.default_rng(5).integers(0, num_draws + 1, size=(1000, num_ranks))
    below = np.stack([(ranks <= k).mean(axis=1) for k in range(num_draws)], axis=1)
    inside = ((low - 1e-12 <= below) & (below <= high + 1e-12)).all(axis=1).mean()
    assert 0.9 - 4 * (0.09 / 1000) ** 0.5 < inside < 0.97
    # At each k the interval is wider than the pointwise one.
    pointwise = stats.binom(num_ranks, 0.5).ppf(0.05) / num_ranks
    assert low[(num_draws + 1) // 2 - 1] < pointwise


def test_the_arviz_object_has_uniform_numbers_and_the_truth():
    result = result_of(1.0)
    groups = arviz_data.groups(result.to_arviz())
    assert set(groups) == {"prior_sbc", "prior"}
    assert groups["prior_sbc"]["b"].dims == ("chain", "draw", "b_dim_0")
    np.testing.assert_allclose(groups["prior_sbc"]["a"][0], (result.ranks["a"] + 0.5) / 32)
    np.testing.assert_array_equal(groups["prior"]["a"][0], result.truth["a"])
    found = result.dataset()
    assert found["b"].dims == ("replication", "b_dim_0") and found.attrs["num_draws"] == 31


@pytest.mark.skipif(arviz_data.MAJOR == 0, reason="arviz-plots needs ArviZ 1")
def test_arviz_plots_draws_the_result():
    import arviz_plots

    result = result_of(1.0, 100)
    collection = arviz_plots.plot_ecdf_pit(result.to_arviz(), backend="matplotlib")
    assert {"a", "b"} <= set(collection.viz["plot"].data_vars)


def test_the_plot_shows_the_curves_and_whether_they_leave_the_band():
    for noise, leaves in ((1.0, False), (0.25, True)):
        result = result_of(noise)
        ax = rank_ecdf(result.dataset(), probability=0.999)
        lines = ax.get_lines()[:3]
        assert [line.get_label() for line in lines] == ["a", "b[0]", "b[1]"]
        expected = [(result.ranks["a"] <= k).mean() - (k + 1) / 32 for k in range(31)]
        np.testing.assert_allclose(lines[0].get_ydata(), expected, atol=1e-12)
        low, high = uniform_band(400, 31, 0.999)
        places = (np.arange(31) + 1) / 32
        outside = [((line.get_ydata() < low - places) | (line.get_ydata() > high - places)).any() for line in lines]
        assert all(outside) if leaves else not any(outside)
    with pytest.raises(ValueError, match="`ranks` must have the dimension 'replication'"):
        rank_ecdf(result.dataset().rename(replication="row"))


@pytest.mark.slow
def test_simulations_come_from_the_prior_and_the_likelihood():
    latent, seen = simulate(jax.random.key(0), model, {"times": TIMES}, 2000)
    assert (latent["slope"].shape, seen["y"].shape) == ((2000,), (2000, 4))
    covariance = np.outer(TIMES, TIMES) + np.eye(4)
    # Entries of a sample covariance of 2000 deviate by at most sqrt(2 / 2000) of 5: four standard errors.
    np.testing.assert_allclose(np.cov(seen["y"].T), covariance, atol=4 * 5 * (2 / 2000) ** 0.5)
    slopes = np.linalg.lstsq(np.asarray(latent["slope"])[:, None], np.asarray(seen["y"]), rcond=None)[0]
    np.testing.assert_allclose(slopes[0], TIMES, atol=4 / 2000**0.5)


@pytest.mark.slow
def test_hmc_is_calibrated_and_a_wrong_noise_is_found():
    options = {"num_datasets": 200, "num_draws": 31, "num_warmup": 100, "thinning": 3, "kernel": six_steps}
    data = {"times": TIMES}
    assert simulation_based_calibration(jax.random.key(1), model, data, **options).p_value() > 1e-4
    wrong = simulation_based_calibration(
        jax.random.key(1), model, data, simulator=lambda times: model(times, noise=4.0), **options
    )
    assert wrong.p_value() < 1e-4


@pytest.mark.slow
def test_given_data_the_truth_is_from_the_posterior_and_uniform():
    """The posterior of the conjugate model is N(t y / p, 1 / p), p = 1 + t t; new data with another noise are found."""
    y = 2.0 * TIMES + np.array([0.3, -1.0, 0.5, 0.2])
    precision = 1 + TIMES @ TIMES
    options = {"num_datasets": 200, "num_draws": 31, "num_warmup": 100, "kernel": six_steps, "progress": False}
    arguments = (jax.random.key(1), model, {"times": TIMES})
    found = simulation_based_calibration(*arguments, given={"y": y}, **options)
    scores = (found.truth["slope"] - TIMES @ y / precision) * precision**0.5
    assert stats.kstest(scores, "norm").pvalue > 1e-4 and found.p_value() > 1e-4
    wrong = simulation_based_calibration(
        *arguments, given={"y": y}, simulator=lambda times: model(times, noise=9.0), **options
    )
    assert wrong.p_value() < 1e-4


@pytest.mark.slow
def test_a_prior_that_cannot_be_drawn_from_is_checked_given_data():
    def flat(y=None):
        level = numpyro.sample("level", dist.ImproperUniform(dist.constraints.real, (), ()))
        with numpyro.plate("rows", 4):
            numpyro.sample("y", dist.Normal(level, 1.0), obs=y)

    options = {"num_datasets": 60, "num_draws": 15, "num_warmup": 100, "kernel": six_steps, "progress": False}
    found = simulation_based_calibration(jax.random.key(2), flat, {}, given={"y": np.arange(4.0)}, **options)
    assert found.p_value() > 1e-4
    assert abs(found.truth["level"].mean() - 1.5) < 4 * 0.5 / 60**0.5


ROWS = RNG.normal(size=(12, 1))


@pytest.fixture(scope="module")
def regression():
    """A regression whose only parameter is its mean, with exact draws: GLS with a prior N(0, 1)."""
    targets = np.sin(3.0 * ROWS[:, 0]) + 1.0
    process = GPRegression(RBF(0.5), noise_variance=0.1, mean=dist.Normal(0.0, 1.0))
    fit = process.fit(jax.random.key(0), ROWS, targets, inference=kpp.Laplace(num_samples=300, progress=False))
    gram = np.exp(-0.5 * (ROWS - ROWS.T) ** 2 / 0.5**2) + 0.1 * np.eye(12)
    precision = 1 + np.linalg.solve(gram, np.ones(12)).sum()
    mean = np.linalg.solve(gram, targets).sum() / precision
    draws = mean + RNG.normal(size=(1, 300)) * precision**-0.5
    return dataclasses.replace(fit, draws={"mean": jax.numpy.asarray(draws)}), mean


@pytest.mark.slow
def test_a_regression_is_calibrated_given_its_data_and_a_narrow_posterior_is_found(regression):
    fit, mean = regression
    narrow = dataclasses.replace(fit, draws={"mean": mean + 0.3 * (fit.draws["mean"] - mean)})
    options = {"num_datasets": 300, "num_draws": 31, "num_warmup": 100, "kernel": six_steps, "progress": False}
    right, wrong = (
        simulation_based_calibration(
            jax.random.key(3), fit.model.numpyro_model, {"x": fit.data["x"]}, given=one, **options
        )
        for one in (fit, narrow)
    )
    assert list(right.ranks) == ["mean"] and right.p_value() > 1e-4
    assert wrong.p_value() < 1e-4


@pytest.mark.slow
def test_what_given_cannot_be_is_refused(regression):
    fit, key = regression[0], jax.random.key(0)
    run, data = fit.model.numpyro_model, {"x": fit.data["x"]}
    for call, message in (
        (lambda: simulation_based_calibration(key, model, {"times": TIMES}, given={"y": np.ones(3)}), r"got .'y': .3,"),
        (lambda: simulation_based_calibration(key, model, {"times": TIMES}, given={"z": np.ones(4)}), "`given` must"),
        (lambda: simulation_based_calibration(key, run, data, given=fit, num_datasets=301), "301 draws .* with 300"),
        (lambda: simulation_based_calibration(key, run, {"x": ROWS[:5]}, given=fit), r"data of \[5, 12\] rows"),
        (lambda: simulation_based_calibration(key, run, data, given=fit, observed=("z",)), r"sites \['z'\]"),
        (lambda: simulation_based_calibration(key, run, data, given=fit, simulator=run), "`simulator` needs"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


MISTAKES = [
    (lambda: uniform_band(0, 8), "`num_ranks` must be at least 1"),
    (lambda: uniform_band(8, 8, 1.0), "`probability` must be"),
    (lambda: rank_statistics(np.zeros(3), np.zeros((2, 5))), r"`draws` must have shape \(s, L, \*event\)"),
    (lambda: uniformity_test([0, 9], 8), "`ranks` must hold integers from 0 to 8"),
    (lambda: uniformity_test([0, 8], 8, num_bins=10), "`num_bins` must be between 2 and 9, got 10"),
    (
        lambda: simulate(jax.random.key(0), model, {"times": TIMES}, 3, observed=("z",)),
        r"`observed` names \['z'\], which are not sites; the sites are \['slope', 'y'\]",
    ),
]


@pytest.mark.slow_variants(
    "<lambda>-`observed` names \\\\['z'\\\\], which are not sites; the sites are \\\\['slope', 'y'\\\\]"
)
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
