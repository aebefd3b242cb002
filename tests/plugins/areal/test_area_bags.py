"""Weights of cells by brute force, kriging against the textbook system, kept averages, CRS, refusals, a Cox process."""

import jax
import numpy as np
import pytest
import xarray as xr

import kpp
from kpp.kernels import RBF, Matern32
from kpp_areal import area_bags
from kpp_models import BaggGP
from oracles.area_to_point_kriging import area_to_point_kriging

gpd = pytest.importorskip("geopandas")
pytest.importorskip("rioxarray")
shapely = pytest.importorskip("shapely")

X, Y = np.arange(6) + 0.5, np.arange(4)[::-1] + 0.5
CORNERS = [shapely.box(0, 0, 2.5, 2.3), shapely.box(2.5, 0, 6, 2.3), shapely.box(0, 2.3, 3.2, 4)]
SLANTED = shapely.Polygon([(3.2, 2.3), (6, 2.3), (6, 4), (4.1, 3.9)])
AVERAGES = np.array([1.0, 2.0, 0.5, -1.0])
KERNEL = Matern32(1.5).on(("x", "y")) + RBF(1.0).on("height")
BY_POSITION = Matern32(1.5).on((0, 1)) + RBF(1.0).on(2)


def raster(crs="EPSG:3035", **changes):
    rng = np.random.default_rng(0)
    layers = {"height": rng.normal(size=(4, 6)), "people": rng.uniform(0.0, 9.0, size=(4, 6))} | changes
    grid = xr.Dataset({name: (("y", "x"), layer) for name, layer in layers.items()}, {"y": Y, "x": X})
    return grid if crs is None else grid.rio.write_crs(crs)


def areas(polygons=(*CORNERS, SLANTED), crs="EPSG:3035"):
    return gpd.GeoDataFrame({"name": list("abcdefg")[: len(polygons)]}, geometry=list(polygons), crs=crs)


@pytest.fixture(scope="module")
def fitted():
    """Areas, and the posterior of a field at known hyperparameters from their noisy averages."""
    cells = area_bags(areas(), raster(), weights="people")
    model = BaggGP(cells.kernel(KERNEL), 0.05, noise="per_bag")
    return cells, model.fit(jax.random.key(0), cells.bags, AVERAGES, num_prior_samples=0)


def brute_force(polygons, people):
    """The people of each cell in each polygon."""
    found = [
        people[row, column] * polygon.intersection(shapely.box(x - 0.5, y - 0.5, x + 0.5, y + 0.5)).area
        for polygon in polygons
        for row, y in enumerate(Y)
        for column, x in enumerate(X)
    ]
    return np.reshape(found, (len(polygons), -1))


@pytest.mark.parametrize("weights", [None, "people"])
def test_weights_are_the_areas_of_intersections_times_the_layer(weights):
    grid = raster()
    cells = area_bags(areas(), grid, weights=weights)
    layer = np.ones((4, 6)) if weights is None else grid["people"].values
    expected = brute_force(areas().geometry, layer)
    np.testing.assert_allclose(cells.shares.toarray(), expected, atol=1e-12)
    np.testing.assert_allclose(cells.exposure, expected.sum(axis=1))
    bag, values = np.asarray(cells.bags.index), np.asarray(cells.bags.points)
    by_bags = np.bincount(bag, values[:, -1] * values[:, 2]) / np.asarray(cells.bags.sizes)
    np.testing.assert_allclose(by_bags, cells.averages @ cells.points["height"], rtol=1e-12)
    assert list(cells.points) == ["x", "y", "height", *(["people"] if weights is None else []), "weight"]


@pytest.mark.slow
def test_the_posterior_is_area_to_point_kriging(fitted):
    cells, fit = fitted
    found = fit.predict(cells.points, covariance=True)
    gram = np.asarray(BY_POSITION.gram(cells.points.to_numpy()[:, :3]))
    expected, covariance = area_to_point_kriging(gram, cells.averages.toarray(), AVERAGES, 0.05)
    np.testing.assert_allclose(found["mean"].values[0, 0], expected, atol=1e-10)
    np.testing.assert_allclose(found["latent_covariance"].values[0, 0], covariance, atol=1e-10)


