r"""Imputations: value functions that average predictions in which absent features are filled in.

.. math:: v(S)(x) = \sum_{b=1}^m w_b(x, S)\, f(x_S, z_{b, S^c})

Weights need not sum to 1. The remaining weight goes to a constant c, which is the intercept of an `RKHSFunction` and
the mean prediction over the background for any other function. So the value of a constant function is the constant:
:math:`v(S) = c + \sum_b w_b (f - c)`.
"""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.
# Shapes with two variadic axes are quoted: jaxtyping cannot check them.

import functools
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import as_points, is_concrete
from kpp.functions import RKHSFunction
from kpp.games.players.players import Coalitions, CoalitionTable, Instances, as_coalitions
from kpp.games.values.abstract import AbstractValueFunction, check_function
from kpp.runtime.batching import call_in_chunks, map_rows, row_axis, rows_that_fit
from kpp.typing import AnyArray, PointFunction

# Rows per call of a plain function, the largest number of its predictions of these rows, draws and outputs counted, and
# the largest number of entries of a kernel matrix.
_MAX_ROWS = 2**16
_MAX_PREDICTIONS = 2**25
_MAX_ENTRIES = 2**22


class AbstractImputation(AbstractValueFunction):
    """A value function that averages predictions in which absent features are filled in.

    A subclass has the field `background` and defines `imputation_weights`; `impute` too if absent features are not
    filled in from background points. The function may be an `RKHSFunction` or any callable from (n, d) to (n,) or (n,
    outputs).
    """

    background: eqx.AbstractVar[Float[AnyArray, "m d"]]

    @abstractmethod
    def imputation_weights(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m"]:
        """Return the weights of the imputed rows.

        Args:
            function: The function, without draws: the weights may depend only on its kernel.
            x: The points, (p, d).
            coalitions: Booleans, (c, d).

        Returns:
            The weights, (c, p, m), one for each row that `impute` returns.
        """

    def impute(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m d"]:
        """Return the rows whose predictions are averaged: present features of x, absent ones of each background point.

        Args:
            function: The function, without draws.
            x: The points, (p, d).
            coalitions: Booleans, (c, d).

        Returns:
            The imputed rows, (c, p, m, d).
        """
        library = _library(x, coalitions, self.background)
        rows, background = library.asarray(x), library.asarray(self.background)
        imputed = library.where(coalitions[:, None, None, :], rows[None, :, None, :], background[None, None])
        return jnp.asarray(imputed)

    def control_variates(self) -> 'Float[Array, "m q"] | None':
        """Return functions of the random numbers behind the imputed rows whose means over the rows have no error.

        The standard errors of Shapley values follow from them. All coalitions must share the random numbers of a row.

        Returns:
            One row per imputed row, (m, q), the more important columns first; None if no row is random.
        """
        return None

    def __call__(self, function: PointFunction, x: object, coalitions: object) -> CoalitionTable:
        """Value coalitions at points; the function may also be any callable from (n, d) to (n,) or (n, outputs)."""
        x = as_points(x, num_features=self.background.shape[1])
        coalitions = as_coalitions(coalitions, x.shape[1])
        return imputed_values(self, function, x, coalitions)

    def base(self, function: PointFunction) -> 'Float[Array, "*draws *outputs"]':
        """Return the mean prediction over the background."""
        return mean_prediction(function, jnp.asarray(self.background))


def equal_weights(x: Instances, coalitions: Coalitions, num_rows: int) -> Float[Array, "c p r"]:
    """Return the weight 1/r for each of the r imputed rows of every coalition and point."""
    return jnp.full((coalitions.shape[0], x.shape[0], num_rows), 1 / num_rows, dtype=x.dtype)


def imputed_values(
    value_function: AbstractImputation, function: PointFunction, x: Float[Array, "p d"], coalitions: Coalitions
) -> CoalitionTable:
    """Value coalitions by the weighted predictions of imputed rows; see `AbstractValueFunction`."""
    check_function(function)
    if isinstance(function, RKHSFunction):
        return _values_in_rkhs(value_function, function, x, jnp.asarray(coalitions))
    return _values_of_callable(value_function, function, x, coalitions)


def mean_prediction(function: PointFunction, rows: Float[Array, "m d"]) -> 'Float[Array, "*draws *outputs"]':
    """Return the mean prediction of a function over rows."""
    if isinstance(function, RKHSFunction):
        return _mean_in_rkhs(function, rows)
    predictions, axis = predict_groups(function, _library(rows).asarray(rows)[None])
    return jnp.asarray(predictions.mean(axis + 1).squeeze(axis))


@eqx.filter_jit
def _mean_in_rkhs(function: RKHSFunction, rows: Float[Array, "m d"]) -> 'Float[Array, "*draws *outputs"]':
    return jnp.mean(function(rows), axis=len(function.batch_shape))


def predict_groups(function: PointFunction, rows: Float[AnyArray, "k m d"]) -> tuple[AnyArray, int]:
    """Predict k groups of m rows; a plain function is called in chunks of few sizes.

    The predictions are (k, m), led by draws, with the outputs last, and come with the axis of the groups. They are a
    NumPy array if a plain function predicts rows that are known.
    """
    groups, size, num_features = rows.shape
    flat = _library(rows).asarray(rows).reshape(-1, num_features)
    predictions: AnyArray
    if isinstance(function, RKHSFunction):
        predictions, axis = function(flat), len(function.batch_shape)
    elif isinstance(flat, np.ndarray):
        values, axis = call_in_chunks(function, flat)
        predictions = values.astype(flat.dtype, copy=False)  # single precision would not add up
    else:
        predictions = jnp.asarray(function(flat))
        axis = row_axis(predictions, groups * size)
    shape = predictions.shape
    return predictions.reshape(*shape[:axis], groups, size, *shape[axis + 1 :]), axis


@eqx.filter_jit
def _values_in_rkhs(
    value_function: AbstractImputation, function: RKHSFunction, x: Array, coalitions: Array
) -> CoalitionTable:
    """Value one coalition after another, some points at a time."""

    def of_draw(draw: RKHSFunction) -> Array:
        def of_coalition(mask: Array) -> Array:
            def of_points(pair: tuple[Array, Array]) -> Array:
                rows = value_function.impute(draw, pair[0], mask[None])[0]
                predictions = draw(rows.reshape(-1, rows.shape[-1]))
                predictions = predictions.reshape(*rows.shape[:2], *predictions.shape[1:])
                # The intercept gets the weight that is missing to 1.
                excess = predictions - jnp.broadcast_to(draw.intercept, predictions.shape)
                sums = jnp.einsum("km,km...->k...", pair[1], excess, precision="highest")
                return sums + jnp.broadcast_to(draw.intercept, sums.shape)

            weights = value_function.imputation_weights(draw, x, mask[None])[0]
            size = rows_that_fit(x.shape[0], weights.shape[1] * draw.num_points, _MAX_ENTRIES)
            return map_rows(of_points, (x, weights), size)

        return jax.lax.map(of_coalition, coalitions)

    return function.map_draws(of_draw)


def _values_of_callable(
    value_function: AbstractImputation, function: PointFunction, x: AnyArray, coalitions: Coalitions
) -> CoalitionTable:
    """Value coalitions by calling any function, some coalitions and points at a time."""
    constant = value_function.base(function)
    x = _library(x).asarray(x)
    per_coalition = x.shape[0] * value_function.background.shape[0]
    step = max(1, _rows_per_call(constant) // per_coalition)
    parts = []
    for start in range(0, coalitions.shape[0], step):
        parts.append(_values_of_chunk(value_function, function, x, coalitions[start : start + step], constant))
    return _join([values for values, _ in parts], parts[0][1])


def _rows_per_call(constant: Array) -> int:
    """Return how many rows a plain function predicts at once; `constant` has an entry per draw and output."""
    return min(_MAX_ROWS, _MAX_PREDICTIONS // constant.size)


def _values_of_chunk(
    value_function: AbstractImputation, function: PointFunction, x: AnyArray, coalitions: Coalitions, constant: Array
) -> "tuple[CoalitionTable, int]":
    """Value a few coalitions; also return the axis of the coalitions."""
    weights = value_function.imputation_weights(function, x, coalitions)
    weights = _library(weights).asarray(weights)
    step = max(1, _rows_per_call(constant) // (weights.shape[0] * weights.shape[2]))
    values, axis = [], 0
    for start in range(0, x.shape[0], step):
        imputed = value_function.impute(function, x[start : start + step], coalitions)
        rows = _library(imputed).asarray(imputed)
        predictions, axis = predict_groups(function, rows.reshape(-1, *rows.shape[2:]))
        values.append(_weigh_chunk(weights[:, start : start + step], predictions, constant, axis))
    return _join(values, axis + 1), axis


@functools.partial(jax.jit, static_argnames="axis")
def _weigh_chunk(
    weights: Float[AnyArray, "c p m"], predictions: Float[AnyArray, "..."], constant: Float[Array, "..."], axis: int
) -> CoalitionTable:
    """Return the weighted sums of the predictions of imputed rows, whose groups lie along an axis."""
    lead = predictions.shape[:axis]
    center = constant.reshape(*lead, 1, 1, *constant.shape[axis:])
    of_groups = jnp.reshape(weights, (*[1] * axis, -1, weights.shape[2], *[1] * (predictions.ndim - axis - 2)))
    # A sum of products reads the predictions once; a matrix product would copy them, with the groups first.
    sums = jnp.sum(of_groups * (predictions - center), axis=axis + 1) + jnp.squeeze(center, axis + 1)
    return sums.reshape(*lead, *weights.shape[:2], *sums.shape[axis + 1 :])


def _join(parts: list[Array], axis: int) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=axis)


def _library(*arrays: AnyArray) -> Any:
    """Return NumPy for arrays whose values are known, because JAX would compile every operation, and else JAX."""
    return np if all(map(is_concrete, arrays)) else jnp
