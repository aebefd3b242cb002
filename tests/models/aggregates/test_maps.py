"""Predicted maps and their scores, against formulas over all draws at once and against loops over windows."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm, rankdata

from kpp.metrics import structural_similarity
from kpp_models.aggregates.grids import grid_points, map_scores, predict_map

RNG = np.random.default_rng(2)
FIELD = xr.DataArray(
    RNG.normal(size=(4, 6)), coords={"lat": np.arange(4.0), "lon": np.arange(6.0)}, dims=("lat", "lon"), name="v"
)
FIELD[2, 3] = np.nan


class Fit:
    """Three draws of a law of its own for every point; counts the rows asked for at once."""

    def __init__(self):
        self.rows = []

    def predict(self, points):
        self.rows.append(len(points))
        slopes = np.array([[0.5, 1.0, 3.0]])[..., None]
        mean, variance = slopes * points[:, 2], 0.1 + slopes**2 * points[:, 0] ** 2
        dims = ("chain", "draw", "instance")
        parts = {"mean": mean, "latent_variance": variance, "noise_variance": np.full_like(mean, 0.25)}
        return xr.Dataset({name: (dims, values) for name, values in parts.items()})


@pytest.mark.parametrize("rows", [7, 23, 1000])
def test_maps_obey_the_law_of_total_variance(rows):
    grid, fit = grid_points(FIELD), Fit()
    maps = predict_map(fit, grid, probability=0.8, rows=rows, noise=False, progress=False)
    assert set(fit.rows) == {min(rows, 23)}
    whole = Fit().predict(grid.points).isel(chain=0)
    mean = whole["mean"].values.mean(axis=0)
    second_moment = (whole["latent_variance"].values + whole["mean"].values ** 2).mean(axis=0)
    sd = np.sqrt(second_moment - mean**2)
    np.testing.assert_allclose(grid.values(maps["mean"]), mean, rtol=1e-12)
    np.testing.assert_allclose(grid.values(maps["sd"]), sd, rtol=1e-10)
    np.testing.assert_allclose(grid.values(maps["upper"]), norm.ppf(0.9, mean, sd), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(grid.values(maps["lower"]), norm.ppf(0.1, mean, sd), rtol=1e-9, atol=1e-12)
    assert maps.attrs == {"probability": 0.8, "interval_of": "the field"}
    assert maps["mean"].dims == ("lat", "lon")
    assert np.isnan(maps["sd"].sel(lat=2.0, lon=3.0))


def test_maps_in_the_units_of_the_targets_and_of_new_observations():
    grid = grid_points(FIELD)
    plain, noisy = predict_map(Fit(), grid, noise=False), predict_map(Fit(), grid)
    xr.testing.assert_allclose(noisy["sd"] ** 2, plain["sd"] ** 2 + 0.25)
    assert noisy.attrs["interval_of"] == "values at places"
    kelvin = predict_map(Fit(), grid, center=250.0, scale=7.0, noise=False)
    for name in ("mean", "lower", "upper"):
        xr.testing.assert_allclose(kelvin[name], 250.0 + 7.0 * plain[name])
    xr.testing.assert_allclose(kelvin["sd"], 7.0 * plain["sd"])


def brute_force_ssim(x, y, data_range):
    """Window by window, in double loops, with the weights of the paper."""
    offsets = np.arange(-5, 6)
    weights = np.exp(-(offsets[:, None] ** 2 + offsets[None, :] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    scores = []
    for i in range(x.shape[0] - 10):
        for j in range(x.shape[1] - 10):
            a, b = x[i : i + 11, j : j + 11], y[i : i + 11, j : j + 11]
            mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
            var_a, var_b = (weights * (a - mean_a) ** 2).sum(), (weights * (b - mean_b) ** 2).sum()
            both = (weights * (a - mean_a) * (b - mean_b)).sum()
            top = (2 * mean_a * mean_b + c1) * (2 * both + c2)
            scores.append(top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)))
    return np.mean(scores)


def test_structural_similarity_is_that_of_all_windows(tolerance):
    x = RNG.normal(size=(14, 17)).cumsum(axis=0).cumsum(axis=1)
    y = x + RNG.normal(size=x.shape)
    for a, b, data_range in ((x, y, np.ptp(x)), (x + 250.0, y + 250.0, np.ptp(x)), (x[:11, :11], -y[:11, :11], 1.0)):
        found = structural_similarity(a, b, data_range=data_range)
        # The variances are differences of squares near 250^2, of which they are some 1e-3.
        np.testing.assert_allclose(found, brute_force_ssim(a, b, data_range), **tolerance(factor=10.0))
    np.testing.assert_allclose(structural_similarity(x, x, data_range=1.0), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("x", "y", "data_range", "message"),
    [
        (np.zeros((10, 20)), np.zeros((10, 20)), 1.0, r"one shape \(a, b\) from \(11, 11\), got \(10, 20\)"),
        (np.zeros((11, 20)), np.zeros((20, 11)), 1.0, r"one shape \(a, b\) from \(11, 11\), got \(11, 20\) and"),
        (np.zeros((11, 11)), np.zeros((11, 11)), 0.0, "`data_range` must be positive, got 0.0"),
        (np.zeros((11, 11)), np.full((11, 11), np.nan), 1.0, "`y` must be finite"),
    ],
)
def test_unfit_images_are_refused(x, y, data_range, message):
    with pytest.raises(ValueError, match=message):
        structural_similarity(x, y, data_range=data_range)


def test_scores_of_a_map():
    truth = xr.DataArray(RNG.normal(size=(12, 13)), dims=("lat", "lon"), coords={"lat": np.arange(12)})
    estimate = truth**3 + 0.1
    found = map_scores(truth, estimate.transpose("lon", "lat"))
    a, b = truth.values, estimate.values
    np.testing.assert_allclose(found["rmse"] ** 2, np.mean((a - b) ** 2), rtol=1e-12)
    np.testing.assert_allclose(found["mae"], np.mean(np.abs(a - b)), rtol=1e-12)
    np.testing.assert_allclose(found["spearman"], np.corrcoef(rankdata(a), rankdata(b))[0, 1], rtol=1e-12)
    np.testing.assert_allclose(found["ssim"], brute_force_ssim(a, b, np.ptp(a)), rtol=1e-10)
    holes = map_scores(truth, estimate.where(truth > -1.0))
    np.testing.assert_allclose(holes["rmse"] ** 2, np.mean((a - b)[a > -1.0] ** 2), rtol=1e-12)
    assert np.isnan(holes["ssim"])


MISTAKES = [
    (lambda: predict_map(Fit(), grid_points(FIELD), probability=95.0), "`probability` must be between 0 and 1, got 95"),
    (lambda: predict_map(Fit(), grid_points(FIELD), scale=0.0), "`scale` must be positive, got 0.0"),
    (lambda: predict_map(Fit(), grid_points(FIELD), rows=0), "`rows` must be at least 1, got 0"),
    (lambda: map_scores(FIELD, FIELD.isel(lat=[0, 1])), "`truth` and `estimate` must have the same coordinates"),
    (lambda: map_scores(FIELD, FIELD.isel(lat=0, drop=True)), r"`estimate` must have the dimensions \['lat', 'lon'\]"),
    (lambda: map_scores(FIELD, FIELD * np.nan), "must share two pixels at least, got 0"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
