r"""Asymmetric Shapley values: averages over the orders of players that respect a causal order.

.. math:: \phi_j = \sum_S \frac{e(S)\, e'(S \cup j)}{e'(\emptyset)} \bigl(v(S \cup j) - v(S)\bigr)

S runs over the coalitions that hold all causes of their members; e(S) counts the orders in which S can be formed, and
e'(S) those in which it can be completed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.causal import CausalDAG, CausalOrder, UnknownNodeError, as_graph
from kpp.games.estimators.estimate import ShapleyEstimate
from kpp.games.estimators.read_game import read_game
from kpp.games.players.coalitions import from_integers
from kpp.games.players.players import Players, as_players
from kpp.games.values.abstract import AbstractValueFunction
from kpp.validation import as_points

__all__ = ["asymmetric_shapley_values"]

#: The largest number of coalitions that are valued.
_MAX_COALITIONS = 2**14


def asymmetric_shapley_values(
    value_function: AbstractValueFunction,
    function: object,
    x: object,
    order: object,
    *,
    groups: object = None,
    feature_names: Iterable[str] | None = None,
) -> ShapleyEstimate:
    """Compute Shapley values over the orders in which every player comes after its causes, exactly.

    A cause then gets the credit for what its effects tell about it, and an effect only for what it adds to its causes.
    The values add up to the prediction minus the base value, and without any order they are Shapley values.

    Args:
        value_function: The game; an observational one, as a rule.
        function: The function to explain.
        x: The points, (p, d).
        order: A causal graph or order of the players, or pairs (cause, effect) of their names; see
            `kpp.causal.as_graph`. Nodes that are not players only connect others.
        groups: Features that form one player; see `as_players`.
        feature_names: The names of the d features; by default ``x0, x1, ...``.

    Returns:
        The values, (p, g), led by draws, with the outputs last.

    Raises:
        UnknownNodeError: If no player is in the order, or a pair names no player.
        ValueError: If more than 16384 coalitions respect the order, or `x` is invalid.

    References:
        Frye, Rowat and Feige, Asymmetric Shapley values: incorporating causal knowledge into model-agnostic
        explainability, 2020, equations 6 and 7.
    """
    num_features = as_points(x).shape[1]
    players = as_players(groups, num_features, None if feature_names is None else tuple(feature_names))
    game = read_game(value_function, function, x, players)
    counts = _Orders(_causes(order, game.players))
    table, draws = game.table(from_integers(counts.coalitions, game.num_players))
    values = game.arrange(_weighted_gains(*counts.gains(), table).swapaxes(0, 1), draws)
    return ShapleyEstimate(values, None, "asymmetric", True, len(counts.coalitions), None)


@jax.jit
def _weighted_gains(
    before: Int[Array, "g k"], after: Int[Array, "g k"], weights: Float[Array, "g k"], table: Float[Array, "c p *rest"]
) -> Float[Array, "g p *rest"]:
    return jnp.einsum("gk,gk...->g...", weights.astype(table.dtype), table[after] - table[before])


def _causes(order: object, players: Players) -> list[int]:
    """Return the bit mask of the causes of each player among the players."""
    graph = _graph_of(as_graph(order))
    known = [name for name in players.names if name in graph]
    if len(graph) and not known:
        raise UnknownNodeError("order", players.names, graph.nodes)
    bits = {name: 1 << position for position, name in enumerate(players.names)}
    return [
        sum(bits.get(cause, 0) for cause in graph.ancestors(name) - {name}) if name in graph else 0
        for name in players.names
    ]


def _graph_of(order: CausalDAG | CausalOrder) -> CausalDAG:
    """Return a graph in which every name of a causal order is caused by those of all earlier groups."""
    if isinstance(order, CausalDAG):
        return order
    groups = enumerate(order.groups)
    pairs = [pair for position, group in groups for pair in itertools.product(order.causes(position), group)]
    return CausalDAG(pairs, nodes=order.nodes)


class _Orders:
    """The coalitions that hold all causes of their members, and the numbers of orders through them.

    Args:
        causes: The bit mask of each player's causes.

    Raises:
        ValueError: If there are too many.
    """

    def __init__(self, causes: list[int]):
        self._causes = causes
        self.coalitions = [0]  # in the order of their sizes
        self._place = {0: 0}
        for coalition in self.coalitions:  # grows while it is read
            for larger in self._joined(coalition).values():
                if larger not in self._place:
                    self._place[larger] = len(self.coalitions)
                    self.coalitions.append(larger)
            if len(self.coalitions) > _MAX_COALITIONS:
                raise ValueError(
                    f"`order` leaves more than {_MAX_COALITIONS} coalitions of {len(causes)} players; add causes, or "
                    "join features in `groups`"
                )

    def _joined(self, coalition: int) -> dict[int, int]:
        """Return the coalition with each player who may join it next."""
        players = enumerate(self._causes)
        return {j: coalition | 1 << j for j, causes in players if not coalition >> j & 1 and causes & ~coalition == 0}

    def gains(self) -> tuple[Int[np.ndarray, "g k"], Int[np.ndarray, "g k"], Float[np.ndarray, "g k"]]:
        """Return, for each player, the places of the coalitions before and after it joins, and the weights."""
        forming, completing = self._numbers_of_orders()
        steps: list[list[tuple[int, int, float]]] = [[] for _ in self._causes]
        for place, coalition in enumerate(self.coalitions):
            for player, larger in self._joined(coalition).items():
                after = self._place[larger]
                steps[player].append((place, after, forming[place] * completing[after] / completing[0]))
        longest = max(map(len, steps))
        padded = np.array([found + [(0, 0, 0.0)] * (longest - len(found)) for found in steps])
        before, after, weights = np.moveaxis(padded, -1, 0)
        return before.astype(int), after.astype(int), weights

    def _numbers_of_orders(self) -> tuple[list[int], list[int]]:
        """Return in how many orders each coalition can be formed, and completed."""
        forming, completing = [1] + [0] * (len(self.coalitions) - 1), [0] * (len(self.coalitions) - 1) + [1]
        for place, coalition in enumerate(self.coalitions):
            for larger in self._joined(coalition).values():
                forming[self._place[larger]] += forming[place]
        for place in reversed(range(len(self.coalitions) - 1)):
            completing[place] = sum(completing[self._place[c]] for c in self._joined(self.coalitions[place]).values())
        return forming, completing
