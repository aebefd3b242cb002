"""Clusters of comparable items, recovered from matrices of which they are known."""

from __future__ import annotations

from itertools import permutations

import jax
import numpy as np
import pytest

from kpp.preferences import Matches
from kpp_models import (
    choose_num_clusters,
    clustering_accuracy,
    comparable_clusters,
    partial_ranking_clusters,
    svd_clusters,
)
from kpp_models.preferences.rankability.clusters import explained

KEY = jax.random.key(0)
SIZE = 30


def preferences(num_clusters: int, noise: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the clusters of 30 items and their preferences, sum_l (f_l 1_l' - 1_l f_l') and skew-symmetric noise."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(SIZE) % num_clusters)
    matrix = np.zeros((SIZE, SIZE))
    for cluster in range(num_clusters):
        indicator = (labels == cluster).astype(float)
        utility = rng.normal(size=SIZE) * indicator
        matrix += np.outer(utility, indicator) - np.outer(indicator, utility)
    disturbance = noise * rng.normal(size=(SIZE, SIZE))
    return labels, matrix + disturbance - disturbance.T


def outcomes(matrix: np.ndarray) -> Matches:
    """Play each pair of items once; pairs without preference are decided by the parity of the pair."""
    first, second = np.triu_indices(SIZE, 1)
    strength = matrix[first, second]
    return Matches.create(np.eye(SIZE), first, second, np.where(strength == 0, (first + second) % 2, strength > 0))


@pytest.mark.parametrize("num_clusters", [1, 2, 3, 5])
def test_clusters_of_a_matrix_of_the_model_are_recovered(num_clusters):
    labels, matrix = preferences(num_clusters)
    assert np.linalg.matrix_rank(matrix) == 2 * num_clusters
    assert clustering_accuracy(comparable_clusters(KEY, matrix, num_clusters, refine=True), labels) == 1.0


def test_two_clusters_are_recovered_by_k_means_alone():
    for seed in range(5):
        labels, matrix = preferences(2, seed=seed)
        assert clustering_accuracy(comparable_clusters(KEY, matrix, 2), labels) == 1.0


def test_noise_of_half_the_strength_is_overcome():
    labels, matrix = preferences(3, noise=0.5)
    plain = clustering_accuracy(comparable_clusters(KEY, matrix, 3), labels)
    refined = clustering_accuracy(comparable_clusters(KEY, matrix, 3, refine=True), labels)
    assert plain < refined == 1.0


def test_clusters_move_with_the_items():
    labels, matrix = preferences(2, noise=0.1)
    order = np.random.default_rng(1).permutation(SIZE)
    found, moved = comparable_clusters(KEY, matrix, 2), comparable_clusters(KEY, matrix[np.ix_(order, order)], 2)
    assert clustering_accuracy(moved, found[order]) == 1.0
    assert found[0] == moved[0] == 0  # numbered as they first occur
    assert clustering_accuracy(found, labels) == 1.0


@pytest.mark.parametrize("num_clusters", [1, 2, 3])
@pytest.mark.parametrize("criterion", ["explained", "gap"])
def test_the_number_of_clusters_is_found(num_clusters, criterion):
    _, matrix = preferences(num_clusters, noise=0.1)
    choice = choose_num_clusters(KEY, matrix, criterion=criterion, max_num_clusters=4)
    assert choice.num_clusters == num_clusters
    assert list(choice.scores) == [1, 2, 3, 4]


def test_what_clusters_explain_is_what_least_squares_explain():
    labels, matrix = preferences(3, noise=0.3)
    same = labels[:, None] == labels[None, :]
    rows, columns = np.nonzero(same)
    design = np.eye(SIZE)[rows] - np.eye(SIZE)[columns]
    fitted = design @ np.linalg.lstsq(design, matrix[rows, columns], rcond=None)[0]
    residual = np.sum((matrix[rows, columns] - fitted) ** 2) + np.sum(matrix[~same] ** 2)
    expected = 1.0 - residual / np.sum(matrix**2)
    # Least squares of a singular system of 30 unknowns: some hundred roundings.
    assert explained(matrix, labels) == pytest.approx(expected, rel=1e-10)


def test_no_move_of_one_item_explains_more_than_refined_clusters():
    _, matrix = preferences(3, noise=0.8)
    found = comparable_clusters(KEY, matrix, 3, refine=True)
    best = explained(matrix, found)
    for item in range(SIZE):
        for cluster in range(3):
            moved = found.copy()
            moved[item] = cluster
            assert explained(matrix, moved) <= best * (1 + 1e-8)  # a move must gain more than rounding


def test_outcomes_alone_show_clusters_if_all_meet():
    labels, matrix = preferences(2)
    matches = outcomes(matrix)
    found = svd_clusters(KEY, matches, 2, refine=True)
    assert clustering_accuracy(found, labels) == 1.0
    np.testing.assert_array_equal(found, comparable_clusters(KEY, matches.comparison_matrix(), 2, refine=True))


def test_partial_rankings_leave_out_what_is_near_one_half():
    labels, matrix = preferences(2)
    matches = outcomes(matrix)
    strength = matrix[tuple(np.asarray(matches.pairs).T)]
    predicted = 1 / (1 + np.exp(-strength))  # as good as can be: .5 between clusters
    found = partial_ranking_clusters(KEY, matches, predicted, 2, margin=0.05, refine=True)
    assert clustering_accuracy(found, labels) == 1.0
    kept = matches.take(np.flatnonzero(np.abs(predicted - 0.5) >= 0.05))
    np.testing.assert_array_equal(found, svd_clusters(KEY, kept, 2, refine=True))
    everything = partial_ranking_clusters(KEY, matches, predicted, 2, margin=0.0)
    np.testing.assert_array_equal(everything, svd_clusters(KEY, matches, 2))


def test_accuracy_is_that_of_the_best_of_all_matchings():
    rng = np.random.default_rng(3)
    for _ in range(20):
        labels, truth = rng.integers(0, 4, 12), rng.integers(0, 3, 12)
        best = max(np.mean(np.array(names)[labels] == truth) for names in permutations(range(4)))
        assert clustering_accuracy(labels, truth) == best
        assert clustering_accuracy([f"cluster {label}" for label in labels], truth) == best
    assert clustering_accuracy([1, 1, 0], ["b", "b", "a"]) == 1.0


_, MATRIX = preferences(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: comparable_clusters(KEY, MATRIX + 0.5, 2), "`preference_matrix` must be skew-symmetric.*P - 1/2"),
        (lambda: comparable_clusters(KEY, 0 * MATRIX, 2), "`preference_matrix` must hold some preferences"),
        (lambda: comparable_clusters(KEY, MATRIX, 16), "`num_clusters` must be between 1 and 15 .*got 16"),
        (lambda: comparable_clusters(KEY, MATRIX, 0), "`num_clusters` must be between 1 and 15 .*got 0"),
        (lambda: comparable_clusters(KEY, MATRIX[:5], 2), "`preference_matrix` must have shape"),
        (lambda: choose_num_clusters(KEY, MATRIX, criterion="elbow"), "`criterion` must be one of"),
        (lambda: choose_num_clusters(KEY, MATRIX, max_num_clusters=0), "`max_num_clusters` must be at least 1"),
        (lambda: choose_num_clusters(KEY, MATRIX[:3, :3], criterion="gap"), "must hold at least 4 items .*got 3"),
        (lambda: choose_num_clusters(KEY, 0 * MATRIX), "`preference_matrix` must hold some preferences"),
        (lambda: partial_ranking_clusters(KEY, outcomes(MATRIX), [0.5], 2), "must have the same number of rows"),
        (lambda: partial_ranking_clusters(KEY, outcomes(MATRIX), [2.0] * 435, 2), "`probabilities` must be between"),
        (lambda: partial_ranking_clusters(KEY, outcomes(MATRIX), [0.5] * 435, 2), "`margin` must leave some matches"),
        (
            lambda: partial_ranking_clusters(KEY, outcomes(MATRIX), [0.5] * 435, 2, margin=0.6),
            "`margin` must be between 0 and .5, got 0.6",
        ),
        (lambda: clustering_accuracy([0, 1], [0]), "`labels` and `truth` must hold one label per item"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
