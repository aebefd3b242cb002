"""Means, intervals and draws, against ArviZ, SciPy and the law itself."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.stats
import xarray as xr

from kpp.explanations import Explanation
from kpp.plots import credible_interval
from kpp.plots.intervals import check_probability

LAWS = ["variance", "within", "across"]


@pytest.mark.parametrize("outputs", [False, True])
def test_the_mean_is_taken_over_all_draws_and_stays_additive(make, outputs):
    explanation = make(True, outputs, law="within")
    mean = explanation.mean()
    np.testing.assert_allclose(mean.values, explanation.values.values.mean(axis=(0, 1)), rtol=1e-14)
    assert float(mean.additivity_error().max()) < 1e-14
    assert mean.variance is None
    assert mean.attrs == explanation.attrs
    assert mean.mean().dataset.identical(mean.dataset)


@pytest.mark.parametrize("probability", [0.5, 0.89, 0.94])
def test_intervals_of_draws_are_arviz_s(make, probability):
    import arviz as az

    values = make(True).values
    flat = values.values.reshape(-1, *values.shape[2:])
    equal_tailed = credible_interval(values, probability, "eti")
    tails = [(1 - probability) / 2, (1 + probability) / 2]
    np.testing.assert_allclose(equal_tailed, np.moveaxis(np.quantile(flat, tails, axis=0), 0, -1), rtol=1e-14)
    narrowest = credible_interval(values, probability, "hdi")
    option = {"hdi_prob" if az.__version__.startswith("0.") else "prob": probability}
    expected = [[az.hdi(flat[:, i, j], **option) for j in range(3)] for i in range(5)]
    np.testing.assert_allclose(narrowest, expected, rtol=1e-14)
    width = {kind: np.diff(bounds.values, axis=-1) for kind, bounds in (("e", equal_tailed), ("h", narrowest))}
    inside = (values >= narrowest.sel(bound="lower")) & (values <= narrowest.sel(bound="upper"))
    assert (inside.mean(("chain", "draw")) >= probability).all()
    assert (width["h"] <= width["e"] * 1.1 + 1e-12).all()


def test_the_highest_density_interval_is_the_narrowest_of_all_windows():
    draws = np.random.default_rng(3).gamma(1.0, size=(1, 200))
    bounds = credible_interval(xr.DataArray(draws, dims=("chain", "draw")), 0.8, "hdi")
    ordered = np.sort(draws[0])
    windows = [(ordered[i + 160] - ordered[i], ordered[i], ordered[i + 160]) for i in range(40)]
    assert tuple(bounds.values) == min(windows)[1:]
    assert bounds.attrs == {"kind": "hdi", "probability": 0.8}


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_variances_are_the_diagonal_of_the_covariance(make, points, law, outputs):
    variance = make(True, outputs, law).variance
    expected = 0.25 if law == "variance" else points**2 * [1.0, 0.34, 0.21]
    shape = (2, 30, 5, 3, 2) if outputs else (2, 30, 5, 3)
    assert variance.shape == shape
    expected = np.broadcast_to(expected, (5, 3))
    np.testing.assert_allclose(
        variance, np.broadcast_to(expected[..., None] if outputs else expected, shape), rtol=1e-12
    )


@pytest.mark.parametrize("kind", ["eti", "hdi"])
def test_intervals_of_a_gaussian_law_are_its_quantiles(make, kind):
    explanation = make(law="variance")
    bounds = explanation.interval(0.9, kind)
    assert bounds.dims == ("instance", "feature", "bound")
    half = scipy.stats.norm.ppf(0.95) * 0.5
    np.testing.assert_allclose(bounds.sel(bound="upper") - explanation.values, half, rtol=1e-12)
    np.testing.assert_allclose(explanation.values - bounds.sel(bound="lower"), half, rtol=1e-12)


def test_intervals_of_draws_with_a_law_are_those_of_the_mixture(make):
    explanation = make(True, law="within")
    bounds = explanation.interval(0.8)
    scale = np.sqrt(explanation.variance.values[:, :, 0, 0])
    for bound, mass in (("lower", 0.1), ("upper", 0.9)):
        point = float(bounds.sel(bound=bound)[0, 0])
        below = scipy.stats.norm.cdf(point, explanation.values.values[:, :, 0, 0], scale).mean()
        assert below == pytest.approx(mass, abs=1e-12)
    with pytest.raises(ValueError, match=r"`sample\(rng_key, n\)` first"):
        explanation.interval(0.8, "hdi")


def test_a_certain_explanation_has_no_interval(make):
    with pytest.raises(ValueError, match="no draws, variance or covariance"):
        make().interval(0.9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, "eti"), "`probability`"),
        ((90.0, "hdi"), "between 0 and 1, got 90"),
        ((0.9, "sd"), "`kind` must be 'eti'"),
    ],
)
def test_a_bad_probability_or_kind_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_probability(*arguments)


def test_intervals_check_their_probability(make):
    for explanation in (make(True), make(law="variance")):
        with pytest.raises(ValueError, match="`probability` must be between 0 and 1, got 1.5"):
            explanation.interval(1.5)


@pytest.mark.slow_variants("across-True", "within-False", "within-True")
@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("law", ["within", "across"])
def test_draws_follow_the_law_and_stay_additive(make, law, outputs):
    explanation = make(False, outputs, law)
    draws = explanation.sample(jax.random.key(0), 4000)
    assert draws.values.dims == ("chain", "draw", *explanation.values.dims)
    assert draws.values.sizes["draw"] == 4000
    assert draws.covariance is None
    assert float(draws.additivity_error().max()) < 1e-12
    # 4000 draws: a mean misses by 5 standard errors with probability 6e-7 each, a variance by 5 * sqrt(2/4000).
    deviations = (draws.values - explanation.values).values[0].reshape(4000, -1)
    scale = np.sqrt(explanation.variance.values.reshape(-1))
    assert (np.abs(deviations.mean(axis=0)) <= 5 * scale / np.sqrt(4000) + 1e-12).all()
    np.testing.assert_allclose(deviations.std(axis=0), scale, rtol=0.12, atol=1e-7)


def test_draws_are_joint_over_instances_only_with_a_covariance_across(make, points):
    correlation = {}
    for law in ("within", "across"):
        values = make(law=law).sample(jax.random.key(1), 4000).values.values[0]
        correlation[law] = abs(np.corrcoef(values[:, 0, 0], values[:, 1, 0])[0, 1])
    assert correlation["across"] == pytest.approx(1.0, abs=1e-9)  # one weight moves both
    assert correlation["within"] < 5 / np.sqrt(4000)


def test_each_draw_is_sampled_from_its_own_law(make):
    explanation = make(True, law="within")
    drawn = explanation.sample(jax.random.key(0), 3)
    assert drawn.values.sizes["draw"] == 90
    assert float(drawn.additivity_error().max()) < 1e-12
    np.testing.assert_array_equal(drawn.base_values.values[:, ::3], explanation.base_values)
    again = explanation.sample(jax.random.key(0), 3)
    assert drawn.dataset.identical(again.dataset)


def test_sampling_needs_a_covariance_a_key_and_a_count(make):
    with pytest.raises(ValueError, match="do not say how features vary together"):
        make(law="variance").sample(jax.random.key(0), 2)
    with pytest.raises(ValueError, match="`sample` needs the covariance"):
        make(True).sample(jax.random.key(0), 2)
    with pytest.raises(TypeError, match="rng_key"):
        make(law="within").sample(0, 2)
    with pytest.raises(ValueError, match="`n` must be at least 1"):
        make(law="within").sample(jax.random.key(0), 0)


def test_an_indefinite_covariance_is_refused():
    explanation = Explanation.create(
        np.zeros((1, 2)), 0.0, [0.0], np.zeros((1, 2)), covariance=[[[1.0, 2.0], [2.0, 1.0]]]
    )
    with pytest.raises(ValueError, match="positive semi-definite, got the eigenvalue -1"):
        explanation.sample(jax.random.key(0), 2)
