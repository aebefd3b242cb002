r"""Kernels made of kernels: sums, products and multiples.

All of them are usually written with operators: ``k1 + k2``, ``k1 * k2``, ``2.0 * k``, ``k + 1.0``. Sums and products
that are written with operators are flat: ``k1 + k2 + k3`` holds three kernels, not a sum and a kernel.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from functools import reduce
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.kernels.base import AbstractKernel, AbstractProductKernel, implements
from kpp.kernels.checks import example_points
from kpp.kernels.parameters import check_non_negative, parameter, scalar
from kpp.kernels.parts import AbstractComposite, as_kernel, as_kernels, features_of_product
from kpp.kernels.points.nonstationary import Constant, Linear
from kpp.kernels.points.stationary import RBF, Matern12, Matern52, Periodic
from kpp.typing import AnyArray, Coefficients, Leaf, Numbers, OutputValues, Points, RngKey


class Sum(AbstractComposite):
    r"""A sum of kernels: a sum of independent functions.

    .. math:: k(x, x') = \sum_i k_i(x, x')

    Args:
        kernels: The kernels, at least one.

    Example:
        >>> kernel = kernels.RBF(1.0) + 0.5 * kernels.Linear()
        >>> type(kernel).__name__, float(kernel.gram(x)[0, 0])
        ('Sum', 1.5)
    """

    kernels: tuple[AbstractKernel, ...] = eqx.field(converter=as_kernels)

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        return reduce(operator.add, [kernel.evaluate(x1, x2) for kernel in self.kernels])

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return reduce(operator.add, [kernel(x1, x2) for kernel in self.kernels])

    def gram(self, x: Points) -> Float[Array, "n n"]:
        return reduce(operator.add, [kernel.gram(x) for kernel in self.kernels])

    def combine_sections(self, x: Points, points: Points, coefficients: Coefficients) -> OutputValues:
        return reduce(operator.add, [kernel.combine_sections(x, points, coefficients) for kernel in self.kernels])

    def finite_features(self, x: Points) -> Float[Array, "n q"] | None:
        found = [kernel.finite_features(x) for kernel in self.kernels]
        known = [features for features in found if features is not None]
        return jnp.concatenate(known, axis=1) if len(known) == len(found) else None

    def product_terms(self) -> tuple[AbstractProductKernel, ...]:
        return tuple(term for kernel in self.kernels for term in kernel.product_terms())

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls((RBF(0.7), Matern12(2.0, 0.5), Constant(0.3))), example_points(rng_key, 3)


class Product(AbstractComposite):
    r"""A product of kernels; a product kernel if all of them are.

    .. math:: k(x, x') = \prod_i k_i(x, x')

    Args:
        kernels: The kernels, at least one.

    Example:
        >>> kernel = kernels.RBF(1.0) * kernels.Linear()
        >>> type(kernel).__name__, float(kernel.gram(x)[1, 1])
        ('Product', 5.0)
    """

    kernels: tuple[AbstractKernel, ...] = eqx.field(converter=as_kernels)

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        return reduce(operator.mul, [kernel.evaluate(x1, x2) for kernel in self.kernels])

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return reduce(operator.mul, [kernel(x1, x2) for kernel in self.kernels])

    def gram(self, x: Points) -> Float[Array, "n n"]:
        return reduce(operator.mul, [kernel.gram(x) for kernel in self.kernels])

    def finite_features(self, x: Points) -> Float[Array, "n q"] | None:
        return features_of_product(self.kernels, itertools.repeat(x, len(self.kernels)))

    def product_terms(self) -> tuple[AbstractProductKernel, ...]:
        choices = itertools.product(*(kernel.product_terms() for kernel in self.kernels))  # sums are multiplied out
        return tuple(choice[0] if len(choice) == 1 else ProductTerm(choice) for choice in choices)

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        scales, kernels = zip(*(kernel.split_scale() for kernel in self.kernels), strict=True)
        return reduce(operator.mul, scales), Product(kernels)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = example_points(rng_key, 3)
        yield cls((RBF(0.7, 2.0), Periodic(2.0, variance=0.5, period=1.7))), x
        yield cls((Linear(0.5), Matern52(2.0))), x


class Scaled(AbstractComposite):
    r"""A multiple of a kernel.

    .. math:: k(x, x') = \sigma^2 k_1(x, x')

    Args:
        kernel: The kernel :math:`k_1`.
        variance: :math:`\sigma^2`, a number of at least 0, or a prior.

    Example:
        >>> kernel = 3.0 * kernels.Linear()
        >>> type(kernel).__name__, float(kernel.gram(x)[0, 0])
        ('Scaled', 3.0)
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    variance: Leaf = eqx.field(converter=parameter("variance"))

    def __check_init__(self) -> None:
        check_non_negative(self.variance, "variance")

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        return self._variance() * self.kernel.evaluate(x1, x2)

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self._variance() * self.kernel(x1, x2)

    def gram(self, x: Points) -> Float[Array, "n n"]:
        return self._variance() * self.kernel.gram(x)

    def combine_sections(self, x: Points, points: Points, coefficients: Coefficients) -> OutputValues:
        variance = jnp.asarray(self._variance(), dtype=coefficients.dtype)
        return self.kernel.combine_sections(x, points, variance * coefficients)

    def finite_features(self, x: Points) -> Float[Array, "n q"] | None:
        features = self.kernel.finite_features(x)
        return None if features is None else jnp.sqrt(self._variance()) * features  # squared by the inner product

    def product_terms(self) -> tuple[AbstractProductKernel, ...]:
        return tuple(ProductTerm((term,), self.variance) for term in self.kernel.product_terms())

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        scale, kernel = self.kernel.split_scale()
        return self._variance() * scale, kernel

    def unfold(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Points, AnyArray]:
        kernel, points, coefficients = self.kernel.unfold(points, coefficients)
        return (self if kernel is self.kernel else Scaled(kernel, self.variance)), points, coefficients

    def _variance(self) -> Float[Array, ""]:
        return scalar(self.variance, "variance")

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = example_points(rng_key, 3)
        yield cls(RBF(0.7, 1.5), 2.0), x
        yield cls(Matern52(0.7), 0.5), x


