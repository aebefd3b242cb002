r"""Standard errors of Shapley values in games whose values are means over random draws.

All coalitions share the random numbers of a draw, so that a Shapley value is the mean of one contribution per draw,

.. math:: \phi_j = \frac1r \sum_{i=1}^r \phi_{ji}, \qquad
    \phi_{ji} = \sum_S c_j(S)\, f\bigl(x_S, \xi_i(S)\bigr),

with the weights :math:`c_j(S)` of the values of coalitions. The random numbers are not independent: the means of their
control variates have no error. So the variance of the mean is that of the residuals of a regression on these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from kpp.foundation.validation import is_concrete
from kpp.functions import RKHSFunction
from kpp.games.estimators.game import Game
from kpp.games.values.imputation import AbstractImputation, predict_groups
from kpp.typing import AnyArray

# The largest number of rows in one call, and of their predictions and entries of kernel matrices.
_MAX_ROWS, _MAX_ENTRIES = 2**16, 2**24
# Columns of the identity matrix that are solved at once.
_COLUMNS = 512
# Below this, one minus the leverage of a draw is rounding, and so is its residual.
_MIN_FREEDOM = 1e-6


def draw_errors(
    game: Game, coalitions: Bool[np.ndarray, "c g"], weights: Float[np.ndarray, "g c"]
) -> Float[AnyArray, "*draws p g *outputs"] | None:
    """Estimate the standard errors of Shapley values that come from the draws behind the values of coalitions.

    They are None if the value function does not draw rows, or fewer than 2, or values are traced by JAX.
    """
    controls = _controls(game)
    if controls is None:
        return None
    masks = np.asarray(game.players.expand(coalitions))
    drawn = masks.any(axis=1) & ~masks.all(axis=1)  # the others have values without error
    if not drawn.any():  # a single player
        masks, weights, drawn = np.ones_like(game.x[:1], dtype=bool), np.zeros((len(weights), 1)), np.array([True])
    errors = []
    for rows in _blocks(game, len(controls)):
        contributions, num_draw_axes = _contributions(game, rows, masks[drawn], weights[:, drawn])
        errors.append(_error_of_mean(contributions, controls))
    return game.arrange(jnp.asarray(np.concatenate(errors, axis=1).swapaxes(0, 1)), num_draw_axes)


def has_draws(game: Game) -> bool:
    """Return whether the values of coalitions are means over random draws, at least 2 of them."""
    return _controls(game) is not None


def weights_of(
    solve: Callable[[Float[np.ndarray, "c k"]], Float[AnyArray, "g k"]], num_coalitions: int
) -> Float[np.ndarray, "g c"]:
    """Return the weights of the values of coalitions in Shapley values that are linear in them."""
    identity = np.eye(num_coalitions)
    starts = range(0, num_coalitions, _COLUMNS)
    return np.concatenate([np.asarray(solve(identity[:, start : start + _COLUMNS])) for start in starts], axis=1)


def _controls(game: Game) -> Float[np.ndarray, "r q"] | None:
    if not isinstance(game.value_function, AbstractImputation):
        return None
    if not all(map(is_concrete, jax.tree.leaves((game.value_function, game.function, game.x)))):
        return None
    controls = game.value_function.control_variates()
    return None if controls is None or len(controls) < 2 else np.asarray(controls)


def _blocks(game: Game, num_rows: int) -> Iterator[Float[AnyArray, "b d"]]:
    """Yield blocks of points whose predictions fit into memory."""
    function = game.function
    targets = math.prod(np.shape(game.value_function.base(function)))
    points = jax.tree.leaves(function.points) if isinstance(function, RKHSFunction) else []
    per_row = targets + sum(leaf.size for leaf in points)
    size = max(1, min(_MAX_ROWS, _MAX_ENTRIES // per_row) // num_rows)
    for start in range(0, game.x.shape[0], size):
        yield game.x[start : start + size]


def _contributions(
    game: Game, x: Float[AnyArray, "b d"], masks: Bool[np.ndarray, "c d"], weights: Float[np.ndarray, "g c"]
) -> tuple[Float[np.ndarray, "g b r *rest"], int]:
    """Return the contributions of each draw, and the number of axes after it that are draws of the function."""
    total: np.ndarray | float = 0.0
    num_draw_axes = 0
    for mask, column in zip(masks, weights.T, strict=True):
        rows = game.value_function.impute(game.function, x, mask[None])[0]
        predictions, num_draw_axes = predict_groups(game.function, rows)
        found = np.moveaxis(np.asarray(predictions), (num_draw_axes, num_draw_axes + 1), (0, 1))
        total = total + np.multiply.outer(column, found)
    return np.asarray(total), num_draw_axes


def _error_of_mean(
    contributions: Float[np.ndarray, "g b r *rest"], controls: Float[np.ndarray, "r q"]
) -> Float[np.ndarray, "g b *rest"]:
    """Return the standard errors of the means over draws, with at least half of the degrees of freedom left.

    Draws with a large leverage have small residuals for that reason: each square is divided by one minus its leverage.
    """
    num_draws = len(controls)
    used = controls[:, : (num_draws - 2) // 2]
    basis = np.linalg.qr(np.column_stack([np.ones(num_draws), used]))[0]
    freedom = np.maximum(1 - np.sum(basis**2, axis=1), _MIN_FREEDOM)
    values = np.moveaxis(contributions, 2, 0)
    flat = values.reshape(num_draws, -1)
    residuals = flat - basis @ (basis.T @ flat)
    variances = np.sum(residuals**2 / freedom[:, None], axis=0) / num_draws  # HC2 of MacKinnon and White (1985)
    return np.sqrt(variances / num_draws).reshape(values.shape[1:])
