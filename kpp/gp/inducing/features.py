"""The features of points by a few inducing points: the kernel between both, whitened."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.gp.laws.gaussian_laws import with_nugget
from kpp.kernels import AbstractKernel
from kpp.linalg.cholesky import whiten
from kpp.typing import Points


def inducing_features(
    kernel: AbstractKernel, inducing: Points, points: Points
) -> tuple[Float[Array, "w w"], Float[Array, "n w"], Float[Array, " n"]]:
    r"""Return the features of points by inducing points, and the variances that these do not explain.

    Returns:
        :math:`R = L^{-1}` for the factor L of :math:`K_{ww}` with its nugget, the features
        :math:`\Phi = K_{nw} R^\top` and :math:`r_i = k(x_i, x_i) - \|\phi_i\|^2`, at least 0.
    """
    whitener, features = whiten(with_nugget(kernel.gram(inducing)), kernel(points, inducing))
    return whitener, features, jnp.maximum(kernel.diagonal(points) - jnp.sum(features**2, axis=1), 0.0)
