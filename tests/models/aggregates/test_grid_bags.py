"""Which fine pixel is in which bag, against loops over pixels and cells."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from kpp_models.aggregates.grids import bags_from_grid, coarsen

RNG = np.random.default_rng(1)


def field(lat, lon, name="v"):
    return xr.DataArray(
        RNG.normal(size=(len(lat), len(lon))), coords={"lat": lat, "lon": lon}, dims=("lat", "lon"), name=name
    )


FINE = field(np.arange(6.0), np.arange(8.0) * 0.5)
COARSE = xr.Dataset({"pressure": field([0.5, 2.5, 4.5], [0.25, 1.25, 2.25, 3.25])})


def nearest_cell(pixels, cells):
    """By the definition: the number of the nearest center of a cell; where two are as near, the larger coordinate."""
    distances = np.abs(pixels[:, None] - cells[None, :])
    return np.array([max(np.flatnonzero(row == row.min()), key=lambda j: cells[j]) for row in distances])


def test_pixels_are_in_the_nearest_cell():
    lat, lon = np.linspace(0.1, 10.9, 15), np.linspace(0.3, 10.0, 12)
    fine = field(lat, lon)
    coarse = xr.Dataset({"t": field([8.0, 5.0, 1.0], [1.0, 4.0, 9.0])})  # one coordinate falls, neither is even
    grid = bags_from_grid(
        fine, coarse, covariates=["t"], edges={"lat": [11.0, 6.5, 3.0, 0.0], "lon": [0, 2.5, 6.5, 11]}
    )
    rows, columns = nearest_cell(lat, coarse["lat"].values), nearest_cell(lon, coarse["lon"].values)
    expected = (3 * rows[:, None] + columns[None, :]).ravel()
    np.testing.assert_array_equal(grid.cell, expected)
    assert (grid.num_outside, grid.num_empty, grid.bags.num_bags) == (0, 0, 9)
    for bag in range(9):
        mine = np.asarray(grid.bags.points)[np.asarray(grid.bags.index) == bag]
        np.testing.assert_array_equal(mine, grid.fine.points[expected == bag])
    known = [[y, x, float(coarse["t"].sel(lat=y, lon=x))] for y in (8.0, 5.0, 1.0) for x in (1.0, 4.0, 9.0)]
    np.testing.assert_array_equal(grid.bags.covariates, known)
    assert grid.bags.covariate_names == ("lat", "lon", "t")
    assert grid.bags.feature_names == ("lat", "lon", "v")


def test_outer_cells_end_as_far_from_their_center_on_the_other_side():
    coarse = COARSE.isel(lat=[1, 2])  # centers 2.5 and 4.5, so cells from 1.5 to 5.5
    grid = bags_from_grid(FINE, coarse, covariates=["pressure"])
    inside = grid.fine.to_map(grid.cell >= 0).astype(bool)
    np.testing.assert_array_equal(inside.all("lon"), [False, False, True, True, True, True])
    assert grid.num_outside == 16


def test_blocks_equal_the_coarse_grid_that_they_make():
    by_blocks = bags_from_grid(FINE, blocks=2, covariates=["v"])
    by_coordinates = bags_from_grid(FINE, coarsen(FINE, {"lat": 2, "lon": 2}), covariates=["v"])
    np.testing.assert_array_equal(by_blocks.cell, by_coordinates.cell)
    np.testing.assert_array_equal(by_blocks.bags.covariates, by_coordinates.bags.covariates)
    expected = FINE.values.reshape(3, 2, 4, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(by_blocks.bags.covariates[:, 2], expected.ravel(), rtol=1e-12)
    np.testing.assert_allclose(by_blocks.means(FINE), expected.ravel(), rtol=1e-12)
    np.testing.assert_allclose(by_blocks.coarse.to_map(by_blocks.means(FINE)), expected, rtol=1e-12)


@pytest.mark.parametrize(("boundary", "bags", "outside"), [("trim", 2, 24), ("pad", 6, 0)])
def test_pixels_that_fill_no_block(boundary, bags, outside):
    grid = bags_from_grid(FINE, blocks={"lat": 4, "lon": 3}, boundary=boundary)
    assert (grid.bags.num_bags, grid.num_outside) == (bags, outside)
    sizes = [12, 12] if boundary == "trim" else [12, 12, 8, 6, 6, 4]
    np.testing.assert_array_equal(grid.bags.sizes, sizes)
    np.testing.assert_allclose(grid.bags.covariates, grid.bags.centroids()[:, :2], rtol=1e-12)


def test_missing_pixels_and_cells_are_counted():
    fine, coarse = FINE.copy(deep=True), COARSE.copy(deep=True)
    fine[:2, :2], fine[5, 7] = np.nan, np.nan
    coarse["pressure"][2, 0] = np.nan
    grid = bags_from_grid(fine, coarse, covariates=["pressure"])
    assert (grid.fine.num_dropped, grid.num_empty, grid.num_outside, grid.bags.num_bags) == (5, 1, 4, 10)
    assert repr(grid) == (
        "GridBags(10 bags of 3 to 4 pixels; 4 pixels in no bag, 5 missing; 1 cells without pixels, "
        "1 without covariates)"
    )
    np.testing.assert_array_equal(grid.coarse.values(coarse["pressure"]), grid.bags.covariates[:, 2])
    shown = grid.coarse.to_map(np.arange(10.0)).values.ravel()
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(shown)), [0, 8])
    with pytest.raises(
        ValueError, match="every coarse cell must hold a pixel, got 1 without, .* lat = 0.5, lon = 0.25"
    ):
        bags_from_grid(fine, coarse, covariates=["pressure"], empty="raise")


def test_standardized_bags():
    grid = bags_from_grid(FINE, COARSE, covariates=["pressure"], standardize=True)
    np.testing.assert_allclose(np.asarray(grid.bags.covariates).std(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(grid.bags.points).std(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(grid.cell, bags_from_grid(FINE, COARSE).cell)


def test_bags_without_covariates():
    grid = bags_from_grid(FINE, COARSE.transpose("lon", "lat"), coordinates=False)
    assert grid.bags.covariates is None
    assert grid.bags.feature_names == ("v",)
    np.testing.assert_array_equal(grid.cell, bags_from_grid(FINE, COARSE).cell)


HALF = xr.Dataset({"t": field([0.5, 2.5, 4.5], np.arange(-157.5, 180.0, 45.0))})
WHOLE = field(np.arange(6.0), np.arange(0.0, 360.0, 7.5))

MISTAKES = [
    (
        lambda: bags_from_grid(WHOLE, HALF, covariates=["t"]),
        "the same degrees along 'lon', got 0 to 352.5 and -180 to 180: 24 of 48 pixels lie in a cell after a turn",
    ),
    (
        lambda: bags_from_grid(
            field(np.arange(6.0), np.arange(-180.0, 180.0, 7.5)),
            HALF.assign_coords(lon=HALF["lon"] % 360).sortby("lon"),
        ),
        "the same degrees along 'lon', got -180 to 172.5 and 0 to 360: 24 of 48 pixels",
    ),
    (lambda: bags_from_grid(FINE), "exactly one of `coarse` and `blocks` must be given"),
    (lambda: bags_from_grid(FINE, COARSE, blocks=2), "exactly one of `coarse` and `blocks` must be given"),
    (lambda: bags_from_grid(FINE, COARSE, covariates=["presure"]), "`covariates`: .* did you mean 'pressure'"),
    (lambda: bags_from_grid(FINE, COARSE, empty="keep"), "`empty` must be one of \\('drop', 'raise'\\), got 'keep'"),
    (lambda: bags_from_grid(FINE, COARSE.rename(lat="latitude")), "`coarse` must have a .* coordinate along 'lat'"),
    (lambda: bags_from_grid(FINE, COARSE.isel(lat=[0])), "one cell along 'lat': give its ends as `edges`"),
    (lambda: bags_from_grid(FINE, COARSE.isel(lat=[0, 2, 1])), "must increase or decrease from one cell to the next"),
    (lambda: bags_from_grid(FINE, COARSE, edges={"lat": [0.0, 1.0]}), "`edges` must have 4 numbers along 'lat'"),
    (lambda: bags_from_grid(FINE, COARSE.assign_coords(lat=[60.0, 61.0, 62.0])), "got none: compare the coordinates"),
    (lambda: bags_from_grid(FINE, blocks={"lat": 4}), "`blocks` must divide the 6 pixels along 'lat', got 4"),
    (lambda: bags_from_grid(FINE, blocks={"height": 2}), "`blocks` must name dimensions of the grid"),
    (lambda: bags_from_grid(FINE, blocks=0), "`blocks` must be at least 1 along each dimension"),
    (lambda: coarsen(FINE, 2, boundary="cut"), "`boundary` must be one of \\('exact', 'trim', 'pad'\\), got 'cut'"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_grids_of_the_same_degrees_lose_no_pixel():
    turned = WHOLE.assign_coords(lon=(WHOLE["lon"] + 180) % 360 - 180).sortby("lon")
    grid = bags_from_grid(turned, HALF, covariates=["t"])
    assert (grid.num_outside, grid.num_empty, grid.bags.num_bags) == (0, 0, 24)


def test_fill_values_are_not_in_the_means_of_blocks():
    filled = FINE.fillna(0).copy()
    filled[0, 0] = -9999.0
    named = filled.assign_attrs(_FillValue=-9999.0)
    expected = coarsen(FINE.where(filled != -9999.0), 2)
    xr.testing.assert_allclose(coarsen(named, 2), expected)
    xr.testing.assert_allclose(coarsen(named.to_dataset(), 2)["v"], expected)
    assert bags_from_grid(named, blocks=2).fine.num_dropped == 1
