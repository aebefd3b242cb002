"""Fields of different grids on one grid, against SciPy's interpolation."""

import numpy as np
import pytest
import xarray as xr
from scipy.interpolate import RegularGridInterpolator

from kpp_models.aggregates import grids

FINE = xr.Dataset(coords={"lat": np.linspace(-60.0, 60.0, 9), "lon": np.arange(0.0, 360.0, 20.0)})
FINE["mask"] = ("lat", "lon"), np.zeros((9, 18))
LATITUDES = np.linspace(80.0, -80.0, 5)  # downwards
VALUES = np.random.default_rng(0).normal(size=(5, 8))


def coarse(first_longitude, **attrs):
    coords = {
        "latitude": ("latitude", LATITUDES),
        "longitude": ("longitude", first_longitude + np.arange(0.0, 360.0, 45.0)),
    }
    return xr.DataArray(VALUES, coords, ("latitude", "longitude"), "clt", attrs)


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("first_longitude", [10.0, -170.0])
def test_values_are_those_of_scipy_on_a_globe_that_is_repeated(method, first_longitude):
    found = grids.collocate({"cover": coarse(first_longitude, units="%")}, FINE, method=method)["cover"]
    around = np.concatenate([first_longitude + turn + np.arange(0.0, 360.0, 45.0) for turn in (-360.0, 0.0, 360.0)])
    peer = RegularGridInterpolator((LATITUDES[::-1], around), np.tile(VALUES[::-1], (1, 3)), method=method)
    expected = peer(np.stack(np.meshgrid(FINE.lat, FINE.lon, indexing="ij"), axis=-1))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.dims == ("lat", "lon")
    assert found.attrs == {"units": "%"}
    assert found.indexes["lon"].equals(FINE.indexes["lon"])


def test_files_of_cmip6_are_read_as_they_are_and_become_bags():
    file = coarse(10.0).expand_dims(time=1).to_dataset()
    file["lat_bnds"] = ("latitude", "bnds"), np.zeros((5, 2))
    own = FINE["mask"].rename(lat="y", lon="x") + 1.0
    own.coords["y"].attrs["standard_name"], own.coords["x"].attrs["standard_name"] = "latitude", "longitude"
    fine = grids.collocate({"cover": file, "height": own}, FINE)
    assert fine["height"].notnull().all()
    mediator = xr.Dataset({"p": (("lat", "lon"), np.ones((2, 3)))}, {"lat": [-30.0, 30.0], "lon": [50.0, 170.0, 290.0]})
    cells = grids.bags_from_grid(fine, mediator, covariates=["p"])
    assert cells.bags.feature_names == ("lat", "lon", "cover", "height")
    assert cells.bags.num_bags == 6


def test_a_part_of_the_globe_is_not_continued():
    part = coarse(10.0).isel(longitude=slice(0, 4))
    found = grids.collocate({"cover": part}, FINE)["cover"]
    # The pixels have centers from 10 to 145 degrees and a width of 45.
    assert found.sel(lon=[0.0, 140.0, 160.0]).notnull().all()
    assert found.sel(lon=[180.0, 320.0]).isnull().all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "`fields` must hold at least one field, got none"),
        ({"a": xr.concat([coarse(0.0), coarse(0.0)], dim="time")}, r"got \{'time': 2\}; take a mean or select one"),
        ({"a": coarse(0.0)[:1]}, "`a` must have at least 2 latitudes and 2 longitudes, got"),
        ({"a": xr.DataArray([1.0], dims="x")}, "`a` must hold one variable on latitudes and longitudes, got"),
    ],
)
def test_unsuitable_fields_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        grids.collocate(fields, FINE)
