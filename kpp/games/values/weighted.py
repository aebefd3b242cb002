"""Imputations whose weights are computed coalition by coalition, for many points together."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.functions import RKHSFunction
from kpp.games.players.players import Coalitions, CoalitionTable, Instances
from kpp.games.values.abstract import check_function
from kpp.games.values.conditional.conditional_embeddings import MatrixOf
from kpp.games.values.imputation import AbstractImputation, mean_prediction, predict_groups
from kpp.kernels import AbstractKernel
from kpp.runtime.batching import map_rows, rows_that_fit
from kpp.typing import PointFunction

#: The largest number of entries of a matrix between explained points and other points.
MAX_ENTRIES = 2**24


class AbstractWeighted(AbstractImputation):
    """An imputation with a kernel, from which the weights of each coalition follow."""

    @abstractmethod
    def kernel_for(self, function: object) -> AbstractKernel:
        """Return the kernel for a function without draws."""

    @abstractmethod
    def weights_of(self, kernel: AbstractKernel, x: Float[Array, "p d"] | None) -> MatrixOf:
        """Return a function from the mask of a coalition to the weights, at some points or at the background itself.

        With exact end points they are 1/m for no features and for all.
        """

    def averages_of(self, kernel: AbstractKernel, x: Float[Array, "p d"], values: Float[Array, "m k"]) -> MatrixOf:
        """Return a function from the mask of a coalition to the weighted sums of values at the background points."""
        return weighted_sums(self.weights_of(kernel, x), values)

    @property
    def has_exact_ends(self) -> bool:
        """Whether the values of the empty and the full coalition are the mean prediction and the prediction."""
        return True

    def imputation_weights(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m"]:
        """Return the weights; with exact end points 1/m for no features and for all."""
        return _all_weights(self, self.kernel_for(function), jnp.asarray(x), jnp.asarray(coalitions))

    def impute_from_background(self, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m d"]:
        """Return the background for every coalition, but with exact end points x for the full one."""
        full = jnp.all(jnp.asarray(coalitions), axis=1) & self.has_exact_ends
        return jnp.where(full[:, None, None, None], jnp.asarray(x)[None, :, None], self.background[None, None])


def weighted_sums(weights: MatrixOf, values: Float[Array, "m k"]) -> MatrixOf:
    """Return a function from the mask of a coalition to the sums of values with the weights of the coalition."""
    return lambda mask: jnp.matmul(weights(mask).T, values, precision="highest")


def embedded_values(
    value_function: AbstractWeighted, function: PointFunction, x: Float[Array, "p d"], coalitions: Bool[Array, "c d"]
) -> CoalitionTable:
    r"""Value coalitions by weighted sums of predictions at the background points, :math:`v(S) = \sum_b w_b f(z_b)`.

    The function is an `RKHSFunction` or any callable from (n, d) to (n,) or (n, outputs). Points (p, d) and coalitions,
    booleans (c, d), give values (c, p), led by draws, with the outputs last.
    """
    check_function(function)
    if isinstance(function, RKHSFunction):
        return _embedded_in_rkhs(value_function, function, x, coalitions)
    background = jnp.asarray(value_function.background)
    references, axis = predict_groups(function, background[None])
    predictions = predict_groups(function, x[None])[0]
    first, second = (jnp.moveaxis(jnp.squeeze(values, axis), axis, 0) for values in (references, predictions))
    known = (first, second, mean_prediction(function, background))
    values = _embedded_sums(value_function, value_function.kernel_for(function), x, coalitions, known)
    return jnp.moveaxis(values, (0, 1), (axis, axis + 1))


@eqx.filter_jit
def _all_weights(
    value_function: AbstractWeighted, kernel: AbstractKernel, x: Array, coalitions: Array
) -> Float[Array, "c p m"]:
    weights = value_function.weights_of(kernel, x)
    return jax.lax.map(lambda mask: weights(mask).T, coalitions)


@eqx.filter_jit
def _embedded_in_rkhs(
    value_function: AbstractWeighted, function: RKHSFunction, x: Array, coalitions: Array
) -> CoalitionTable:
    def of_draw(draw: RKHSFunction) -> Array:
        known = (draw(value_function.background), draw(x), draw.intercept)
        return _embedded_sums(value_function, value_function.kernel_for(draw), x, coalitions, known)

    return function.map_draws(of_draw)


@eqx.filter_jit
def _embedded_sums(
    value_function: AbstractWeighted,
    kernel: AbstractKernel,
    x: Array,
    coalitions: Array,
    known: tuple[Array, Array, Array],
) -> Float[Array, "c p *rest"]:
    """Sum the weighted predictions at the background, given those, the predictions at x, and the constant."""
    references, predictions, constant = known
    excess = references - jnp.broadcast_to(constant, references.shape)
    columns = excess.reshape(excess.shape[0], -1)

    def block(pair: tuple[Array, Array]) -> Array:
        rows, own = pair
        averages = value_function.averages_of(kernel, rows, columns)

        def of_coalition(mask: Array) -> Array:
            sums = averages(mask).reshape(own.shape)
            values = sums + jnp.broadcast_to(constant, sums.shape)
            return jnp.where(value_function.has_exact_ends & jnp.all(mask), own, values)

        return jnp.swapaxes(jax.lax.map(of_coalition, coalitions), 0, 1)

    size = rows_that_fit(x.shape[0], references.shape[0], MAX_ENTRIES)
    return jnp.swapaxes(map_rows(block, (x, predictions), size), 0, 1)
