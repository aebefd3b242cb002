"""The Tanimoto kernel of fingerprints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.kernels import AbstractKernel, check_non_negative, parameter, scalar
from kpp.kernels.toolkit import AbstractBatchKernel, check_matrices
from kpp.typing import Leaf, Points, RngKey


class Tanimoto(AbstractBatchKernel):
    r"""The Tanimoto kernel, on fingerprints: rows of counts, or of zeros and ones.

    .. math:: k(x, x') = \sigma^2 \frac{\langle x, x' \rangle}{|x|^2 + |x'|^2 - \langle x, x' \rangle}

    For zeros and ones the fraction is the Jaccard index, the size of the intersection of two sets divided by the size
    of their union. Two fingerprints without any entry are equal: there the fraction is defined as 1. The kernel is
    positive semi-definite at all real vectors, because the fraction is a sum of products of kernels,
    :math:`\sum_{r \ge 1} \bigl(\langle x, x' \rangle / (|x|^2 + |x'|^2)\bigr)^r`.

    Args:
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior.

    Example:
        >>> from kpp_structures import Tanimoto
        >>> Tanimoto()(np.array([[1.0, 1.0, 0.0]]), np.array([[1.0, 0.0, 1.0]])).round(2)
        Array([[0.33]], dtype=float64)

    References:
        Ralaivola, Swamidass, Saigo and Baldi, Graph kernels for chemical informatics, 2005, section 4.2.
    """

    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def __check_init__(self) -> None:
        check_non_negative(self.variance, "variance")

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        check_matrices(self, x1, x2)
        common = jnp.matmul(x1, x2.T, precision=jax.lax.Precision.HIGHEST)
        union = jnp.sum(x1 * x1, axis=1)[:, None] + jnp.sum(x2 * x2, axis=1)[None, :] - common
        one = jnp.ones_like(union)
        fraction = jnp.where(union == 0, one, common / jnp.where(union == 0, one, union))
        return scalar(self.variance, "variance") * fraction

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        return scalar(self.variance, "variance"), Tanimoto(jnp.ones_like(self.variance))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        counts = jax.random.poisson(rng_key, 1.0, (6, 5)).astype(jnp.result_type(float))
        yield cls(variance=1.3), counts.at[2].set(0.0)
