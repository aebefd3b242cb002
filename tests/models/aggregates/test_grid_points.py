"""Pixels become points and come back as maps where they were."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from kpp_models.aggregates.grids import grid_points

RNG = np.random.default_rng(0)
LAT, LON = np.array([10.0, 20.0, 40.0]), np.array([0.0, 1.0, 2.0, 3.0])


@pytest.fixture
def dataset():
    rain, height = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 3))
    rain[1, 2] = np.nan
    coords = {"lat": ("lat", LAT, {"units": "degrees_north"}), "lon": LON, "month": 7}
    return xr.Dataset({"rain": (("lat", "lon"), rain), "height": (("lon", "lat"), height)}, coords)


def test_a_point_has_the_coordinates_and_variables_of_its_pixel(dataset):
    grid = grid_points(dataset)
    assert grid.feature_names == ("lat", "lon", "rain", "height")
    assert (grid.num_points, grid.num_dropped, grid.dims) == (11, 1, ("lat", "lon"))
    for lat, lon, rain, height in grid.points:
        pixel = dataset.sel(lat=lat, lon=lon)
        assert (float(pixel["rain"]), float(pixel["height"])) == (rain, height)
    assert repr(grid).startswith("GridPoints(lat: 3 x lon: 4; 11 points of ('lat', 'lon', 'rain', 'height'), 1 dropped")


def test_values_go_to_the_map_and_back(dataset):
    grid = grid_points(dataset, ["rain"])
    back = grid.to_map(grid.values(dataset["rain"]), name="rain")
    xr.testing.assert_identical(back.drop_attrs(), dataset["rain"].drop_vars("month").drop_attrs())
    assert back["lat"].attrs == {"units": "degrees_north"}
    np.testing.assert_array_equal(grid.values(dataset["rain"].T), grid.points[:, 2])


def test_only_the_named_variables_may_be_missing(dataset):
    assert grid_points(dataset, ["height"]).num_dropped == 0
    assert grid_points(dataset, ["height"], coordinates=False).points.shape == (12, 1)
    assert grid_points(dataset[["height"]], []).feature_names == ("lon", "lat")
    assert grid_points(dataset["height"]).feature_names == ("lon", "lat", "height")


def test_axes_of_draws_stay_in_front(dataset):
    grid = grid_points(dataset, ["rain"])
    draws = RNG.normal(size=(2, 5, 11))
    maps = grid.to_map(draws)
    assert (maps.dims, maps.shape) == (("chain", "draw", "lat", "lon"), (2, 5, 3, 4))
    np.testing.assert_array_equal(maps.values[:, :, grid.mask.values], draws)
    assert np.isnan(maps.values[..., 1, 2]).all()
    assert grid.to_map(draws[0]).dims == ("draw", "lat", "lon")
    labeled = xr.DataArray(draws, dims=("chain", "draw", "instance"), coords={"chain": [3, 4]}, name="mean")
    both = grid.to_map(xr.Dataset({"mean": labeled, "other": labeled.isel(chain=0).transpose("instance", "draw")}))
    xr.testing.assert_equal(both["mean"], maps.assign_coords(chain=[3, 4]))
    assert both["other"].dims == ("draw", "lat", "lon")


def test_standardized_features_have_mean_0_and_deviation_1_and_others_follow(dataset):
    dataset = dataset.assign(flat=xr.full_like(dataset["rain"], 3.0))
    plain, scaled = grid_points(dataset), grid_points(dataset, standardize=True)
    np.testing.assert_allclose(scaled.points.mean(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(scaled.points.std(axis=0), [1.0, 1.0, 1.0, 1.0, 0.0], atol=1e-14)
    np.testing.assert_allclose(scaled.center + scaled.scale * scaled.points, plain.points, rtol=1e-12, atol=1e-14)
    north = dataset.isel(lat=[1, 2])
    np.testing.assert_array_equal(scaled.read(north).points, scaled.points[plain.points[:, 0] > 10.0])
    again = grid_points(dataset, ["rain"], coordinates=False, standardize=True).read(north)
    assert again.feature_names == ("rain",)


def test_some_points_can_be_kept(dataset):
    grid = grid_points(dataset)
    half = grid.keep(grid.points[:, 1] < 1.5)
    assert half.num_points == 6
    assert grid.num_points == 11
    np.testing.assert_array_equal(half.to_map(half.points[:, 1]).isel(lat=0).values, [0.0, 1.0, np.nan, np.nan])


MISTAKES = [
    (lambda d: grid_points(d, ["rian"]), "unknown feature name 'rian'.* did you mean 'rain'"),
    (lambda d: grid_points(d, [], coordinates=False), "`variables` must name a variable where `coordinates` is False"),
    (lambda d: grid_points(d.drop_vars("lat")), "no coordinate along 'lat'; assign one, or say `coordinates=False`"),
    (
        lambda d: grid_points(d.assign(zone=("lat", [1.0, 2.0, 3.0]))),
        r"'zone' must have the dimensions \['lat', 'lon'\]",
    ),
    (lambda d: grid_points(d.assign(name=d["rain"].astype(str))), "'name' must hold numbers, got dtype <U"),
    (lambda d: grid_points(d / 0.0), "'rain' must be finite or missing, got 11 infinite values"),
    (lambda d: grid_points(d * np.nan), "must have a pixel where no variable is missing, got NaN at all 12"),
    (lambda d: grid_points(d).to_map(np.zeros(12)), r"`values` must have shape \(..., 11\), one a point, got \(12,\)"),
    (lambda d: grid_points(d).values(d["rain"].isel(lat=[0, 1])), r"'rain' must have the shape \(3, 4\), got \(2, 4\)"),
    (
        lambda d: grid_points(d).values(d["rain"].assign_coords(lat=LAT + 1)),
        "must have the coordinates of the grid along 'lat'",
    ),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(dataset, call, message):
    with pytest.raises(ValueError, match=message):
        call(dataset)


def test_a_grid_is_an_xarray_object():
    with pytest.raises(TypeError, match="`dataset` must be an xarray Dataset or DataArray, got ndarray"):
        grid_points(np.zeros((2, 2)))


FILLS = {
    "the smallest float32": np.finfo(np.float32).min,
    "netCDF's default": 9.969209968386869e36,
    "climate models": 1e20,
    "-9999": -9999.0,
    "-999 of a small range": -999.0,
}


def with_fill(fill, **attrs):
    values = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    values[1, 2] = fill
    return xr.DataArray(values, {"lat": np.arange(3.0), "lon": np.arange(4.0)}, ("lat", "lon"), "v", attrs)


@pytest.mark.parametrize("name", FILLS)
def test_fill_values_are_never_data(name):
    fill = FILLS[name]
    with pytest.raises(ValueError, match="'v' must be NaN where it is missing, got .* at 1 of 12 places"):
        grid_points(with_fill(fill))
    plain = with_fill(np.nan)
    for attribute in ("_FillValue", "missing_value", "nodata"):
        named = with_fill(fill, **{attribute: np.float32(fill)})
        grid = grid_points(named)
        assert grid.num_dropped == 1
        np.testing.assert_array_equal(grid.points, grid_points(plain).points)
        np.testing.assert_array_equal(grid_points(plain.fillna(0)).values(named), plain.values.ravel())


def test_numbers_near_the_others_are_data():
    values = np.linspace(-12000.0, 3000.0, 11)
    values[0] = -9999.0
    assert grid_points(xr.DataArray(values, {"x": np.arange(11.0)}, ("x",), "depth")).num_dropped == 0
