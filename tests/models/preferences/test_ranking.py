"""Rankings of draws against SciPy's ranks, least squares and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from kpp_models import rank_items

RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=(2, 40, 7, 7))
UTILITY = 0.8 * RNG.normal(size=7)
DRAWS = UTILITY[:, None] - UTILITY[None, :] + NOISE - np.swapaxes(NOISE, -1, -2)  # skew-symmetric, with circles


def ranks(score: str) -> np.ndarray:
    """Return the rank of each item in each draw, (80, 7)."""
    values = DRAWS.reshape(-1, 7, 7)
    scores = values.mean(axis=-1) if score == "mean" else (values > 0).sum(axis=-1)
    return rankdata(-scores, axis=-1)


@pytest.mark.parametrize("score", ["mean", "wins"])
def test_expected_ranks_are_means_of_ranks(score):
    found = rank_items(DRAWS, score=score)
    np.testing.assert_allclose(found.expected_rank, ranks(score).mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(found.order, np.argsort(found.expected_rank, kind="stable"))
    # Each item has one rank and each rank one item.
    np.testing.assert_allclose(found.probabilities.sum(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0, rtol=1e-12)


def test_probabilities_are_shares_of_draws():
    found = rank_items(DRAWS)
    shares = np.stack([(ranks("mean") == rank).mean(axis=0) for rank in range(1, 8)], axis=1)
    np.testing.assert_allclose(found.probabilities, shares, atol=1e-12)


@pytest.mark.parametrize("probability", [0.5, 0.9])
def test_intervals_leave_out_no_more_than_their_tails(probability):
    found, tail = rank_items(DRAWS, probability=probability), (1 - probability) / 2
    for item, draws in enumerate(ranks("mean").T):
        lower, upper = found.lower[item], found.upper[item]
        assert (draws < lower).mean() <= tail + 1e-9 < (draws <= lower).mean()
        assert (draws > upper).mean() <= tail + 1e-9 < (draws >= upper).mean()


def test_mean_preferences_are_the_nearest_utilities():
    draw = DRAWS[0, 0]
    rows, columns = np.nonzero(~np.eye(7, dtype=bool))
    design = np.zeros((len(rows), 7))
    design[np.arange(len(rows)), rows], design[np.arange(len(rows)), columns] = 1.0, -1.0
    utility = np.linalg.lstsq(design, draw[rows, columns], rcond=None)[0]
    twice = rank_items(np.stack([draw, draw]))
    np.testing.assert_array_equal(twice.expected_rank, rankdata(-utility))


def test_a_ranking_is_found_and_agreed_with():
    preferences = UTILITY[:, None] - UTILITY[None, :]
    for draws in (preferences, 1 / (1 + np.exp(-preferences))):
        for score in ("mean", "wins"):
            found = rank_items(np.stack([draws, 2 * draws]), score=score)
            np.testing.assert_array_equal(found.order, np.argsort(-UTILITY))
            np.testing.assert_array_equal(found.lower, rankdata(-UTILITY))
            np.testing.assert_array_equal(found.upper, found.lower)
            assert found.agreement == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("strength", [1.0, 0.1])  # of the second, sums of rounded numbers
@pytest.mark.parametrize("score", ["mean", "wins"])
def test_a_circle_has_no_ranking(strength, score):
    circle = strength * np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])
    found = rank_items(np.stack([circle, 3 * circle]), score=score)
    np.testing.assert_allclose(found.probabilities, 1 / 3, rtol=1e-12)
    assert found.lower.tolist() == [1, 1, 1] and found.upper.tolist() == [3, 3, 3]
    assert found.agreement == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_items(DRAWS[0, 0]), "`preferences` must hold two draws or more"),
        (lambda: rank_items(DRAWS[:1, :1]), "`preferences` must hold two draws or more"),
        (lambda: rank_items(DRAWS[..., :3]), "`preferences` must have shape"),
        (lambda: rank_items(np.full((2, 3, 3), np.nan)), "`preferences` must be finite"),
        (lambda: rank_items(DRAWS, score="elo"), "`score` must be .*got 'elo'"),
        (lambda: rank_items(DRAWS, probability=1.0), "`probability` must be between 0 and 1, got 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