class ProductTerm(AbstractProductKernel):
    r"""A multiple of a product of product kernels, as one product kernel: a term of a composite kernel.

    .. math:: k(x, x') = \sigma^2 \prod_i k_i(x, x')
    """

    kernels: tuple[AbstractProductKernel, ...] = eqx.field(converter=as_kernels)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    @property
    def scale(self) -> Float[Array, ""]:
        return scalar(self.variance, "variance") * reduce(operator.mul, [kernel.scale for kernel in self.kernels])

    @property
    def nonnegative(self) -> bool:
        return all(kernel.nonnegative for kernel in self.kernels)

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        return scalar(self.variance, "variance") * reduce(
            operator.mul, [kernel.evaluate(x1, x2) for kernel in self.kernels]
        )

    def evaluate_factors(self, x1: Points, x2: Points) -> Float[Array, " d"]:
        return reduce(operator.mul, [kernel.evaluate_factors(x1, x2) for kernel in self.kernels])

    def factors(self, x1: Points, x2: Points) -> Float[Array, "d n1 n2"]:
        return reduce(operator.mul, [kernel.factors(x1, x2) for kernel in self.kernels])

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return scalar(self.variance, "variance") * reduce(operator.mul, [kernel(x1, x2) for kernel in self.kernels])

    def gram(self, x: Points) -> Float[Array, "n n"]:
        return scalar(self.variance, "variance") * reduce(operator.mul, [kernel.gram(x) for kernel in self.kernels])

    def restrict(self, mask: Numbers) -> ProductTerm:
        return ProductTerm(tuple(kernel.restrict(mask) for kernel in self.kernels))


@implements("+")
def add(first: AbstractKernel | Leaf, second: AbstractKernel | Leaf) -> Sum:
    """Add two kernels, one of which may be a number or a prior of a number; nested sums are merged into one."""
    return Sum((*_summands(first), *_summands(second)))


@implements("*")
def multiply(first: AbstractKernel, second: AbstractKernel | Leaf) -> AbstractKernel:
    """Multiply a kernel by a kernel, a number or a prior of a number; nested products are merged into one."""
    if not isinstance(second, AbstractKernel):
        return Scaled(first, second)
    return Product((*_multiplicands(first), *_multiplicands(second)))


def _summands(value: AbstractKernel | Leaf) -> tuple[AbstractKernel, ...]:
    if isinstance(value, Sum):
        return value.kernels
    return (value,) if isinstance(value, AbstractKernel) else (Constant(value),)


def _multiplicands(kernel: AbstractKernel) -> tuple[AbstractKernel, ...]:
    return kernel.kernels if isinstance(kernel, Product) else (kernel,)
