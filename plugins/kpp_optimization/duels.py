r"""The search for the best of some candidates by duels: the choice of the next duel, and the update by its outcome.

The objective need not be measured: it is enough to decide which of two candidates is better. After each duel, any model
of preferences updates the belief about the preferences g between all candidates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from kpp.data.tables import read_points
from kpp.foundation.validation import as_finite_array, count, one_of
from kpp.preferences import Matches
from kpp.typing import RngKey

Believe = Callable[[RngKey, Matches], Any]


@dataclasses.dataclass(frozen=True)
class DuelSearch:
    """The result of a search by duels.

    Attributes:
        duels: One row per duel: ``duel`` (from 1), the candidates ``first`` and ``second`` (their rows), ``won`` (1 if
            the first won), and ``incumbent``, the candidate believed to be best afterwards.
        candidates: The candidates, (p, d).
        matches: The counts of the outcomes, with a row for every pair of candidates, also for pairs without a duel.
        scores: The posterior mean preference of each candidate over all, at the end, (p,).
    """

    duels: pd.DataFrame
    candidates: Float[np.ndarray, "p d"]
    matches: Matches
    scores: Float[np.ndarray, " p"]

    @property
    def best(self) -> Float[np.ndarray, " d"]:
        """The candidate believed to be best."""
        return self.candidates[int(np.argmax(self.scores))]


def search_by_duels(
    rng_key: RngKey,
    duel: Callable[[Float[np.ndarray, " d"], Float[np.ndarray, " d"]], Any],
    candidates: ArrayLike,
    believe: Believe,
    *,
    acquisition: str = "thompson",
    num_duels: int = 20,
    num_initial: int = 3,
) -> DuelSearch:
    r"""Search for the best of finitely many candidates by comparing two at a time.

    A candidate's utility is its mean preference over all candidates, :math:`f_i = \frac1p \sum_j g(i, j)`: up to a
    constant it is the utility of a model with a utility, and it is defined even if preferences have cycles. Draws of g
    give draws of f, which determine the next duel by `thompson_duel`, by `expected_best_utility`, or at random.

    Args:
        rng_key: A JAX random key.
        duel: A function from two points (d,) to 1 if the first wins, otherwise 0; possibly random.
        candidates: The points to choose from, an array (p, d) or a data frame.
        believe: A function from a random key and the matches so far to draws of g at all pairs of candidates, (s, p,
            p), such as ``lambda key, matches: sample_preferences(PGP(kernel).fit(key, matches), key, matches, 100)``
            with names of kpp_models. The matches have a row for every pair, so that their shapes stay the same and
            nothing is compiled again.
        acquisition: "thompson", "expected-best" or "random".
        num_duels: The number of duels, including the initial ones.
        num_initial: The number of initial duels, which are random, at least 1.

    Raises:
        ValueError: If an option is out of range, `duel` does not return 0 or 1, or `believe` does not return finite
            draws.
    """
    points, _ = read_points(candidates, "candidates")
    choose = _ACQUISITIONS[one_of(acquisition, "acquisition", _ACQUISITIONS)]
    if len(points) < 2:
        raise ValueError(f"`candidates` must hold at least 2 points, got {len(points)}")
    count(num_duels, "num_duels")
    count(num_initial, "num_initial", most=num_duels, most_is="`num_duels`")
    matches, utilities = _no_matches(points), np.zeros((1, len(points)))
    rows = []
    for number, key in enumerate(jax.random.split(rng_key, num_duels), start=1):
        choose_key, believe_key = jax.random.split(key)
        first, second = (_random_duel if number <= num_initial else choose)(choose_key, utilities)
        won = _outcome(duel(points[first], points[second]))
        matches = _count(matches, first, second, won)
        utilities = _utilities(believe(believe_key, matches), len(points))
        incumbent = int(np.argmax(utilities.mean(axis=0)))
        rows.append({"duel": number, "first": first, "second": second, "won": won, "incumbent": incumbent})
    return DuelSearch(pd.DataFrame(rows), points, matches, utilities.mean(axis=0))


def thompson_duel(rng_key: RngKey, utilities: ArrayLike) -> tuple[int, int]:
    r"""Return the best candidates of two draws of the utilities.

    .. math:: i = \arg\max f^{(s)}, \qquad j = \arg\max_{j \ne i} f^{(s')}

    with two random draws s and s': a candidate is chosen with the probability that it is the best.

    Args:
        rng_key: A JAX random key.
        utilities: Draws of f, (s, p).

    References:
        González, Dai, Damianou and Lawrence, Preferential Bayesian optimization, 2017; Sui, Zhuang, Burdick and Yue,
        Multi-dueling bandits with dependent arms, 2017, algorithm 1.

    Raises:
        ValueError: If the draws are not finite or not of shape (s, p) with at least two candidates.
    """
    draws = _read_draws(utilities)
    one, other = np.asarray(jax.random.randint(rng_key, (2,), 0, len(draws)))
    first = int(np.argmax(draws[one]))
    rest = np.where(np.arange(draws.shape[1]) == first, -np.inf, draws[other])  # no candidate meets itself
    return first, int(np.argmax(rest))


def expected_best_utility(rng_key: RngKey, utilities: ArrayLike) -> tuple[int, int]:
    r"""Return the duel whose better candidate is expected to have the largest utility (EUBO).

    .. math:: \arg\max_{i < j}\; E \max(f_i, f_j)

    Args:
        rng_key: A JAX random key; it breaks ties.
        utilities: Draws of f, (s, p).

    References:
        Astudillo, Lin, Bakshy and Frazier, qEUBO: a decision-theoretic acquisition function for preferential Bayesian
        optimization, 2023, equation 2 for q = 2.

    Raises:
        ValueError: If the draws are not finite or not of shape (s, p) with at least two candidates.
    """
    draws = _read_draws(utilities)
    num_candidates = draws.shape[1]
    expected = np.array([np.maximum(draws[:, [i]], draws).mean(axis=0) for i in range(num_candidates)])
    expected[np.tril_indices(num_candidates)] = -np.inf
    highest = np.argwhere(expected == expected.max())  # ties are broken at random
    first, second = highest[int(jax.random.randint(rng_key, (), 0, len(highest)))]
    return int(first), int(second)


def _read_draws(utilities: ArrayLike) -> Float[np.ndarray, "s p"]:
    draws = np.asarray(as_finite_array(utilities, "utilities"))
    if draws.ndim != 2 or len(draws) == 0 or draws.shape[1] < 2:
        raise ValueError(
            f"`utilities` must have shape (s, p), at least one draw of at least 2 candidates, got shape {draws.shape}"
        )
    return draws


def _random_duel(rng_key: RngKey, utilities: Float[np.ndarray, "s p"]) -> tuple[int, int]:
    """Return two different random candidates."""
    first, second = np.asarray(jax.random.choice(rng_key, utilities.shape[1], (2,), replace=False))
    return int(first), int(second)


_ACQUISITIONS = {"thompson": thompson_duel, "expected-best": expected_best_utility, "random": _random_duel}


def _no_matches(points: Float[np.ndarray, "p d"]) -> Matches:
    """Return a row without matches for every pair of candidates."""
    pairs = jnp.stack(jnp.triu_indices(len(points), 1), axis=1)
    none = jnp.zeros(len(pairs), jnp.result_type(float))
    names = tuple(str(number) for number in range(len(points)))
    features = tuple(f"x{j}" for j in range(points.shape[1]))
    return Matches(jnp.asarray(points, float), pairs, none, none, none, item_names=names, feature_names=features)


def _count(matches: Matches, first: int, second: int, won: int) -> Matches:
    """Return the matches with one more match."""
    low, high = sorted((first, second))
    row = int(np.flatnonzero((np.asarray(matches.pairs) == [low, high]).all(axis=1))[0])
    name = "wins" if won == (first < second) else "losses"
    return dataclasses.replace(matches, **{name: getattr(matches, name).at[row].add(1.0)})


def _outcome(value: object) -> int:
    """Return 1 or 0, or raise ValueError for another result of `duel`."""
    number = np.asarray(value)
    if number.size != 1 or number.item() not in (0, 1):
        raise ValueError(f"`duel` must give 1 where the first point wins and 0 where it loses, got {value}")
    return int(number.item())


def _utilities(preferences: ArrayLike, num_candidates: int) -> Float[np.ndarray, "s p"]:
    """Return draws of utilities from draws of g."""
    draws = np.asarray(as_finite_array(preferences, "the draws of `believe`"))
    if draws.ndim != 3 or draws.shape[1:] != (num_candidates, num_candidates):
        raise ValueError(
            f"`believe` must give draws of shape (s, {num_candidates}, {num_candidates}), got shape {draws.shape}"
        )
    return draws.mean(axis=2)
