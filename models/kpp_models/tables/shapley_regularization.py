r"""Shapley regularizers: kernels whose norm penalizes the Shapley values of one feature.

A kernel method that minimizes a loss plus :math:`\lambda_f \|f\|^2` uses a feature A less if the Shapley values of A at
n points are penalized as well (Chau et al., section 4),

.. math:: \min_f\; \sum_i \ell(y_i, f(x_i)) + \lambda_f \|f\|^2 + \frac{\lambda_S}{n} \sum_{i=1}^n \phi_{x_i,A}(f)^2 .

Shapley values are linear in f, so the two penalties are one squared norm, and a squared norm belongs to a kernel. The
classes here are this kernel: they can be used in every model that has a kernel, with any loss, and the penalty
:math:`\lambda_S / \lambda_f` may be a prior. With `kpp.games.Interventional` they are the paper's ISV-REG, with
`kpp.games.Observational` its OSV-REG.
"""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.foundation.validation import as_points
from kpp.functions import RKHSFunction
from kpp.games import (
    AbstractValueFunction,
    Baseline,
    Interventional,
    all_coalitions,
    shapley_covariance,
    shapley_values,
    shapley_weights,
)
from kpp.games.toolkit import choose_method
from kpp.gp import scalar_field
from kpp.kernels import RBF, AbstractKernel, check_non_negative
from kpp.kernels.toolkit import AbstractBatchKernel
from kpp.priors import has_priors
from kpp.runtime.batching import map_rows, split_rows
from kpp.typing import AnyArray, Coefficients, Leaf, Points, RngKey

Kernel = TypeVar("Kernel", bound="AbstractShapleyRegularized")

# The largest number of entries of an array of values in memory.
_MAX_VALUES = 2**25


class AbstractShapleyRegularized(AbstractBatchKernel):
    r"""A kernel made of :math:`a(x)^\top M^{-1} a(x')`, where a and M depend on the Shapley values of a feature.

    The final classes define a and M, and say whether the product is the kernel itself or is subtracted from k. Each
    has a field for the (n, n) matrix of M that does not change with the penalty.
    """

    #: Whether the product is subtracted from k; and the name of the field for the computed matrix.
    subtracted: eqx.AbstractClassVar[bool]
    computed: eqx.AbstractClassVar[str]

    kernel: AbstractKernel
    value_function: AbstractValueFunction
    points: Float[AnyArray, "n d"] = eqx.field(converter=lambda value: as_points(value, "points"))
    feature: int = eqx.field(static=True)
    penalty: Leaf = scalar_field("penalty")

    def __check_init__(self) -> None:
        num_features = self.points.shape[-1]
        if not isinstance(self.feature, int) or not 0 <= self.feature < num_features:
            raise ValueError(f"`feature` must be a position from 0 to {num_features - 1}, got {self.feature!r}")
        check_non_negative(self.penalty, "penalty")

    def __call__(self, x1: Array, x2: Array) -> Float[Array, "n1 n2"]:
        """Evaluate the kernel at every pair of n1 and n2 points; the arrays are (n1, d) and (n2, d)."""
        factor = self._factor()
        products = self._whitened(factor, x1).T @ self._whitened(factor, x2)
        return self.kernel(x1, x2) - products if self.subtracted else products

    def gram(self, x: Array) -> Float[Array, "n n"]:
        whitened = self._whitened(self._factor(), x)
        products = whitened.T @ whitened
        return self.kernel.gram(x) - products if self.subtracted else products

    def diagonal(self, x: Array) -> Float[Array, " n"]:
        squares = jnp.sum(self._whitened(self._factor(), x) ** 2, axis=0)
        return self.kernel.diagonal(x) - squares if self.subtracted else squares

    def precompute(self: Kernel) -> Kernel:
        """Return the same kernel with the matrix of its field `computed`, or raise TypeError if k holds priors."""
        if has_priors(self.kernel):
            raise TypeError(
                "`precompute` needs a `kernel` without priors, since what it computes changes with them; leave it out, "
                "or give the kernel numbers and keep the prior of `penalty`"
            )
        changes: dict[str, Any] = {self.computed: self._compute()}
        return dataclasses.replace(self, **changes)

    @abstractmethod
    def _compute(self) -> Float[Array, "n n"]:
        """Return the matrix of M that does not change with the penalty."""

    @abstractmethod
    def _matrix(self, computed: Float[Array, "n n"]) -> Float[Array, "n n"]:
        """Return M."""

    @abstractmethod
    def _features(self, x: Array) -> Float[Array, "n p"]:
        """Return a at p points (p, d)."""

    def _strength(self) -> Array:
        return jnp.asarray(self.penalty) / self.points.shape[0]

    def _factor(self) -> Float[Array, "n n"]:
        computed = getattr(self, self.computed)
        matrix = self._matrix(self._compute() if computed is None else jnp.asarray(computed))
        return linalg.cholesky(matrix, what="the matrix of the Shapley penalty")

    def _whitened(self, factor: Array, x: Array) -> Float[Array, "n p"]:
        return linalg.solve_lower(factor, self._features(x))  # a^T M^-1 a' without an inverse of M = L L^T


