"""Masked regression: an observational value function by one regression on inputs with absent features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.foundation.validation import as_points, count, warn_if_float32
from kpp.functions import RKHSFunction
from kpp.games.players.players import Coalitions, CoalitionTable, Instances, as_coalitions
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.conditional.conditional_embeddings import MatrixOf, median_kernel
from kpp.games.values.product_games import example_functions
from kpp.games.values.weighted import AbstractWeighted, embedded_values
from kpp.kernels import AbstractKernel, parameter
from kpp.kernels.toolkit import check_positive
from kpp.linalg.toolkit import DenseRidge
from kpp.runtime.random import uniform
from kpp.typing import AnyArray, Leaf, PointFunction, RngKey


class MaskedRegression(AbstractWeighted):
    r"""The expected prediction given the present features, learned for all coalitions by one regression.

    Each background point appears with several random coalitions :math:`S_i`. Kernel ridge regression of its prediction
    on its present features and the coalition gives

    .. math:: v(S) = c + k\bigl((x, S), \cdot\bigr)^\top (K + N \eta I)^{-1} (f(z_i) - c), \qquad
        k\bigl((x, S), (z, T)\bigr) = k_0(x_S, z_T)\, e^{-|S \triangle T| / 2},

    where absent features of :math:`k_0` are replaced by their means. c is the intercept of an `RKHSFunction`, and the
    mean prediction of other functions. The empty coalition is worth the mean prediction, the full one f(x). The values
    depend on predictions at the background only, and are linear in them.

    Args:
        background: The background points, (m, d).
        regularization: :math:`\eta`, positive; it is multiplied by the number of rows N.
        kernel: :math:`k_0`, or None for an RBF kernel with :math:`\sqrt d` times the median distances.
        masks_per_point: How many coalitions per background point; N is m times this number.
        seed: The seed of the random coalitions, whose sizes are uniform.

    References:
        Frye, de Mijolla, Begley, Cowton, Stanley and Feige, Shapley explainability on the data manifold, 2021, section
        3.2, with kernel ridge regression in place of a neural network.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    regularization: Leaf = eqx.field(converter=parameter("regularization"), default=1e-4)
    kernel: AbstractKernel | None = None
    masks_per_point: int = eqx.field(static=True, default=8)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        check_positive(self.regularization, "regularization", infinity_allowed=False)
        count(self.masks_per_point, "masks_per_point")

    def __call__(self, function: PointFunction, x: object, coalitions: object) -> CoalitionTable:
        x = as_points(x, num_features=self.background.shape[1])
        coalitions = as_coalitions(coalitions, x.shape[1])
        warn_if_float32("MaskedRegression")
        return embedded_values(self, function, x, jnp.asarray(coalitions))

    def impute(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m d"]:
        """Return the background for every coalition, but x for the full one."""
        return self.impute_from_background(x, coalitions)

    def kernel_for(self, function: object) -> AbstractKernel:
        return median_kernel(jnp.asarray(self.background)) if self.kernel is None else self.kernel

    def weights_of(self, kernel: AbstractKernel, x: Float[Array, "p d"] | None) -> MatrixOf:
        background = jnp.asarray(self.background)
        points = background if x is None else x
        masks = self.masks()
        rows = jnp.tile(background, (self.masks_per_point, 1))
        gram = self._kernel(kernel, rows, masks, rows, masks)
        ridge = rows.shape[0] * self.regularization
        system = DenseRidge.create(gram, ridge, what="the kernel matrix of masked rows")

        def weights(mask: Bool[Array, " d"]) -> Array:
            same = jnp.broadcast_to(mask[None], points.shape)
            found = system.solve(self._kernel(kernel, rows, masks, points, same))
            total = jnp.sum(found.reshape(self.masks_per_point, background.shape[0], -1), axis=0)
            return jnp.where(jnp.all(mask) | ~jnp.any(mask), 1 / background.shape[0], total)

        return weights

    def masks(self) -> Bool[Array, "rows d"]:
        """Return random coalitions of sizes drawn uniformly from 0 to d."""
        num_rows, num_features = self.background.shape[0] * self.masks_per_point, self.background.shape[1]
        sizes, order = jax.random.split(jax.random.key(self.seed))
        drawn = jax.random.randint(sizes, (num_rows, 1), 0, num_features + 1)
        return jnp.argsort(uniform(order, (num_rows, num_features)), axis=1) < drawn

    def _kernel(self, kernel: AbstractKernel, x1: Array, masks1: Array, x2: Array, masks2: Array) -> Array:
        means = jnp.mean(jnp.asarray(self.background), axis=0, keepdims=True)
        inputs = kernel.split_scale()[1](jnp.where(masks1, x1, means), jnp.where(masks2, x2, means))
        sizes1, sizes2 = (jnp.sum(masks, axis=1).astype(x1.dtype) for masks in (masks1, masks2))
        common = masks1.astype(x1.dtype) @ masks2.astype(x1.dtype).T
        return inputs * jnp.exp(common - (sizes1[:, None] + sizes2[None, :]) / 2)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        function, x = list(example_functions(rng_key))[2]
        yield cls(function.points[:4] + 0.1, masks_per_point=2), function, x
