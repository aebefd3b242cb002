r"""Asymmetric Shapley values: averages over the orders of players that respect a causal order.

.. math:: \phi_j = \sum_S \frac{e(S)\, e'(S \cup j)}{e'(\emptyset)} \bigl(v(S \cup j) - v(S)\bigr)

S runs over the coalitions that hold all causes of their members; e(S) counts the orders in which S can be formed, and
e'(S) those in which it can be completed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.causal import CausalDAG, CausalOrder, UnknownNodeError, as_graph
from kpp.foundation.validation import as_points
from kpp.games.estimators.game import Game, ShapleyEstimate, read_game
from kpp.games.estimators.sampled.draw_errors import draw_errors
from kpp.games.players.players import Players, as_players, from_integers
from kpp.games.values.abstract import AbstractValueFunction

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
            `kpp.causal.as_graph`. Groups are named as in `groups`. Nodes that are not players only connect others.
        groups: Features that form one player; see `as_players`.
        feature_names: The names of the d features; by default ``x0, x1, ...``.

    Returns:
        The values, (p, g), led by draws, with the outputs last; with standard errors if the values of coalitions are
        means over random draws.

    Raises:
        UnknownNodeError: If no player is in the order, or a group of several features is not.
        ValueError: If more than 16384 coalitions respect the order, or `x` is invalid.

    References:
        Frye, Rowat and Feige, Asymmetric Shapley values: incorporating causal knowledge into model-agnostic
        explainability, 2020, equations 6 and 7.
    """
    num_features = as_points(x).shape[1]
    players = as_players(groups, num_features, None if feature_names is None else tuple(feature_names))
    # Null players stay: without them, the orders of the others would have other frequencies.
    game = read_game(value_function, function, x, players, null_players=True)
    coalitions, weights = asymmetric_weights(order, players)
    values, errors = solve_in_order(game, coalitions, weights), draw_errors(game, coalitions, weights)
    return ShapleyEstimate(values, errors, "asymmetric", errors is None, len(coalitions), None)


def solve_in_order(
    game: Game, coalitions: Bool[np.ndarray, "c g"], weights: Float[np.ndarray, "g c"]
) -> Float[Array, "*draws p g *outputs"]:
    """Return the values of a game that keeps its null players, from the result of `asymmetric_weights`."""
    table, draws = game.table(coalitions)
    values = jnp.tensordot(jnp.asarray(weights, dtype=table.dtype), table, axes=1, precision="highest")
    return game.arrange(values.swapaxes(0, 1), draws)


def asymmetric_weights(order: object, players: Players) -> tuple[Bool[np.ndarray, "c g"], Float[np.ndarray, "g c"]]:
    """Return the coalitions that respect an order, and the weights of their values in the asymmetric values.

    Args:
        order: The order, as for `asymmetric_shapley_values`.
        players: The players, g of them.

    Returns:
        The coalitions, booleans (c, g) from the empty to the full one, and the weights (g, c).

    Raises:
        UnknownNodeError: If no player is in the order, or a group of several features is not.
        ValueError: If there are more than 16384 such coalitions.
    """
    orders = _Orders(_causes(order, players))
    return from_integers(orders.coalitions, players.num_players), orders.weights()


def _causes(order: object, players: Players) -> list[int]:
    """Return the bit mask of the causes of each player among the players."""
    graph = as_graph(order)
    if isinstance(graph, CausalOrder):  # each name is caused by those of all earlier groups
        groups = enumerate(graph.groups)
        pairs = [pair for position, group in groups for pair in itertools.product(graph.causes(position), group)]
        graph = CausalDAG(pairs, nodes=graph.nodes)
    known = [name for name in players.names if name in graph]
    if len(graph) and not known:
        raise UnknownNodeError("order", players.names, graph.nodes)
    unplaced = [name for name, group in zip(players.names, players.groups, strict=True) if len(group) > 1]
    unplaced = [name for name in unplaced if name not in graph]
    if len(graph) and unplaced:  # the order of its features is not the order of a group
        raise UnknownNodeError("order", unplaced, graph.nodes)
    bits = {name: 1 << position for position, name in enumerate(players.names)}
    return [
        sum(bits.get(cause, 0) for cause in graph.ancestors(name) - {name}) if name in graph else 0
        for name in players.names
    ]


class _Orders:
    """The coalitions that hold all causes of their members, at most 2^14, and the numbers of orders through them."""

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

    def weights(self) -> Float[np.ndarray, "g c"]:
        """Return the weights of the coalitions' values in the values of the players."""
        forming, completing = self._numbers_of_orders()
        weights = np.zeros((len(self._causes), len(self.coalitions)))
        for place, coalition in enumerate(self.coalitions):
            for player, larger in self._joined(coalition).items():
                # The share of the orders that pass through both.
                share = forming[place] * completing[self._place[larger]] / completing[0]
                weights[player, self._place[larger]] += share
                weights[player, place] -= share
        return weights

    def _numbers_of_orders(self) -> tuple[list[int], list[int]]:
        """Return in how many orders each coalition can be formed, and completed."""
        forming, completing = [1] + [0] * (len(self.coalitions) - 1), [0] * (len(self.coalitions) - 1) + [1]
        for place, coalition in enumerate(self.coalitions):
            for larger in self._joined(coalition).values():
                forming[self._place[larger]] += forming[place]
        for place in reversed(range(len(self.coalitions) - 1)):
            completing[place] = sum(completing[self._place[c]] for c in self._joined(self.coalitions[place]).values())
        return forming, completing
