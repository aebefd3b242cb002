"""A kernel for categories coded as integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.kernels.base import AbstractKernel, AbstractScaledProduct
from kpp.kernels.checks import check_points
from kpp.kernels.parameters import check_in_unit_interval, check_non_negative, parameter, per_feature
from kpp.typing import Leaf, RngKey


class Categorical(AbstractScaledProduct):
    r"""A kernel for features that are categories, coded as integers in columns of floats; a product kernel.

    .. math:: k(x, x') = \sigma^2 \prod_j \big(\rho_j + (1 - \rho_j)\, 1\{x_j = x'_j\}\big)

    Any two different categories of feature j have the correlation :math:`\rho_j`: with 0 they are independent, with 1
    the feature is irrelevant. The kernel is positive semi-definite for any number of categories: each factor is
    :math:`\rho_j` times the constant kernel plus :math:`1 - \rho_j` times the identity. Codes are compared for
    equality, so their order and size mean nothing, and the gradient with respect to them is 0.

    Args:
        correlation: :math:`\rho`, one number or shape (d,), from 0 to 1, or a prior such as ``Beta(1, 1)``.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior.

    Example:
        >>> kpp.kernels.Categorical(correlation=0.25).gram(np.array([[0.0], [1.0]])).tolist()
        [[1.0, 0.25], [0.25, 1.0]]
    """

    correlation: Leaf = eqx.field(converter=parameter("correlation"), default=0.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def __check_init__(self) -> None:
        check_in_unit_interval(self.correlation, "correlation")
        check_non_negative(self.variance, "variance")

    def evaluate_factors(self, x1: Array, x2: Array) -> Float[Array, " d"]:
        r"""Return 1 where the codes agree and :math:`\rho_j` elsewhere, for two points of shape (d,)."""
        correlation = per_feature(self.correlation, "correlation", check_points(self, x1, x2))
        return jnp.where(x1 == x2, jnp.ones_like(x1), jnp.broadcast_to(correlation, x1.shape))

    def features_as_numbers(self, features: Sequence[str]) -> frozenset[str]:
        return frozenset()  # codes are only compared for equality

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        codes = jax.random.randint(rng_key, (6, 3), 0, 3).astype(jnp.result_type(float))
        yield cls(correlation=0.3, variance=1.3), codes
        yield cls(correlation=jnp.array([0.0, 0.5, 1.0])), codes
