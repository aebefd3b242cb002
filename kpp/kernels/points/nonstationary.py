"""Kernels that depend on where the points are: Linear and Polynomial; and the Constant kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.supports import is_prior
from kpp.foundation.validation import count
from kpp.kernels.base import AbstractKernel, AbstractProductKernel, AbstractScaledProduct, split_variance
from kpp.kernels.checks import check_matrices, check_points, example_points
from kpp.kernels.parameters import check_non_negative, check_positive, parameter, per_feature, scalar
from kpp.typing import Leaf, Points, RngKey


class Constant(AbstractScaledProduct):
    r"""The constant kernel: functions that are constant, with an unknown level; ``kernel + number`` adds one.

    .. math:: k(x, x') = \sigma^2

    It takes points of any kind; `factors`, which are 1, exist for points of shape (d,).

    Args:
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior.

    Example:
        >>> (kernels.Linear() + kernels.Constant(2.0)).gram(x)
        Array([[3., 3., 2.],
               [3., 7., 4.],
               [2., 4., 3.]], dtype=float64)
    """

    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def __check_init__(self) -> None:
        check_non_negative(self.variance, "variance")

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        return scalar(self.variance, "variance")

    def evaluate_factors(self, x1: Array, x2: Array) -> Float[Array, " d"]:
        check_points(self, x1, x2)
        return jnp.ones_like(x1)

    def finite_features(self, x: Points) -> Float[Array, "n 1"]:
        leaf = jnp.asarray(jax.tree.leaves(x)[0])
        dtype = leaf.dtype if jnp.issubdtype(leaf.dtype, jnp.inexact) else self.scale.dtype
        return jnp.broadcast_to(jnp.sqrt(self.scale).astype(dtype), (leaf.shape[0], 1))

    def features_as_numbers(self, features: Sequence[str]) -> frozenset[str]:
        return frozenset()  # it reads none

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls(variance=0.7), example_points(rng_key, 3)


class Linear(AbstractKernel):
    r"""The linear kernel: linear functions without intercept, with independent normal coefficients.

    .. math:: k(x, x') = \sum_j \sigma_j^2\, x_j x'_j

    Add a number for an intercept. With a variance for each feature it is the sum of d product kernels.

    Args:
        variance: :math:`\sigma_j^2`, the variance of a coefficient: one number or shape (d,), at least 0, or a prior.

    Example:
        >>> kpp.kernels.Linear(variance=2.0).gram(np.array([[1.0], [3.0]])).tolist()
        [[2.0, 6.0], [6.0, 18.0]]

    References:
        Rasmussen and Williams (2006), section 4.2.2.
    """

    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def __check_init__(self) -> None:
        check_non_negative(self.variance, "variance")

    def evaluate(self, x1: Array, x2: Array) -> Float[Array, ""]:
        variance = per_feature(self.variance, "variance", check_points(self, x1, x2))
        return jnp.dot(x1 * variance, x2, precision=jax.lax.Precision.HIGHEST)

    def finite_features(self, x: Points) -> Float[Array, "n d"]:
        variance = per_feature(self.variance, "variance", check_matrices(self, x, x))
        return x * jnp.broadcast_to(jnp.sqrt(variance), x.shape)

    def product_terms(self) -> tuple[AbstractProductKernel, ...]:
        """Return one product kernel per feature, which needs one variance per feature.

        Raises:
            TypeError: If `variance` is one number, so that the number of features is not known, or a prior.
        """
        if not eqx.is_array(self.variance) or self.variance.ndim == 0:
            raise TypeError(
                "Linear is a sum of product kernels, one per feature, only with one known variance per feature: write "
                f"`Linear(variance=jnp.full(d, value))`; got {'a prior' if is_prior(self.variance) else 'one number'}"
            )
        parts = [Linear(variance=self.variance[..., j]).on(j) for j in range(self.variance.shape[-1])]
        return tuple(term for part in parts for term in part.product_terms())

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        """Return the variance and the kernel of variance 1, if there is one variance."""
        return split_variance(self) if getattr(self.variance, "ndim", 0) == 0 else (1.0, self)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = example_points(rng_key, 3)
        yield cls(variance=0.7), x
        yield cls(variance=jnp.array([0.5, 1.0, 0.0])), x


class Polynomial(AbstractKernel):
    r"""The polynomial kernel: polynomials of all features together.

    .. math:: k(x, x') = \sigma^2 \Big(\sum_j x_j x'_j / \ell_j^2 + c\Big)^p

    Args:
        degree: p, an integer of at least 1; a static field.
        lengthscale: :math:`\ell`, in units of x: one number or shape (d,), positive, or a prior.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior.
        offset: c, a number of at least 0, or a prior; 0 leaves only monomials of degree p.

    Example:
        >>> kernels.Polynomial(degree=2).gram(x).round(1)
        Array([[ 4.,  4.,  1.],
               [ 4., 36.,  9.],
               [ 1.,  9.,  4.]], dtype=float64)

    References:
        Rasmussen and Williams (2006), section 4.2.2.
    """

    degree: int = eqx.field(static=True, converter=lambda degree: count(degree, "degree"))
    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)
    offset: Leaf = eqx.field(converter=parameter("offset"), default=1.0)

    def __check_init__(self) -> None:
        check_positive(self.lengthscale, "lengthscale")
        check_non_negative(self.variance, "variance")
        check_non_negative(self.offset, "offset")

    def evaluate(self, x1: Array, x2: Array) -> Float[Array, ""]:
        lengthscale = per_feature(self.lengthscale, "lengthscale", check_points(self, x1, x2))
        product = jnp.dot(x1 / lengthscale, x2 / lengthscale, precision=jax.lax.Precision.HIGHEST)
        return scalar(self.variance, "variance") * (product + scalar(self.offset, "offset")) ** self.degree

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        return split_variance(self)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = example_points(rng_key, 3)
        yield cls(degree=2, lengthscale=2.0, variance=0.7), x
        yield cls(degree=3, lengthscale=jnp.array([1.0, 2.0, 4.0]), offset=0.5), x