@pytest.mark.slow
def test_draws_keep_averages_and_have_the_moments_of_kriging_without_noise(fitted):
    cells, fit = fitted
    free = cells.draws(jax.random.key(1), fit, 400)
    kept = cells.draws(jax.random.key(1), fit, 20_000, averages=AVERAGES)
    assert np.abs(free @ cells.averages.T.toarray() - AVERAGES).max() > 0.1
    np.testing.assert_allclose(kept @ cells.averages.T.toarray(), np.tile(AVERAGES, (20_000, 1)), atol=1e-12)
    gram = np.asarray(BY_POSITION.gram(cells.points.to_numpy()[:, :3]))
    expected, covariance = area_to_point_kriging(gram, cells.averages.toarray(), AVERAGES)
    # The Monte Carlo error of a mean is at most 1.4 / sqrt(20,000) = 0.01, that of a variance 2 / 100 at most.
    np.testing.assert_allclose(kept.mean(axis=0), expected, atol=0.05)
    np.testing.assert_allclose(np.cov(kept.T), covariance, atol=0.1)
    assert cells.over(kept)["sd"].max() < 1e-12


def test_summaries_of_sub_areas_are_weighted_averages_and_totals(fitted):
    cells, fit = fitted
    draws = cells.draws(jax.random.key(2), fit, 50)
    parts = areas([shapely.box(0.2, 0.3, 1.7, 1.9), shapely.box(1.0, 1.0, 5.5, 3.2)])
    weights = brute_force(parts.geometry, raster()["people"].values)
    totals, means = cells.over(draws, parts, total=True, probability=0.9), cells.over(draws, parts)
    assert isinstance(means, gpd.GeoDataFrame) and means.crs == parts.crs
    np.testing.assert_allclose(totals["mean"], (draws @ weights.T).mean(axis=0))
    np.testing.assert_allclose(means["sd"], (draws @ weights.T / weights.sum(axis=1)).std(axis=0))
    np.testing.assert_allclose(totals["lower"], np.quantile(draws @ weights.T, 0.05, axis=0))


def test_counts_of_pieces_keep_totals_and_have_the_law_of_poisson_counts_with_this_sum():
    """Rejection: Poisson counts of all pieces whose sum is the total. Both means of 20,000 draws err by about 0.01."""
    cells, rng = area_bags(areas(CORNERS[:2]), raster(), weights="people"), np.random.default_rng(0)
    rates = np.exp(rng.normal(size=len(cells.points)))
    totals = np.array([3, 7])
    found = cells.counts(jax.random.key(0), np.tile(rates, (20_000, 1)), totals)
    kept = found.groupby("area").sum()
    assert kept["area"].values.tolist() == [0, 1] and (kept.values == totals).all()
    by_cell = found.groupby("cell").sum()
    np.testing.assert_array_equal(by_cell.sum("cell"), np.full(20_000, 10))
    for area, total in enumerate(totals):
        _, cell = cells.shares[[area]].nonzero()
        means = cells.shares[[area]].toarray()[0, cell] * rates[cell]
        simulated = rng.poisson(means * total / means.sum(), size=(200_000, len(cell)))
        simulated = simulated[simulated.sum(axis=1) == total]
        ours = found.values[:, found["area"].values == area]
        np.testing.assert_array_equal(found["cell"].values[found["area"].values == area], cell)
        np.testing.assert_allclose(ours.mean(axis=0), simulated.mean(axis=0), atol=0.05)
        np.testing.assert_allclose(np.cov(ours.T), np.cov(simulated.T), atol=0.08)


