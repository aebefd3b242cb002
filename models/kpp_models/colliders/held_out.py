r"""Exact leave-one-out errors of an estimated conditional expectation, without refits."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from kpp.features import Nystrom
from kpp.kernels import AbstractKernel
from kpp.linalg.toolkit import DenseRidge, FeatureRidge

_BATCH = 512  # rows of a kernel matrix that are computed at a time


class ConditionParts(NamedTuple):
    """What the errors of a regression on the condition need of the kernels, whatever its regularization.

    The values v are the same for all errors, (n',). For values that differ from row to row they are
    :math:`v^{(i)}_i`, or with `weights` the kernel k between the rows and points, (n', m).
    """

    values: Float[Array, "..."]
    weights: Float[Array, "n m"] | None = None  # of the points whose kernel sections add up to the values of a row
    products: Float[Array, "n q"] | None = None  # for each row those of the features with its values, Phi^T v


class ConditionRegression(NamedTuple):
    r"""Kernel ridge regression on the condition, from a sample.

    The residual at row i of the fit to all other rows is :math:`(A v)_i / A_{ii}`, with
    :math:`A = (L + n' \gamma I)^{-1}`, or, with q features :math:`\Phi` from landmarks,
    :math:`A \propto I - \Phi (\Phi^\top \Phi + n' \gamma I)^{-1} \Phi^\top`.
    """

    condition_kernel: AbstractKernel  # l, of all columns
    sample: Float[Array, "n d"]
    landmarks: Float[Array, "q d"] | None
    regularization: ArrayLike  # gamma, multiplied by n'

    def section_parts(
        self, kernel: AbstractKernel, x: Float[Array, "m d"], coefficients: Float[Array, " m"]
    ) -> ConditionParts:
        r"""Return the parts of `errors` for values that differ from row to row.

        .. math:: v^{(i)}_j = \sum_m \alpha_m\, l(c_m, c_i)\, k(x_m, x_{u,j})

        :math:`c_m` is the condition of the point :math:`x_m`, and k the kernel that is averaged. With landmarks no
        matrix (n', m) is formed.
        """
        if self.landmarks is None:
            weights = self.condition_kernel(self.sample, x) * coefficients[None, :]
            return ConditionParts(kernel(self.sample, x), weights=weights)
        features = self._features()
        averages = jax.lax.map(lambda row: kernel(row[None], self.sample)[0] @ features, x, batch_size=_BATCH)

        def of_row(row: Array) -> tuple[Array, Array]:
            weights = self.condition_kernel(row[None], x)[0] * coefficients
            return jnp.dot(kernel(row[None], x)[0], weights), weights @ averages

        values, products = jax.lax.map(of_row, self.sample, batch_size=_BATCH)
        return ConditionParts(values, products=products)

    def errors(self, parts: ConditionParts) -> Float[Array, " n"]:
        """Return the residual of the value at each row, predicted by the regression on all other rows, (n',)."""
        if parts.weights is not None:
            inverse = self._dense().inverse()
            return jnp.sum((inverse @ parts.values) * parts.weights, axis=1) / jnp.diagonal(inverse)  # (A v)_i / A_ii
        if parts.products is not None:
            ridge = self._of_features()
            explained = jnp.sum(ridge.features * ridge.coordinates(parts.products).T, axis=1)
            return (parts.values - explained) / (1 - ridge.leverages())  # (v - H v)_i / (1 - H_ii)
        return (self._dense() if self.landmarks is None else self._of_features()).leave_one_out(parts.values)

    def _dense(self) -> DenseRidge:
        gram = self.condition_kernel.gram(self.sample)
        return DenseRidge.create(gram, self._total(), what="the regularized kernel matrix of the conditions")

    def _of_features(self) -> FeatureRidge:
        what = "the regularized matrix of the features of the conditions"
        return FeatureRidge.create(self._features(), self._total(), what=what)

    def _features(self) -> Float[Array, "n q"]:
        return Nystrom(self.condition_kernel, self.landmarks).feature_map(self.sample)

    def _total(self) -> ArrayLike:
        return self.sample.shape[0] * self.regularization
