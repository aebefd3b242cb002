"""Nyström's method: a kernel projected onto the span of its sections at landmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.features.base import AbstractFeatureKernel
from kpp.foundation.validation import as_finite_array
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, AbstractKernel
from kpp.kernels.toolkit import point_rows
from kpp.linalg.pivoted import pivoted_whitener
from kpp.typing import AnyArray, Coefficients, Leaf, Numbers, Points, RngKey


class Nystrom(AbstractFeatureKernel):
    r"""Nyström's approximation of a kernel.

    .. math::

        k(x, x') = k_1(x, Z)\, k_1(Z, Z)^{-1} k_1(Z, x') = \phi(x)^\top \phi(x'), \qquad
        \phi(x) = L^{-1} k_1(Z, x), \quad k_1(Z, Z) = L L^\top

    It is exact where one of the two points is a landmark. Landmarks that depend on others up to rounding, such as equal
    ones, are left out, and features of 0 take their place. Its functions are spanned by the sections of :math:`k_1` at
    the landmarks, and explainers work on those, however many rows a model was fitted to.

    Args:
        kernel: The kernel :math:`k_1`; its parameters may be priors.
        landmarks: Z, the m landmarks, an array (m, d); `kpp.features.landmarks` chooses them.

    Example:
        >>> kpp.features.Nystrom(kpp.kernels.RBF(1.0), x[:5]).gram(x).shape
        (20, 20)

    References:
        Williams and Seeger, Using the Nyström method to speed up kernel machines, 2001, equation (9).
    """

    kernel: AbstractKernel
    landmarks: Leaf = eqx.field(converter=point_rows("landmarks"))

    def feature_map(self, x: Points) -> Float[Array, "n m"]:
        r"""Return the features :math:`L^{-1} k_1(Z, x)`, one row per point."""
        return self.kernel(x, self.landmarks) @ self._whitener().T

    def unfold(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Points, AnyArray]:
        sections = self.kernel(self.landmarks, points) @ coefficients
        whitener = self._whitener()
        return self.kernel.unfold(self.landmarks, whitener.T @ (whitener @ sections))

    def function(self, weights: Numbers, intercept: Numbers = 0.0) -> RKHSFunction:
        r"""Return a linear model on the features as a function of the base kernel on the landmarks.

        .. math:: f(x) = w^\top \phi(x) + b = \sum_j (L^{-\top} w)_j\, k_1(x, z_j) + b

        So a linear method that scales to any number of rows, for example one of scikit-learn, can fit a kernel method.

        Args:
            weights: w, one per feature, (m,) or (m, outputs).
            intercept: b, a number or (outputs,).

        Returns:
            The function, on the m landmarks.

        Raises:
            ValueError: If there are not as many weights as landmarks.
        """
        weights = as_finite_array(weights, "weights")
        if weights.shape[:1] != self.landmarks.shape[:1]:
            raise ValueError(
                f"`weights` must have one row for each of the {self.landmarks.shape[0]} landmarks, got shape "
                f"{weights.shape}"
            )
        coefficients = self._whitener().T @ weights
        return RKHSFunction(self.kernel, self.landmarks, coefficients, as_finite_array(intercept, "intercept")).unfold()

    def _whitener(self) -> Float[Array, "m m"]:
        return pivoted_whitener(self.kernel.gram(self.landmarks), what="the kernel matrix of the landmarks")

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = jax.random.normal(rng_key, (6, 3))
        yield cls(RBF(jnp.array([0.7, 1.0, 2.0]), 1.3), x[:3] + 0.2), x
