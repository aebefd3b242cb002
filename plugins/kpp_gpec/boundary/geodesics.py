"""Geodesic distances on a sampled surface, by shortest paths in a graph of nearest neighbors."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial.distance import cdist

from kpp.foundation.validation import as_points, count
from kpp.typing import AnyArray

# The largest number of entries of a block of distances.
_BLOCK = 2**24


class Geodesics(eqx.Module):
    """Geodesic distances between the points of a sample.

    Args:
        distances: D, symmetric and finite, zero between a point and itself and its duplicates, (J, J).
        num_components: The number of components of the graph of neighbors before they were connected by bridges.
        num_neighbors: The number of neighbors of each point.
    """

    distances: Float[Array, "J J"]
    num_components: int = eqx.field(static=True)
    num_neighbors: int = eqx.field(static=True)


def geodesic_distances(points: AnyArray, num_neighbors: int = 10) -> Geodesics:
    r"""Return the distances between points along the surface on which they lie, as in Isomap.

    .. math:: D_{ij} = \min_{i = i_0, \ldots, i_m = j} \sum_l \|x_{i_l} - x_{i_{l+1}}\|

    over the paths in the graph that connects each point to its nearest neighbors, in either direction. If the graph has
    several components, every two of them are connected by their shortest bridge, the edge between the two closest
    points, so that every distance is finite. Duplicates are one point of the graph, and their distance is 0.

    The distances depend on the units of the features: standardize them first.

    Args:
        points: The sample, (J, d), at least one point.
        num_neighbors: k, the number of neighbors. With fewer than 10 there are often many components.

    Returns:
        The distances in the order of the points, with the number of components.

    Raises:
        ValueError: If `points` is empty or not finite, or `num_neighbors` is below 1.

    References:
        Tenenbaum, de Silva, Langford (2000), "A global geometric framework for nonlinear dimensionality reduction".
        Hill, Masoomi, Torop, Ghimire, Dy (2023), "Boundary-aware uncertainty for feature attribution explainers",
        appendix D.2.
    """
    if getattr(points, "shape", (1,))[0] == 0:
        raise ValueError(
            "`points` must hold at least one point of the boundary, got none; the sample's `status` says what was tried"
        )
    count(num_neighbors, "num_neighbors")
    distinct, positions = np.unique(np.asarray(as_points(points, "points"), float), axis=0, return_inverse=True)
    num_neighbors = min(num_neighbors, len(distinct) - 1)
    if num_neighbors == 0:
        return Geodesics(jnp.zeros((len(positions),) * 2), num_components=1, num_neighbors=0)
    graph = _neighbor_graph(distinct, num_neighbors)
    num_components, labels = connected_components(graph, directed=False)
    # The graph has both directions of each edge, so it can be treated as directed, which is faster.
    distances = dijkstra(_with_bridges(graph, distinct, labels), directed=True)
    distances = np.minimum(distances, distances.T)  # the sums along a path in the two directions differ by rounding
    in_order = jnp.asarray(distances[np.ix_(positions, positions)], jnp.result_type(float))
    return Geodesics(in_order, int(num_components), num_neighbors)


def _neighbor_graph(points: Float[np.ndarray, "J d"], num_neighbors: int) -> csr_array:
    """Return the lengths of the edges to the nearest neighbors, in both directions."""
    from sklearn.neighbors import kneighbors_graph  # slow to import, so it is imported on use

    graph = csr_array(kneighbors_graph(points, num_neighbors, mode="distance"))
    # Squares of tiny differences underflow, and a sparse graph has no edges of length zero.
    graph.data = np.maximum(graph.data, np.finfo(float).tiny)
    return graph.maximum(graph.T).tocsr()


def _with_bridges(graph: csr_array, points: Float[np.ndarray, "J d"], labels: Int[np.ndarray, " J"]) -> csr_array:
    """Add the shortest edge between every two components."""
    if not labels.any():
        return graph
    edges = [_bridges(points, labels, component) for component in range(labels.max())]
    rows, columns, lengths = (np.concatenate(parts) for parts in zip(*edges, strict=True))
    shape = graph.shape
    added = coo_array((np.concatenate([lengths] * 2), (np.r_[rows, columns], np.r_[columns, rows])), shape=shape)
    return (graph + added).tocsr()


def _bridges(
    points: Float[np.ndarray, "J d"], labels: Int[np.ndarray, " J"], component: int
) -> tuple[Int[np.ndarray, " b"], Int[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Return the shortest edges from a component to each later one: both ends and the length."""
    own, others = np.flatnonzero(labels == component), np.flatnonzero(labels > component)
    nearest, lengths = _nearest_own(points[own], points[others])
    order = np.lexsort((lengths, labels[others]))
    first = order[np.unique(labels[others][order], return_index=True)[1]]
    return own[nearest[first]], others[first], np.maximum(lengths[first], np.finfo(float).tiny)


def _nearest_own(
    own: Float[np.ndarray, "a d"], others: Float[np.ndarray, "b d"]
) -> tuple[Int[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Return the nearest of a component's points to each other point, and its distance."""
    parts = []
    for block in np.array_split(others, max(1, len(own) * len(others) // _BLOCK)):
        distances = cdist(block, own)
        nearest = distances.argmin(axis=1)
        parts.append((nearest, distances[np.arange(len(block)), nearest]))
    nearest, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
    return nearest, lengths
