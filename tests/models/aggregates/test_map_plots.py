"""What the maps draw: which values, where, on which scale of colors. Pixels are not compared."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from kpp import plots

pytestmark = pytest.mark.filterwarnings("error")

RNG = np.random.default_rng(3)
LAT = ("lat", [10.0, 20.0, 30.0], {"units": "degrees north"})
TRUTH = xr.DataArray(
    RNG.normal(size=(3, 4)), coords={"lat": LAT, "lon": np.arange(4.0)}, dims=("lat", "lon"), attrs={"units": "K"}
)
MEAN = TRUTH + 2.0 + 0.1 * RNG.normal(size=(3, 4))
BOUNDS = {"mean": MEAN, "lower": MEAN - 1.0, "upper": MEAN + 2.0}
PREDICTION = xr.Dataset(BOUNDS, attrs={"probability": 0.9, "interval_of": "the field"})


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def mesh(ax):
    (found,) = ax.collections
    return found


def test_a_field_is_drawn_at_its_coordinates():
    values = TRUTH.copy()
    values[0, 1] = np.nan
    _, ax = plt.subplots()
    assert plots.field(values, ax=ax, label="temperature") is ax
    drawn = mesh(ax).get_array()
    np.testing.assert_array_equal(drawn.filled(np.nan), values.values)
    assert mesh(ax).get_clim() == (values.min(), values.max())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lon", "lat [degrees north]")
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 3.5), (5.0, 35.0))
    ax.figure.canvas.draw()


def test_draws_are_shown_by_their_mean_and_axes_without_coordinates_count():
    draws = xr.DataArray(RNG.normal(size=(2, 5, 3, 4)), dims=("chain", "draw", "row", "column"))
    ax = plots.field(draws)
    np.testing.assert_allclose(mesh(ax).get_array(), draws.values.mean(axis=(0, 1)), rtol=1e-12)
    assert ax.get_xlim() == (-0.5, 3.5)


def test_differences_are_white_at_0():
    ax = plots.field(TRUTH - 5.0, diverging=True)
    low, high = mesh(ax).get_clim()
    assert low == -high == float((TRUTH - 5.0).min())
    np.testing.assert_allclose(mesh(ax).get_cmap()(0.5), 1.0, atol=0.01)


@pytest.mark.slow
def test_truth_and_mean_share_their_colors():
    axes = plots.maps(PREDICTION, TRUTH.T)
    width = "width of the 90% interval of the field"
    assert [ax.get_title() for ax in axes] == ["truth", "mean", width, "mean less truth"]
    expected = [TRUTH, MEAN, xr.full_like(TRUTH, 3.0), MEAN - TRUTH]
    for ax, values in zip(axes, expected, strict=True):
        np.testing.assert_allclose(mesh(ax).get_array(), values.values, rtol=1e-12)
    assert mesh(axes[0]).get_clim() == mesh(axes[1]).get_clim() == (TRUTH.min(), MEAN.max())
    axes[0].figure.canvas.draw()


def test_maps_without_truth_on_axes_that_are_given():
    _, grid = plt.subplots(1, 2)
    assert plots.maps(PREDICTION, axes=list(grid)) == list(grid)


MISTAKES = [
    (lambda: plots.field(TRUTH.isel(lat=0)), r"`values` must have two dimensions .*, got \['lon'\]"),
    (lambda: plots.field(TRUTH * np.nan), "`values` must have a value that is not missing"),
    (lambda: plots.maps(PREDICTION[["mean"]]), r"got none of \['lower', 'upper'\]"),
    (lambda: plots.maps(PREDICTION, TRUTH, axes=[plt.gca()]), "`axes` must be 4, one a map, got 1"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
