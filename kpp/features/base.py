r"""Kernels that are inner products of finitely many features, :math:`k(x, x') = \phi(x)^\top \phi(x')`.

Such a kernel has rank q for any number of rows: its matrices are products of (n, q) arrays, and a function of its
space is a linear model on the features. It is a kernel like any other, so that every model takes it.
"""

from __future__ import annotations

from abc import abstractmethod

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.kernels import AbstractKernel
from kpp.typing import Coefficients, OutputValues, Points


class AbstractFeatureKernel(AbstractKernel):
    r"""A kernel given by its features.

    .. math:: k(x, x') = \phi(x)^\top \phi(x')

    The methods to write are `feature_map` and `examples`.
    """

    @abstractmethod
    def feature_map(self, x: Points) -> Float[Array, "n q"]:
        """Return the features of points, one row per point.

        Law: a row depends on its point alone, and the number of features q is the same for all points.

        Args:
            x: n points, usually an array (n, d).

        Returns:
            The features, (n, q). As arrays they fit any linear model.
        """

    def finite_features(self, x: Points) -> Float[Array, "n q"]:
        return self.feature_map(x)

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        first, second = (jax.tree.map(lambda leaf: leaf[None], point) for point in (x1, x2))
        return jnp.sum(self.feature_map(first) * self.feature_map(second))

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self.feature_map(x1) @ self.feature_map(x2).T

    def gram(self, x: Points) -> Float[Array, "n n"]:
        features = self.feature_map(x)
        return features @ features.T

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return jnp.sum(jnp.square(self.feature_map(x)), axis=1)

    def combine_sections(self, x: Points, points: Points, coefficients: Coefficients) -> OutputValues:
        r"""Evaluate a function spanned by sections as :math:`\phi(x)^\top \sum_i \alpha_i \phi(z_i)`."""
        return self.feature_map(x) @ (self.feature_map(points).T @ coefficients)
