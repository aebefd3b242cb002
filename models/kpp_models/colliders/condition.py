r"""Exact leave-one-out errors of an estimated conditional expectation, without refits."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from kpp.features import Nystrom
from kpp.kernels import AbstractKernel
from kpp.linalg import DenseRidge, FeatureRidge

__all__ = ["ConditionRegression"]

_BATCH = 512  # rows of a kernel matrix that are computed at a time


class ConditionRegression(NamedTuple):
    r"""Kernel ridge regression on the condition, from a sample.

    The residual at row i of the fit to all other rows is :math:`(A v)_i / A_{ii}`, with
    :math:`A = (L + n' \gamma I)^{-1}`, or, with q features :math:`\Phi` from landmarks,
    :math:`A \propto I - \Phi (\Phi^\top \Phi + n' \gamma I)^{-1} \Phi^\top`.

    Attributes:
        condition_kernel: l, of all columns.
        sample: The rows, (n', d).
        landmarks: The landmarks, (q, d), or None.
        regularization: :math:`\gamma`, multiplied by n'.
    """

    condition_kernel: AbstractKernel
    sample: Float[Array, "n d"]
    landmarks: Float[Array, "q d"] | None
    regularization: ArrayLike

    def value_errors(self, values: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the residual of the value at each row, predicted by the regression on all other rows."""
        return (self._dense() if self.landmarks is None else self._of_features()).leave_one_out(values)

    def section_errors(
        self, kernel: AbstractKernel, x: Float[Array, "m d"], coefficients: Float[Array, " m"]
    ) -> Float[Array, " n"]:
        r"""Return the same residuals for values that differ from row to row.

        .. math:: v^{(i)}_j = \sum_m \alpha_m\, l(c_m, c_i)\, k(x_m, x_{u,j})

        Args:
            kernel: k, the kernel that is averaged.
            x: The points :math:`x_m`, with conditions :math:`c_m`.
            coefficients: :math:`\alpha`.

        Returns:
            The errors, (n',). With landmarks no matrix (n', m) is formed.
        """
        if self.landmarks is None:
            inverse = self._dense().inverse()
            weights = self.condition_kernel(self.sample, x) * coefficients[None, :]
            return jnp.sum((inverse @ kernel(self.sample, x)) * weights, axis=1) / jnp.diagonal(inverse)
        ridge = self._of_features()
        averages = jax.lax.map(lambda row: kernel(row[None], self.sample)[0] @ ridge.features, x, batch_size=_BATCH)
        explained = ridge.coordinates(averages)

        def error(row: tuple[Array, Array]) -> Array:
            weights = self.condition_kernel(row[0][None], x)[0] * coefficients
            return jnp.dot(kernel(row[0][None], x)[0] - row[1] @ explained, weights)

        errors = jax.lax.map(error, (self.sample, ridge.features), batch_size=_BATCH)
        return errors / (1 - ridge.leverages())

    def _dense(self) -> DenseRidge:
        gram = self.condition_kernel.gram(self.sample)
        return DenseRidge.create(gram, self._total(), what="the regularized kernel matrix of the conditions")

    def _of_features(self) -> FeatureRidge:
        features = Nystrom(self.condition_kernel, self.landmarks).feature_map(self.sample)
        what = "the regularized matrix of the features of the conditions"
        return FeatureRidge.create(features, self._total(), what=what)

    def _total(self) -> ArrayLike:
        return self.sample.shape[0] * self.regularization