class ShapleyRegularized(AbstractShapleyRegularized):
    r"""The kernel of an RKHS whose squared norm includes the mean squared Shapley value of a feature.

    .. math::

        \|f\|_\sim^2 &= \|f\|^2 + \frac{c}{n} \sum_{i=1}^n \phi_{x_i,A}(f)^2, \\
        \tilde k(x, x') &= k(x, x') - \frac{c}{n}\, \zeta(x)^\top \Bigl(I + \frac{c}{n} G\Bigr)^{-1} \zeta(x'), \qquad
        \zeta_i(x) = \phi_{x_i,A}(k(\cdot, x)), \quad G_{ij} = \langle \phi_{x_i,A}, \phi_{x_j,A} \rangle .

    As a Gaussian process it is the prior with covariance k after n observations :math:`\phi_{x_i,A}(f) = 0` of noise
    variance :math:`n / c`. The minimizer of a loss over this RKHS is the minimizer over the RKHS of k of the loss with
    both penalties, and lies outside the span of the :math:`k(\cdot, x_i)`; `RestrictedShapleyRegularized` has the
    minimizer over that span, which takes less time and is again a function of the kernel k.

    With `kpp_models.KernelRidge`, :math:`\lambda_f` is n times its `regularization`; with `kpp_models.KernelLogistic`
    it is half of this; and :math:`\lambda_S = c \lambda_f`.

    Args:
        kernel: k, with numbers or priors as leaves.
        value_function: The game that defines the Shapley values.
        points: The n points whose Shapley values are penalized, (n, d); usually the training points.
        feature: The position of the feature A, from 0.
        penalty: c, a number (at least 0) or a prior, in units of the squared norm over a squared Shapley value.
        section_gram: G, (n, n), as computed by `precompute`; if None, it is computed again at each evaluation.

    Raises:
        ValueError: If `points` are not a matrix, `feature` is not one of its columns, or `penalty` is negative.

    References:
        Chau, Hu, Gonzalez and Sejdinovic, RKHS-SHAP, 2022, section 4.
    """

    subtracted: ClassVar[bool] = True
    computed: ClassVar[str] = "section_gram"

    section_gram: Float[AnyArray, "n n"] | None = None

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Array]]:
        x = jax.random.normal(rng_key, (5, 2))
        yield cls(RBF(jnp.array([0.8, 1.3])), Interventional(x[:3]), x[:3], 1, 4.0).precompute(), x

    def _compute(self) -> Float[Array, "n n"]:
        points = jnp.asarray(self.points)
        return shapley_covariance(self.value_function, self.kernel, points, points)[:, :, self.feature, self.feature]

    def _matrix(self, computed: Float[Array, "n n"]) -> Float[Array, "n n"]:
        return linalg.add_diagonal(self._strength() * computed, 1.0)  # I + (c / n) G, section 4

    def _features(self, x: Array) -> Float[Array, "n p"]:
        sections = feature_sections(self.value_function, self.kernel, x, jnp.asarray(self.points), self.feature)
        return jnp.sqrt(self._strength()) * sections.T  # scaled, so that M has the identity