@pytest.mark.parametrize(
    ("rates", "totals", "message"),
    [
        (1.0, [1, 2, 3], "`totals` must be 4 whole numbers of at least 0"),
        (1.0, [1, 2, 3, 0.5], "`totals` must be 4 whole numbers of at least 0"),
        (1.0, [1, 2, 3, -1], "`totals` must be 4 whole numbers of at least 0"),
        (1.0, [1, 2, 3, np.inf], "`totals` must be 4 whole numbers of at least 0"),
        (1.0, [1, 2, 3, np.nan], "`totals` must be 4 whole numbers of at least 0"),
        (0.0, [1, 2, 3, 4], "`rates` must be positive, got 0; give the exponential of log rates"),
        (np.inf, [1, 2, 3, 4], "`rates` must be finite"),
    ],
)
def test_counts_that_cannot_be_are_refused(rates, totals, message):
    cells = area_bags(areas(), raster())
    with pytest.raises(ValueError, match=message):
        cells.counts(jax.random.key(0), np.full((2, len(cells.points)), rates), totals)


def test_maps_and_tables_survive_geotiff_and_geoparquet(fitted, tmp_path):
    import rioxarray
    from geopandas.testing import assert_geodataframe_equal

    cells, fit = fitted
    draws = cells.draws(jax.random.key(3), fit, 20)
    field = cells.map(draws)
    field.rio.to_raster(tmp_path / "map.tif")
    with rioxarray.open_rasterio(tmp_path / "map.tif") as read:
        assert read.rio.crs == cells.crs
        np.testing.assert_allclose(read.sel(band=1), field["mean"])
    table = cells.over(draws, areas())
    table.to_parquet(tmp_path / "areas.parquet")
    assert_geodataframe_equal(gpd.read_parquet(tmp_path / "areas.parquet"), table)


def test_areas_in_another_crs_are_reprojected_and_degrees_weigh_by_the_sphere():
    degrees = raster("EPSG:4326").assign_coords(y=Y + 59.0, x=X)
    whole = areas([shapely.box(0, 59, 6, 63)], "EPSG:4326")
    cells = area_bags(whole, degrees)
    # A cell of a degree at 60 degrees north is half as wide as one at the equator.
    size = (np.pi / 180 * 6_371_008.8) ** 2
    np.testing.assert_allclose(
        cells.shares.toarray()[0].reshape(4, 6)[:, 0], size * np.cos(np.radians(Y + 59)), rtol=1e-4
    )
    again = area_bags(whole.to_crs("EPSG:3857"), degrees)
    np.testing.assert_allclose(again.exposure, cells.exposure, rtol=1e-9)


def test_missing_cells_outside_the_areas_are_no_points():
    height = raster()["height"].values
    height[3, 5] = np.nan
    cells = area_bags(areas(CORNERS[:1]), raster(height=height))
    assert len(cells.points) == 23
    assert np.isnan(cells.map(np.zeros((2, 23)))["mean"].values[3, 5])
    assert area_bags(areas(), raster(height=height), tolerance=0.2).bags.num_bags == 4


BOW = shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 3)])
HOLE = np.where(np.arange(24).reshape(4, 6) == 20, np.nan, 1.0)


@pytest.mark.parametrize(
    ("polygons", "grid", "options", "message"),
    [
        (lambda: areas(crs=None), raster, {}, r"`areas` must have a CRS.*set_crs"),
        (areas, lambda: raster(None), {}, r"`raster` must have a CRS.*write_crs"),
        (
            lambda: areas([CORNERS[0], shapely.box(2, 0, 4, 1)]),
            raster,
            {},
            "must not overlap, got 0 and 1, which share 0.25",
        ),
        (lambda: areas([BOW]), raster, {}, "must be valid polygons.*make_valid"),
        (lambda: areas([shapely.Point(1, 1)]), raster, {}, "must be polygons"),
        (lambda: areas([shapely.box(9, 9, 10, 10)]), raster, {}, "must cover cells.*got none for 0"),
        (lambda: areas([shapely.box(4, 0, 8, 4)]), raster, {}, "a share of 0.5 outside or in cells with NaN"),
        (areas, lambda: raster(height=HOLE), {}, "a share of .* in cells with NaN, more than `tolerance`, for 0"),
        (areas, lambda: raster(people=np.zeros((4, 6))), {"weights": "people"}, "positive sum of `weights`"),
        (areas, lambda: raster(people=-np.ones((4, 6))), {"weights": "people"}, "`weights` must be at least 0"),
        (areas, raster, {"variables": ["depth"]}, "got no 'depth' among"),
        (areas, raster, {"variables": [], "coordinates": False}, "`variables` must name a variable"),
        (areas, lambda: raster(weight=np.ones((4, 6))), {}, "must not have the name 'weight'"),
        (areas, lambda: raster().expand_dims(time=2), {}, "got also"),
        (areas, lambda: raster().isel(x=[0]), {}, "two or more coordinates"),
    ],
)
def test_bad_input_is_refused(polygons, grid, options, message):
    with pytest.raises(ValueError, match=message):
        area_bags(polygons(), grid(), **options)


