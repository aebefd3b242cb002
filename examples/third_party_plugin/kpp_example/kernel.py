"""A new kernel: it needs only one function of two points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from kpp.kernels import AbstractKernel, parameter
from kpp.typing import Leaf


class Cosine(AbstractKernel):
    r"""The cosine kernel. Its functions are single waves with random amplitude and phase.

    .. math:: k(x, x') = \sigma^2 \cos\Big(\sum_j (x_j - x'_j) / \ell_j\Big)

    Args:
        lengthscale: :math:`\ell`, a scalar or one per feature, (d,), or a prior.
        variance: :math:`\sigma^2`, a scalar or a prior.

    References:
        Rasmussen and Williams (2006), "Gaussian Processes for Machine Learning", section 4.2.1.
    """

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"))
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def evaluate(self, x1: Any, x2: Any) -> jax.Array:
        return self.variance * jnp.cos(jnp.sum((x1 - x2) / self.lengthscale))

    @classmethod
    def examples(cls, rng_key: jax.Array) -> Iterator[tuple[Cosine, jax.Array]]:
        """Yield (kernel, inputs): a scalar lengthscale, and one lengthscale per feature."""
        x = jax.random.normal(rng_key, (5, 2))
        yield cls(lengthscale=1.5), x
        yield cls(lengthscale=jnp.array([0.7, 2.0]), variance=3.0), x