class RestrictedShapleyRegularized(AbstractShapleyRegularized):
    r"""The kernel of the span of n kernel sections, with the mean squared Shapley value of a feature in its norm.

    .. math::

        \tilde k(x, x') = k(x, X) \Bigl(K + \frac{c}{n} \zeta \zeta^\top\Bigr)^{-1} k(X, x'), \qquad
        \zeta_{ij} = \phi_{x_j,A}(k(\cdot, x_i))

    Kernel ridge regression with it, on the targets at X, has the coefficients of the paper's proposition 7,
    :math:`\alpha = (K^2 + \lambda_f K + \frac{\lambda_S}{n} \zeta\zeta^\top)^{-1} K y` with
    :math:`\lambda_S = c \lambda_f`: the minimizer within the span of the :math:`k(\cdot, x_i)`, whose objective
    `ShapleyRegularized` improves on. The kernel has rank n at most, and its functions unfold to functions of k on the
    points X, which every explainer takes.

    Args:
        kernel, value_function, feature, penalty: As for `ShapleyRegularized`.
        points: The n points X whose Shapley values are penalized and that span the space, (n, d).
        section_products: :math:`\zeta\zeta^\top`, (n, n), as computed by `precompute`; if None, they are computed again
            at each evaluation.

    Raises:
        ValueError: If `points` are not a matrix, `feature` is not one of its columns, or `penalty` is negative.

    References:
        Chau, Hu, Gonzalez and Sejdinovic, RKHS-SHAP, 2022, proposition 7.
    """

    subtracted: ClassVar[bool] = False
    computed: ClassVar[str] = "section_products"

    section_products: Float[AnyArray, "n n"] | None = None

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Array]]:
        x = jax.random.normal(rng_key, (5, 2))
        yield cls(RBF(jnp.array([0.8, 1.3])), Baseline(), x[:3], 1, 4.0).precompute(), x

    def unfold(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Points, AnyArray]:
        """Write a function as one of k on the points X; see `AbstractKernel.unfold`."""
        anchors = jnp.asarray(self.points)
        onto = linalg.cho_solve(self._factor(), self.kernel(anchors, points) @ coefficients)
        return self.kernel.unfold(anchors, onto)

    def _compute(self) -> Float[Array, "n n"]:
        points = jnp.asarray(self.points)
        sections = feature_sections(self.value_function, self.kernel, points, points, self.feature)
        return sections @ sections.T

    def _matrix(self, computed: Float[Array, "n n"]) -> Float[Array, "n n"]:
        return self.kernel.gram(jnp.asarray(self.points)) + self._strength() * computed  # K + (c / n) zeta zeta^T

    def _features(self, x: Array) -> Float[Array, "n p"]:
        return self.kernel(jnp.asarray(self.points), x)


def feature_sections(
    value_function: AbstractValueFunction,
    kernel: AbstractKernel,
    points: Float[Array, "n d"],
    x: Float[Array, "p d"],
    feature: int,
) -> Float[Array, "n p"]:
    r"""Return the Shapley values (n, p) of one feature A at p points for the kernel sections with n centers z, exactly.

    .. math:: \zeta_{ij} = \phi_{x_j,A}(k(\cdot, z_i))

    They are computed by quadrature if this applies and takes less time, otherwise by a sum over coalitions.
    """
    num_points, num_features = x.shape
    dtype, wanted = jnp.result_type(float), x.dtype  # games are played in JAX's default precision
    points, x = points.astype(dtype), x.astype(dtype)
    sections = RKHSFunction(kernel, points, jnp.eye(points.shape[0], dtype=dtype))
    if choose_method(value_function, sections, num_points, num_features) == "quadrature":
        size = max(1, min(num_points, _MAX_VALUES // (num_features * points.shape[0])))
        found = map_rows(lambda rows: _quadrature(value_function, sections, rows, feature), x, size).T
    else:
        found = _summed_over_coalitions(value_function, sections, x, feature)
    return found.astype(wanted)


def _quadrature(value_function: AbstractValueFunction, sections: RKHSFunction, x: Array, feature: int) -> Array:
    return shapley_values(value_function, sections, x, method="quadrature")[:, feature]


def _summed_over_coalitions(
    value_function: AbstractValueFunction, sections: RKHSFunction, x: Array, feature: int
) -> Float[Array, "n p"]:
    """Add up the weighted contributions of a feature to the coalitions of the others, some coalitions at a time."""
    num_points, num_features = x.shape
    coalitions = all_coalitions(num_features)
    signs = np.where(coalitions[:, feature], 1.0, -1.0)
    joined = np.delete(coalitions, feature, axis=1).sum(axis=1)
    weights = jnp.asarray(signs * shapley_weights(num_features)[joined], dtype=x.dtype)  # +- |S|! (d - 1 - |S|)! / d!
    size = max(1, min(len(coalitions), _MAX_VALUES // (num_points * sections.num_points)))
    padding = -len(coalitions) % size
    parts = split_rows(jnp.asarray(coalitions), size), jnp.pad(weights, (0, padding)).reshape(-1, size)

    def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        values = value_function(sections, x, part[0])
        return total + jnp.tensordot(part[1], values, axes=1, precision="highest"), None

    start = jnp.zeros((num_points, sections.num_points), dtype=x.dtype)
    return jax.lax.scan(add, start, parts)[0].T