def test_draws_of_the_wrong_shape_and_other_kinds_are_refused(fitted):
    cells, fit = fitted
    with pytest.raises(ValueError, match="`draws` must be finite, of shape"):
        cells.over(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="`averages` must be 4 finite numbers"):
        cells.draws(jax.random.key(0), fit, 2, averages=AVERAGES[:2])
    with pytest.raises(TypeError, match="`areas` must be a GeoDataFrame"):
        area_bags(areas().geometry, raster())
    with pytest.raises(TypeError, match="`raster` must be an xarray"):
        area_bags(areas(), np.zeros((4, 6)))


@pytest.mark.nightly
def test_intervals_of_sub_areas_cover_in_a_log_gaussian_cox_process():
    """Points of a Cox process, counted in 12 areas; 90 % intervals of the intensity in 48 quarters, 8 data sets."""
    side = np.arange(16) + 0.5
    people = np.random.default_rng(1).uniform(20.0, 60.0, size=(16, 16))
    grid = xr.Dataset({"people": (("y", "x"), people)}, {"y": side, "x": side}).rio.write_crs("EPSG:3035")
    bounds = [(4.0 * i, 16 / 3 * j) for i in range(4) for j in range(3)]
    whole = gpd.GeoDataFrame(geometry=[shapely.box(x, y, x + 4, y + 16 / 3) for x, y in bounds], crs="EPSG:3035")
    corners = [(x + 2 * i, y + 8 / 3 * j) for x, y in bounds for i in range(2) for j in range(2)]
    quarters = gpd.GeoDataFrame(geometry=[shapely.box(x, y, x + 2, y + 8 / 3) for x, y in corners], crs="EPSG:3035")
    cells = area_bags(whole, grid, variables=[], weights="people")
    prior = RBF(4.0, 0.25)
    root = np.linalg.cholesky(np.asarray(prior.gram(cells.points.to_numpy()[:, :2])) + 1e-9 * np.eye(256))
    model = BaggGP(cells.kernel(prior), 1.0, mean=-2.0, likelihood="poisson")
    inference = kpp.NUTS(num_warmup=200, num_samples=50, num_chains=1, progress=False)
    hits = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rate = np.exp(-2.0 + root @ rng.normal(size=256))
        # A Cox process: a Poisson number of points in each piece of a cell, given the rate of the cell.
        cases = rng.poisson(cells.shares.toarray() * rate).sum(axis=1)
        data = {"exposure": cells.exposure, "inference": inference, "num_prior_samples": 0}
        fit = model.fit(jax.random.key(seed), cells.bags, cases, **data)
        found = cells.over(np.exp(cells.draws(jax.random.key(seed), fit, 400)), quarters, probability=0.9)
        truth = cells.over(np.tile(rate, (2, 1)), quarters)["mean"]
        hits.append(np.mean((found["lower"] <= truth) & (truth <= found["upper"])))
    # Quarters of one data set are dependent: the standard deviation of a data set's share is about 0.08.
    assert np.mean(hits) == pytest.approx(0.9, abs=0.08), hits
