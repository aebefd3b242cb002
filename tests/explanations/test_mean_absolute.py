"""Mean absolute contributions without the bias of absolute values: what a feature without effect gets."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import xarray as xr

from kpp.plots import credible_interval
from kpp.plots.attributions.importance import mean_absolute

DIMS = ("chain", "draw", "instance", "feature")
RNG = np.random.default_rng(0)
NOISY = xr.DataArray(RNG.normal(size=(1, 6, 3)) + 0.7 * RNG.normal(size=(200, 6, 3)), dims=DIMS[1:]).expand_dims(
    "chain"
)


def linear(size, num_data_sets, num_rows=8, num_directions=1, num_draws=400):
    """Estimates of linear effects with a standard error of 1 and a flat prior: one feature for each data set."""
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(num_rows, num_directions))
    truth = np.zeros(num_directions)
    truth[0] = size
    estimates = truth[:, None] + rng.normal(size=(num_directions, num_data_sets))
    draws = estimates + rng.normal(size=(num_draws, num_directions, num_data_sets))
    values = np.einsum("ik,skf->sif", directions, draws)[None]
    return np.abs(directions @ truth).mean(), xr.DataArray(values, dims=DIMS)


@pytest.mark.slow_variants("0.0-1", "4.0-1", "0.0-5", "0.5-1", "1.5-1")
@pytest.mark.parametrize(("size", "num_directions"), [(0.0, 1), (0.0, 5), (0.5, 1), (1.5, 1), (4.0, 1)])
def test_intervals_hold_the_truth(size, num_directions):
    """1000 data sets: 5 % on either side have a standard error of 0.7 %, and the quantiles of 400 draws add 1 %.

    Small effects are above the interval less often, because absolute draws are too large.
    """
    truth, values = linear(size, 1000, num_directions=num_directions)
    low, high = credible_interval(mean_absolute(values), 0.9).values.T
    assert np.mean(low > truth) == pytest.approx(0.05, abs=0.025)
    assert np.mean(high < truth) == (pytest.approx(0.05, abs=0.025) if size > 2 else pytest.approx(0.0, abs=0.075))


@pytest.mark.slow
def test_a_mean_over_draws_has_less_bias_than_that_of_absolute_values():
    truth, values = linear(0.5, 1000)
    biases = [float(importance.mean()) - truth for importance in (mean_absolute(values), abs(values).mean("instance"))]
    assert 0 < biases[0] < 0.75 * biases[1]


def test_draws_with_certain_signs_are_the_mean_absolute_values():
    values = 0.1 * NOISY + xr.DataArray([[1.0, -2.0, 3.0]] * 6, dims=DIMS[2:])
    xr.testing.assert_allclose(mean_absolute(values), abs(values).mean("instance"), rtol=1e-12)
    one = NOISY.isel(draw=[0])
    xr.testing.assert_allclose(mean_absolute(one), abs(one).mean("instance"), rtol=1e-12)


def test_draws_are_those_of_the_confidence_distribution():
    """By its definition, with a search for the quantiles; lines between sizes miss it by 1 % of the largest size."""
    found, plain = mean_absolute(NOISY), abs(NOISY).mean("instance")
    means = NOISY.mean(("chain", "draw")).values
    for feature in range(3):
        m = means[:, feature]
        e, target = NOISY.values[0, :, :, feature] - m, np.abs(m).mean()

        def exceeding(size, m=m, e=e, target=target):
            return np.mean(np.abs(size * m / target - e).mean(axis=1) > target)

        for probability in (0.1, 0.3, 0.5, 0.9):
            quantile = 0.0
            if exceeding(0.0) < probability:
                quantile = scipy.optimize.bisect(lambda size, p=probability: exceeding(size) - p, 0.0, 9.0)
            upper = max(0.0, 2 * probability - 1) * (float(plain[..., feature].quantile(probability)) - quantile)
            assert float(found[..., feature].quantile(probability)) == pytest.approx(quantile + upper, abs=0.03)


def test_a_feature_without_contributions_has_importance_zero():
    assert (mean_absolute(0.0 * NOISY) == 0).all()


def test_independent_draws_of_instances_get_one_error():
    """All instances have one slope: draws of it, shuffled by instance, give the same intervals."""
    _, values = linear(2.0, 3)
    shuffled = values.copy(deep=True)
    for i in range(values.sizes["instance"]):
        shuffled[:, :, i] = values.values[:, np.random.default_rng(i).permutation(values.sizes["draw"]), i]
    expected, found = (
        credible_interval(mean_absolute(draws, independent=independent), 0.9)
        for draws, independent in ((values, False), (shuffled, True))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
