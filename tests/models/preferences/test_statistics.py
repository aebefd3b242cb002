"""Rankability, circles and clustering against enumeration, SciPy, networkx and closed forms."""

from __future__ import annotations

from itertools import combinations, permutations

import networkx as nx
import numpy as np
import pytest
from scipy.spatial.distance import directed_hausdorff

from kpp_models import count_cycles, mean_clustering_coefficient, spectral_rankability

RNG = np.random.default_rng(0)
ROCK_PAPER_SCISSORS = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])


def tournament(num_items: int, share: float) -> np.ndarray:
    """Draw a graph in which a share of the pairs is decided, either way."""
    decided = np.triu(RNG.random((num_items, num_items)) < share, 1)
    upper = RNG.random((num_items, num_items)) < 0.5
    return (decided & upper) + (decided & ~upper).T * 1.0


def perfect(num_items: int) -> np.ndarray:
    """Return a ranking of all items in some order."""
    order = RNG.permutation(num_items)
    return np.triu(np.ones((num_items, num_items)), 1)[np.ix_(order, order)]


GRAPHS = {
    "ranking": perfect(7),
    "tournament": tournament(8, 1.0),
    "few": tournament(9, 0.3),
    "circle": ROCK_PAPER_SCISSORS,
    "weights": RNG.random((6, 6)) * (1.0 - np.eye(6)),
    "nothing": np.zeros((4, 4)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_rankability_is_its_definition(name):
    graph = GRAPHS[name]
    size = len(graph)
    ranking = np.stack([np.arange(size), np.zeros(size)], axis=1)
    spectrum = np.linalg.eigvals(np.diag(graph.sum(axis=1)) - graph)
    total = 0.0
    for values in (spectrum, graph.sum(axis=1) + 0j):
        points = np.stack([values.real, values.imag], axis=1)
        total += max(directed_hausdorff(points, ranking)[0], directed_hausdorff(ranking, points)[0])
    # Both take the same eigenvalues; what is left is the rounding of distances.
    assert spectral_rankability(graph) == pytest.approx(1.0 - total / (2 * (size - 1)), abs=1e-12)


@pytest.mark.parametrize("num_items", [2, 5, 30])
def test_a_ranking_measures_one_and_no_matches_nothing(num_items):
    # The matrix is triangular in the order of the ranking, which the balancing of LAPACK finds: exact eigenvalues.
    assert spectral_rankability(perfect(num_items)) == 1.0
    assert spectral_rankability(np.zeros((num_items, num_items))) == 0.0


def test_rock_paper_scissors_measure_one_half():
    # Eigenvalues 1 - w of the cube roots w of 1, that is 0 and 3/2 +- i sqrt(3)/2, at distance 1 of 1 and of 2; the
    # degrees are all 1, at distance 1 of 0 and of 2. So 1 - (1 + 1) / 4.
    assert spectral_rankability(ROCK_PAPER_SCISSORS) == pytest.approx(0.5, abs=1e-12)


def test_no_graph_of_four_but_the_rankings_measures_one():
    edges = list(combinations(range(4), 2))
    found = 0
    for code in range(3 ** len(edges)):
        graph = np.zeros((4, 4))
        for number, (i, j) in enumerate(edges):
            outcome = code // 3**number % 3
            graph[i, j], graph[j, i] = outcome == 1, outcome == 2
        value = spectral_rankability(graph)
        assert 0.0 <= value <= 1.0
        found += value > 1.0 - 1e-9
    assert found == len(list(permutations(range(4))))


@pytest.mark.parametrize("name", GRAPHS)
def test_circles_are_those_of_an_enumeration(name):
    graph = GRAPHS[name]
    above = graph > graph.T
    expected = 0
    for i, j, k in combinations(range(len(graph)), 3):
        expected += (above[i, j] and above[j, k] and above[k, i]) or (above[i, k] and above[k, j] and above[j, i])
    assert count_cycles(graph) == expected
    directed = nx.from_numpy_array(above.astype(float), create_using=nx.DiGraph)
    assert count_cycles(graph) == sum(len(cycle) == 3 for cycle in nx.simple_cycles(directed, length_bound=3))


def test_circles_of_draws_and_of_any_form_of_preferences():
    skew = RNG.normal(size=(2, 3, 6, 6))
    skew = skew - np.swapaxes(skew, -1, -2)
    counts = count_cycles(skew)
    assert counts.shape == (2, 3)
    assert counts[1, 2] == count_cycles(skew[1, 2])
    np.testing.assert_array_equal(counts, count_cycles(1.0 / (1.0 + np.exp(-skew))))


def test_the_bounds_of_kendall_are_met():
    for num_items, most in ((3, 1), (5, 5), (7, 14)):  # (n^3 - n) / 24, by the regular tournament
        steps = (np.arange(num_items)[None, :] - np.arange(num_items)[:, None]) % num_items
        assert count_cycles((steps >= 1) & (steps <= num_items // 2)) == most
    assert count_cycles(perfect(6)) == 0


@pytest.mark.parametrize("name", GRAPHS)
def test_clustering_is_that_of_networkx(name):
    met = ((GRAPHS[name] + GRAPHS[name].T) > 0).astype(float)
    expected = nx.average_clustering(nx.from_numpy_array(met))
    assert mean_clustering_coefficient(GRAPHS[name]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: spectral_rankability([[0.0, 2.0], [0.0, 0.0]]),
            "`adjacency` must have weights from 0 to 1, got up to 2",
        ),
        (lambda: spectral_rankability([[0.0, -1.0], [1.0, 0.0]]), "`adjacency` must have no negative entries"),
        (lambda: spectral_rankability(np.eye(3)), "a diagonal of zeros, got .* of the diagonal 1"),
        (lambda: spectral_rankability(np.zeros((2, 3))), "must have shape \\(n, n\\).*got shape \\(2, 3\\)"),
        (lambda: spectral_rankability(np.zeros((2, 3, 3))), "must have shape \\(n, n\\)"),
        (lambda: spectral_rankability([[0.0]]), "with n of at least 2, got shape \\(1, 1\\)"),
        (lambda: count_cycles([[0.0, np.nan], [0.0, 0.0]]), "`preferences` must be finite"),
        (lambda: count_cycles(np.zeros(4)), "`preferences` must have shape \\(\\*draws, n, n\\)"),
        (lambda: mean_clustering_coefficient([[1.0, 0.0], [0.0, 0.0]]), "a diagonal of zeros"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
