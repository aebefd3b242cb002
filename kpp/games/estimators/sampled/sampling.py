r"""Sampled coalitions and permutations of players, and Shapley values from permutations.

A proper coalition S of g players has the Shapley kernel's weight :math:`w(S) \propto 1 / \bigl(\binom{g}{s} s
(g-s)\bigr)`: sizes are drawn in proportion to :math:`(g-1)/(s(g-s))`, and a coalition uniformly among those of its
size. Each comes with its complement. Repeated draws are counted, and the coalition is valued once.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from kpp.foundation.validation import check_rng_key
from kpp.games.players.players import from_integers, to_integers
from kpp.runtime.memory import check_count
from kpp.typing import AnyArray, RngKey

# The largest number of draws per requested pair; then fewer pairs are returned, as rare ones take ever longer to draw.
_MAX_DRAWS = 16


def sample_coalition_pairs(
    rng_key: RngKey, num_players: int, num_pairs: int
) -> tuple[Bool[np.ndarray, "k g"], Int[np.ndarray, " k"]]:
    """Draw pairs of a coalition and its complement by the Shapley kernel, until there are enough different pairs.

    Args:
        rng_key: A JAX random key.
        num_players: g, at least 2.
        num_pairs: The requested number of different pairs, at least 1. Fewer are returned if nearly all coalitions have
            been drawn.

    Returns:
        One coalition of each pair, booleans of shape (k, g), and how often each pair was drawn, of shape (k,).

    Raises:
        ValueError: If there are fewer than two players, or `num_pairs` is less than 1.
        TypeError: If `rng_key` is not a JAX random key.
    """
    return next(coalition_pairs_in_rounds(rng_key, num_players, [num_pairs]))


def coalition_pairs_in_rounds(
    rng_key: RngKey, num_players: int, nums_pairs: Sequence[int]
) -> Iterator[tuple[Bool[np.ndarray, "k g"], Int[np.ndarray, " k"]]]:
    """Yield what `sample_coalition_pairs` returns for ascending numbers of pairs, each time the same and more."""
    if num_players < 2 or nums_pairs[0] < 1:
        raise ValueError(
            f"`num_players` must be at least 2 and `num_pairs` at least 1, got {num_players} and {nums_pairs[0]}"
        )
    generator = coalition_generator(rng_key)
    counts: collections.Counter[int] = collections.Counter()
    for num_pairs in nums_pairs:
        _draw_pairs(generator, counts, num_players, num_pairs)
        yield from_integers(counts, num_players), np.array(list(counts.values()))


def _draw_pairs(
    generator: np.random.Generator, counts: collections.Counter[int], num_players: int, num_pairs: int
) -> None:
    """Count drawn pairs until `num_pairs` are different, or nearly all have been drawn."""
    full, missing = 2**num_players - 1, num_pairs - len(counts)
    for _ in range(_MAX_DRAWS):
        for integer in to_integers(_draw_coalitions(generator, num_players, missing)):
            counts[min(integer, full - integer)] += 1  # the smaller number stands for both complements
            if len(counts) == num_pairs:
                return


def sample_permutations(rng_key: RngKey, num_players: int, num_permutations: int) -> Int[np.ndarray, "k g"]:
    """Draw permutations of the players, uniformly.

    Args:
        rng_key: A JAX random key.
        num_players: g.
        num_permutations: k.

    Returns:
        The permutations, of shape (k, g): entry s is the player that joins after s others.

    Raises:
        TypeError: If `rng_key` is not a JAX random key.
    """
    check_count(num_permutations, "num_permutations", 2 * num_players)
    return np.argsort(coalition_generator(rng_key).random((num_permutations, num_players)), axis=1)


def _draw_coalitions(generator: np.random.Generator, num_players: int, num_draws: int) -> Bool[np.ndarray, "k g"]:
    sizes = np.arange(1, num_players)
    weights = 1.0 / (sizes * (num_players - sizes))  # the Shapley kernel times the number of coalitions
    quantiles = (generator.permutation(num_draws) + generator.random()) / num_draws  # evenly spread, in random order
    drawn = sizes[np.searchsorted(np.cumsum(weights)[:-1] / weights.sum(), quantiles)]
    ranks = np.argsort(np.argsort(generator.random((num_draws, num_players)), axis=1), axis=1)
    return ranks < drawn[:, None]


def coalition_generator(rng_key: RngKey | None) -> np.random.Generator:
    """Return NumPy's generator, seeded by a JAX key: the number of draws is not known in advance, as JAX requires."""
    return np.random.default_rng(np.asarray(_draw_seed(check_rng_key(rng_key))))


