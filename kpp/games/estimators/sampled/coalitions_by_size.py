"""Coalitions sampled evenly over their sizes, without repetition."""

from __future__ import annotations

import itertools
import math

import numpy as np
from jaxtyping import Bool, Int

from kpp.games.estimators.sampled.sampling import coalition_generator
from kpp.runtime.memory import check_count
from kpp.typing import RngKey

# Up to this number of coalitions per requested one are listed; of more, random ones are drawn until enough differ.
_LISTED = 4


def sample_coalitions_by_size(
    num_players: int, num_coalitions: int, rng_key: RngKey | None
) -> tuple[Bool[np.ndarray, "c g"], bool]:
    """Draw proper coalitions, equally many of each size; all coalitions of a size if there are not more.

    They are ordered by size, and come with whether they are all. If they are not, a random key is needed, and at least
    two for each size.
    """
    needed = 2 * (num_players - 1)
    everything = 2**num_players - 2 <= num_coalitions
    if not everything and num_coalitions < needed:
        raise ValueError(
            f"`num_coalitions` must be at least {needed}, two for each size of a coalition of {num_players} players, "
            f"got {num_coalitions}"
        )
    if not everything:
        check_count(num_coalitions, "num_coalitions", num_players)
    available = [math.comb(num_players, size) for size in range(1, num_players)]
    taken = _share(np.array([min(total, num_coalitions) for total in available]), num_coalitions)
    generator = np.random.default_rng(0) if everything else coalition_generator(rng_key)
    parts = [_draw(generator, num_players, size, num) for size, num in enumerate(taken.tolist(), start=1)]
    return np.concatenate(parts), everything


def _share(available: Int[np.ndarray, " sizes"], budget: int) -> Int[np.ndarray, " sizes"]:
    """Share a budget evenly among sizes; what a size cannot use goes to the others."""
    taken = np.zeros_like(available)
    while (unfilled := np.count_nonzero(taken < available)) and (share := (budget - taken.sum()) // unfilled):
        taken = np.minimum(available, taken + share)
    return taken


def _draw(generator: np.random.Generator, num_players: int, size: int, num: int) -> Bool[np.ndarray, "num g"]:
    """Draw different coalitions of one size, uniformly."""
    total = math.comb(num_players, size)
    if total <= _LISTED * num:
        listed = np.array(list(itertools.combinations(range(num_players), size)))
        members = listed[np.sort(generator.choice(total, num, replace=False))]
    else:
        found: dict[tuple[int, ...], None] = {}
        while len(found) < num:
            drawn = generator.choice(num_players, size, replace=False)
            found[tuple(np.sort(drawn).tolist())] = None
        members = np.array(list(found))
    coalitions = np.zeros((num, num_players), dtype=bool)
    np.put_along_axis(coalitions, members, True, axis=1)
    return coalitions
