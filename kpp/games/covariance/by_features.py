r"""Covariances of Shapley values under a process of finite rank, from the Shapley values of its features.

Under Nyström's kernel a function is a combination of finitely many features, :math:`f = \mu + w^\top \varphi` with
independent standard normal weights before the data, each feature a function of the RKHS of the base kernel. With the
Shapley values :math:`\Phi_x` of the features,

.. math:: \mathrm{Cov}(\phi(x), \phi(x')) = \Phi_x \Phi_{x'}^\top - \Phi_x B B^\top \Phi_{x'}^\top, \qquad
    B = \varphi(X)^\top R,

for any number of rows that the model was fitted to, and for any game that can explain the base kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.features import Nystrom
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.linalg.toolkit import symmetric_root

ExactValues = Callable[[RKHSFunction, Float[Array, "p d"]], Float[Array, "p g r"]]


def feature_covariance(
    exact_values: ExactValues, process: GPPosterior, x: Float[Array, "p d"], x_other: Float[Array, "q d"] | None
) -> Float[Array, "..."]:
    r"""Compute the covariances of Shapley values under a posterior whose kernel is `kpp.features.Nystrom`.

    `exact_values` computes the Shapley values of the features, outputs of one function, at points. The result has shape
    (\*draws, p, g, g) for points x (p, d), and (\*draws, p, q, g, g) across them and other points (q, d).
    """

    def of_draw(draw: GPPosterior) -> Array:
        features, root = _features(draw)
        first = exact_values(features, x)
        second = first if x_other is None else exact_values(features, x_other)
        pattern = "pgr,phr->pgh" if x_other is None else "pgr,qhr->pqgh"
        prior = jnp.einsum(pattern, first, second, precision="highest")
        return prior - jnp.einsum(pattern, first @ root, second @ root, precision="highest")

    return process.map_draws(of_draw)


def feature_root(exact_values: ExactValues, process: GPPosterior, x: Float[Array, "p d"]) -> Float[np.ndarray, "p g r"]:
    r"""Compute :math:`\Phi (I - BB^\top)^{1/2}` for points x (p, d) under one such posterior.

    The covariance of the values of two points is the product of their roots, (g, r) each.
    """
    features, root = _compiled_features(process)
    if np.isnan(root).any():
        _features(process)  # raises: the kernel matrix of the landmarks has no factorization
    weights = np.eye(root.shape[0]) - np.asarray(jnp.matmul(root, root.T, precision="highest"))
    return np.asarray(exact_values(features, x)) @ symmetric_root(weights)


def _features(process: GPPosterior) -> tuple[RKHSFunction, Float[Array, "r k"]]:
    """Return the features as the outputs of one function, and B."""
    kernel = process.mean.kernel
    assert isinstance(kernel, Nystrom)  # the caller has checked this
    features = kernel.function(jnp.eye(kernel.landmarks.shape[0]))
    return features, jnp.matmul(kernel.feature_map(process.mean.points).T, process.root, precision="highest")


_compiled_features = eqx.filter_jit(_features)