@jax.jit
def _draw_seed(rng_key: RngKey) -> UInt32[Array, "4"]:
    return jax.random.bits(rng_key, (4,), dtype=jnp.uint32)


def coalitions_of_permutations(
    permutations: Int[np.ndarray, "k g"],
) -> tuple[Bool[np.ndarray, "c g"], Int[np.ndarray, "k 2 steps"]]:
    """Return the coalitions that are formed when players join in the given orders and in the reverse orders.

    Args:
        permutations: The orders, (k, g).

    Returns:
        The different coalitions, booleans of shape (c, g), in the order of their first occurrence; and for each order
        the positions in this array of the coalition of the players present after s = 0, ..., g steps, and of its
        complement, of shape (k, 2, g + 1).
    """
    num_orders, num_players = permutations.shape
    ranks = np.argsort(permutations, axis=1)
    present = ranks[:, None, :] < np.arange(num_players + 1)[None, :, None]
    integers = to_integers(np.stack([present, ~present], axis=1).reshape(-1, num_players))
    positions = {integer: position for position, integer in enumerate(dict.fromkeys(integers))}
    index = np.array([positions[integer] for integer in integers])
    return from_integers(positions, num_players), index.reshape(num_orders, 2, num_players + 1)


def shapley_values_from_permutations(
    permutations: Int[np.ndarray, "k g"], index: Int[np.ndarray, "k 2 steps"], values: Float[AnyArray, "c *rest"]
) -> tuple[Float[Array, "g *rest"], Float[Array, "g *rest"]]:
    r"""Average marginal contributions over orders and their reverses.

    The value of a player is its mean marginal contribution :math:`v(S \cup j) - v(S)` over all orders, where S are the
    players before it. Each order comes with its reverse (antithetic sampling), whose coalitions are the complements.

    Args:
        permutations: The orders, (k, g), at least two of them.
        index: The positions of their coalitions, as `coalitions_of_permutations` returns them.
        values: The coalitions' values, (c, ...).

    Returns:
        The values, and their standard errors over the k independent pairs of an order with its reverse; (g, ...) each.

    Raises:
        ValueError: If there are fewer than two orders.

    References:
        Castro, Gomez and Tejada, Polynomial calculation of the Shapley value based on sampling, 2009;
        Mitchell, Cooper, Frank and Holmes, Sampling permutations for Shapley value estimation, 2022.
    """
    num_orders = permutations.shape[0]
    if num_orders < 2:
        raise ValueError(f"`permutations` must be at least two to tell a standard error, got {num_orders}")
    steps = np.argsort(permutations, axis=1)[:, None]
    before, after = (np.take_along_axis(index, steps + step, axis=2) for step in (0, 1))
    return _average_gains(before, after, jnp.asarray(values))


@jax.jit
def _average_gains(
    before: Int[AnyArray, "k 2 g"], after: Int[AnyArray, "k 2 g"], values: Float[Array, "c *rest"]
) -> tuple[Float[Array, "g *rest"], Float[Array, "g *rest"]]:
    """Average the differences of successive coalitions; the reverse orders are stored in the opposite direction."""
    gains = values[after[:, 0]] - values[before[:, 0]] + values[before[:, 1]] - values[after[:, 1]]
    # An order and its reverse are one draw, because their gains are not independent.
    return gains.mean(axis=0) / 2, jnp.std(gains, axis=0, ddof=1) / 2 / gains.shape[0] ** 0.5
