r"""Variances of the values of coalitions over rows: sensitivity indices of dependent features.

.. math:: V(S) = \mathrm{Var}_x\bigl(v(S)(x)\bigr), \qquad \text{first order } V(\{j\}), \qquad
    \text{total } V(D) - V(D \setminus \{j\}), \qquad \text{Shapley effect } \phi_j(V),

with a value function v such as :math:`E[f \mid x_S]`, and the rows as the law of x.

References:
    Song, Nelson and Staum, Shapley effects for global sensitivity analysis: theory and computation, 2016;
    Owen and Prieur, On Shapley value for measuring importance of dependent inputs, 2017.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, all_coalitions, shapley_values_from_table
from kpp.games.toolkit import Players
from kpp.runtime.batching import even_size, map_blocks
from kpp.typing import PointFunction

# The largest number of players whose coalitions are enumerated, and of values at once.
_MAX_PLAYERS, _MAX_VALUES = 12, 2**22


def coalition_indices(
    value_function: AbstractValueFunction, function: PointFunction, x: Float[np.ndarray, "p d"], players: Players
) -> Float[np.ndarray, "3 s g"]:
    """Compute the indices of a game, in units of variance, from the values of all coalitions.

    Raises ValueError if there are more than 12 players whose columns vary; those of others are 0.
    """
    varies = np.array([np.ptp(x[:, list(group)], axis=0).any() for group in players.groups])
    kept = players.keep(varies) if varies.any() else players
    count = kept.num_players
    if count > _MAX_PLAYERS:
        raise ValueError(
            f"`groups` must form at most {_MAX_PLAYERS} players for the value function "
            f"{type(value_function).__name__}, whose 2^g coalitions are valued, got {count}"
        )
    is_rkhs = isinstance(function, RKHSFunction)

    def variances(coalitions: Bool[np.ndarray, "c g"]) -> Float[np.ndarray, "c s"]:
        values = np.asarray(value_function(function, x, kept.expand(coalitions)))
        if is_rkhs:
            return values.var(axis=1)
        return np.moveaxis(values.var(axis=-1).reshape(-1, len(coalitions)), 0, 1)

    outputs = function.output_shape[0] if isinstance(function, RKHSFunction) else 1
    coalitions = all_coalitions(count)
    table = map_blocks(variances, coalitions, even_size(len(coalitions), _MAX_VALUES // (len(x) * outputs)))
    single = 2 ** np.arange(count)
    first, total = table[single] - table[0], table[-1] - table[len(table) - 1 - single]
    indices = np.zeros((3, table.shape[1], players.num_players))
    found = np.stack([first, total, np.asarray(shapley_values_from_table(table))])
    indices[:, :, varies if varies.any() else slice(None)] = found.swapaxes(1, 2)
    return indices
