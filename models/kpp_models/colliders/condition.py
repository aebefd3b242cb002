r"""How well a conditional expectation is estimated, by leaving out one row at a time: exact, without refits."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.features import Nystrom
from kpp.kernels import AbstractKernel

__all__ = ["ConditionRegression"]

_BATCH = 512  # rows of a kernel matrix that are worked on at once


class ConditionRegression(NamedTuple):
    r"""Kernel ridge regression on the condition, from a sample.

    What the fit to all other rows lacks of a value at row i is :math:`(A v)_i / A_{ii}`, with
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
    landmarks: Any
    regularization: Any

    def value_errors(self, values: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return what the regression on all other rows lacks of the value at each row."""
        return (self._dense() if self.landmarks is None else self._low_rank()).leave_one_out(values)

    def section_errors(
        self, kernel: AbstractKernel, x: Float[Array, "m d"], coefficients: Float[Array, " m"]
    ) -> Float[Array, " n"]:
        r"""Return the same of values that differ from row to row.

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
        system = self._low_rank()
        features = system.features
        averages = jax.lax.map(lambda row: kernel(row[None], self.sample)[0] @ features, x, batch_size=_BATCH)
        explained = system.coordinates(averages)

        def error(row: tuple[Array, Array]) -> Array:
            weights = self.condition_kernel(row[0][None], x)[0] * coefficients
            return jnp.dot(kernel(row[0][None], x)[0] - row[1] @ explained, weights)

        errors = jax.lax.map(error, (self.sample, features), batch_size=_BATCH)
        return errors / (1 - system.leverages())

    @property
    def _ridge(self) -> Array:
        return self.sample.shape[0] * self.regularization

    def _dense(self) -> linalg.DenseRidge:
        what = "the regularized kernel matrix of the conditions"
        return linalg.DenseRidge.create(self.condition_kernel.gram(self.sample), self._ridge, what=what)

    def _low_rank(self) -> linalg.FeatureRidge:
        features = Nystrom(self.condition_kernel, self.landmarks).feature_map(self.sample)
        what = "the regularized matrix of the features of the conditions"
        return linalg.FeatureRidge.create(features, self._ridge, what=what)
