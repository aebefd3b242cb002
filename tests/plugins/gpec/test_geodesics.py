"""Geodesic distances against scikit-learn's Isomap, Floyd and Warshall, great circles and a stored vector."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.manifold import Isomap

from kpp_gpec import geodesic_distances

DATA = Path(__file__).parents[2] / "data"


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def clusters(count, n=30):
    """Return clusters that are further from each other than points of one cluster are."""
    return np.concatenate([normal(n, 2, seed) + [20.0 * seed, 7.0 * seed**2] for seed in range(count)])


def sphere(n):
    """Return points spread evenly on the unit sphere, along a spiral."""
    index = np.arange(n) + 0.5
    polar, azimuth = np.arccos(1.0 - 2.0 * index / n), np.pi * (1.0 + 5.0**0.5) * index
    return np.stack([np.cos(azimuth) * np.sin(polar), np.sin(azimuth) * np.sin(polar), np.cos(polar)], axis=1)


def floyd_warshall(points, num_neighbors):
    """Return the shortest paths in the graph of nearest neighbors, by the oldest algorithm."""
    lengths = cdist(points, points)
    paths = np.full_like(lengths, np.inf)
    for i, row in enumerate(lengths):
        near = [j for j in np.argsort(row, kind="stable") if j != i][:num_neighbors]
        paths[i, near] = paths[near, i] = row[near]
    np.fill_diagonal(paths, 0.0)
    for k in range(len(points)):
        paths = np.minimum(paths, paths[:, k, None] + paths[None, k])
    return paths


def test_agrees_with_the_stored_vector():
    with np.load(DATA / "gpec.npz") as vectors:
        found = geodesic_distances(vectors["in_DB"], num_neighbors=4)
        np.testing.assert_allclose(found.distances, vectors["out_isomap_k4"], rtol=1e-7, atol=1e-10)
    assert found.num_components == 1


@pytest.mark.parametrize(("n", "d", "k"), [(40, 1, 10), (60, 2, 5), (80, 4, 10)])
def test_agrees_with_floyd_and_warshall(n, d, k):
    points = normal(n, d)
    found = geodesic_distances(points, k)
    assert found.num_components == 1
    # sums of at most 80 lengths, in another order
    np.testing.assert_allclose(found.distances, floyd_warshall(points, k), rtol=1e-13)


@pytest.mark.parametrize("points", [normal(300, 3), clusters(2), clusters(5)], ids=["one", "two", "five"])
@pytest.mark.filterwarnings("ignore:The number of connected components:UserWarning")
@pytest.mark.filterwarnings("ignore:Changing the sparsity structure")
def test_agrees_with_isomap_connected_or_not(points):
    expected = Isomap(n_neighbors=10).fit(points).dist_matrix_
    np.testing.assert_allclose(geodesic_distances(points).distances, expected, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_counts_the_components(count):
    found = geodesic_distances(clusters(count))
    assert (found.num_components, found.num_neighbors) == (count, 10)
    assert np.isfinite(found.distances).all()


def test_rows_stay_in_order_where_the_graph_has_several_components():
    points = clusters(3)
    order = np.random.default_rng(1).permutation(len(points))
    found = geodesic_distances(points[order]).distances
    np.testing.assert_allclose(
        found, np.asarray(geodesic_distances(points).distances)[np.ix_(order, order)], rtol=1e-13
    )
    assert (np.asarray(found) >= cdist(points[order], points[order]) * (1.0 - 1e-13)).all()


def test_a_bridge_is_the_edge_between_the_two_closest_points():
    points = np.array([[0.0, 0.0], [0.0, 1.0], [5.0, 1.0], [5.0, 3.0]])
    found = geodesic_distances(points, num_neighbors=1)
    assert found.num_components == 2
    np.testing.assert_allclose(found.distances[0], [0.0, 1.0, 6.0, 8.0], rtol=1e-15)


@pytest.mark.slow
def test_approaches_great_circles():
    points = sphere(2000)
    exact = np.arccos(np.clip(points @ points.T, -1.0, 1.0))
    found = np.asarray(geodesic_distances(points).distances)
    far = exact > 0.5
    # Paths of edges are longer than arcs, by 4 % on average over 10 neighbors, and chords shorter, by (.1)^2 / 24.
    assert (found[far] >= exact[far] * (1.0 - 1e-3)).all()
    assert (found[far] / exact[far]).mean() < 1.06
    assert (found[far] / exact[far]).max() < 1.2


def test_is_a_metric():
    found = np.asarray(geodesic_distances(clusters(2)).distances)
    assert (found == found.T).all() and (np.diag(found) == 0.0).all()
    assert (found[:, None] <= (found[:, :, None] + found[None]).min(axis=1)[:, None] * (1.0 + 1e-13)).all()


def test_duplicates_are_one_point():
    points = normal(50, 2)
    order = np.random.default_rng(1).integers(50, size=400)
    order[:50] = np.arange(50)
    expected = np.asarray(geodesic_distances(points).distances)[np.ix_(order, order)]
    np.testing.assert_allclose(geodesic_distances(points[order]).distances, expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[3.0, 4.0]], [[0.0]]),
        ([[3.0], [3.0]], [[0.0, 0.0], [0.0, 0.0]]),
        ([[0.0], [2.0]], [[0.0, 2.0], [2.0, 0.0]]),
        # The square of the first distance is not a floating-point number.
        ([[0.0], [1e-200], [1.0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]),
    ],
)
def test_few_points(points, expected):
    np.testing.assert_allclose(geodesic_distances(np.array(points)).distances, expected, rtol=1e-15, atol=1e-150)


@pytest.mark.parametrize(
    ("points", "num_neighbors", "message"),
    [
        (np.zeros((0, 3)), 10, "`points` must hold at least one point of the boundary, got none"),
        (np.array([[1.0], [np.nan]]), 10, "`points` must be finite, got 1 NaN"),
        (np.ones(3), 10, r"`points` must have shape \(n, d\)"),
        (np.ones((3, 2)), 0, "`num_neighbors` must be at least 1, got 0"),
    ],
)
def test_says_what_is_wrong(points, num_neighbors, message):
    with pytest.raises(ValueError, match=message):
        geodesic_distances(points, num_neighbors)


@pytest.mark.nightly
def test_five_thousand_points():
    points = np.concatenate([sphere(2500), sphere(2500) + 4.0])
    found = geodesic_distances(points)
    assert found.num_components == 2
    assert np.isfinite(found.distances).all()
    # half a great circle is 3.14, and the two spheres are 4.93 apart
    assert 3.14 < found.distances[:2500, :2500].max() < 3.6
    assert 4.9 < found.distances[:2500, 2500:].min() < 5.0
