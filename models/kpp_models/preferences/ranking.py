"""A ranking of items with its uncertainty, from draws of a preference function."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kpp.foundation.validation import between, one_of
from kpp.typing import Numbers
from kpp_models.preferences.rankability import matrices


class Ranking(NamedTuple):
    """The result of `rank_items`; ranks go from 1, the most preferred, to n.

    Attributes:
        expected_rank: The posterior mean of each item's rank, (n,).
        lower: The lower end of the credible interval of each rank, (n,).
        upper: The upper end of the credible interval, (n,).
        probabilities: The probability of each rank, (n, n): row i is for item i, column r for rank r + 1.
        order: The items sorted by expected rank, the most preferred first, (n,).
        agreement: The fraction of pairs whose preference agrees with the ranking, less the fraction that contradicts
            it, averaged over draws. It is 1 for preferences that form a ranking, and 0 for rock, paper and scissors.
    """

    expected_rank: Float[np.ndarray, " n"]
    lower: Int[np.ndarray, " n"]
    upper: Int[np.ndarray, " n"]
    probabilities: Float[np.ndarray, "n n"]
    order: Int[np.ndarray, " n"]
    agreement: float


def rank_items(preferences: Numbers, *, score: str = "mean", probability: float = 0.9) -> Ranking:
    r"""Rank items for each draw of their preferences.

    The score of an item is its mean preference over the other items,

    .. math:: f_i = \frac{1}{n} \sum_j g(i, j),

    or the number of items to which it is preferred. Among all utilities, f is nearest to g: it minimizes
    :math:`\sum_{ij} (g(i, j) - f_i + f_j)^2`. Neither score can represent preferences that form cycles;
    `Ranking.agreement` shows how well a ranking represents the preferences.

    Args:
        preferences: Draws of a preference function at all pairs of items, (*draws, n, n), or of the probabilities that
            the item of the row is preferred; at least two draws.
        score: "mean", or "wins" (Copeland's score), which ignores the strength of a preference.
        probability: The probability of the intervals; each tail has at most half of the remaining probability. They
            hold more than this, because ranks are whole numbers.

    Returns:
        The ranking. Items with equal scores in a draw share their ranks with equal probabilities.

    Raises:
        ValueError: If there are fewer than two draws, matrices are not square or hold NaN, or an option is unknown.

    Example:
        >>> draws = kpp_models.sample_preferences(general, jax.random.key(1), items, 100)
        >>> kpp_models.rank_items(draws).order[0]
        np.int64(4)

    References:
        Jiang, Lim, Yao and Ye, Statistical ranking and combinatorial Hodge theory, Mathematical Programming, 2011.
    """
    matrix = matrices.square(preferences, "preferences", draws=True)
    draws = matrix.reshape(-1, *matrix.shape[-2:])
    if len(draws) < 2:
        raise ValueError(
            f"`preferences` must hold two draws or more, (*draws, n, n), got shape {matrix.shape}: one ranking alone "
            "has no uncertainty"
        )
    one_of(score, "score", ("mean", "wins"))
    between(probability, "probability", 0, 1, ends=False)
    num_items = matrix.shape[-1]
    probabilities, agreement = np.zeros((num_items, num_items)), 0.0
    for draw in draws:
        difference = draw - draw.T
        scores = _scores(difference if score == "mean" else np.sign(difference))
        probabilities += _rank_shares(scores) / len(draws)
        agreement += np.sum(np.sign(difference) * np.sign(scores[:, None] - scores[None, :])) / len(draws)
    expected = probabilities @ np.arange(1.0, num_items + 1.0)
    lower, upper = _interval(probabilities, (1.0 - probability) / 2.0)
    order = np.argsort(expected, kind="stable")
    return Ranking(expected, lower, upper, probabilities, order, agreement / (num_items * (num_items - 1)))


def _scores(difference: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """Return row sums relative to the largest entry, rounded so that the equal sums of a cycle stay equal."""
    size = np.abs(difference).max()
    return np.round(np.sum(difference, axis=1) / (size if size > 0 else 1.0), 11)


def _rank_shares(scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
    """Return the probability of each rank (column) for each item (row); items with equal scores share ranks."""
    above = np.sum(scores[:, None] < scores[None, :], axis=1)
    equal = np.sum(scores[:, None] == scores[None, :], axis=1)
    rank = np.arange(len(scores))[None, :]
    return ((rank >= above[:, None]) & (rank < (above + equal)[:, None])) / equal[:, None]


def _interval(
    probabilities: Float[np.ndarray, "n n"], tail: float
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Return the shortest ranges of ranks with probability at most `tail` on either side."""
    slack = 1e-12  # for the rounding errors of the sums
    below = np.cumsum(probabilities, axis=1)
    above = np.cumsum(probabilities[:, ::-1], axis=1)
    lower = 1 + np.sum(below <= tail + slack, axis=1)
    upper = probabilities.shape[1] - np.sum(above <= tail + slack, axis=1)
    return lower, upper
