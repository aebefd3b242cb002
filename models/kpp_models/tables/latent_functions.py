"""The law of several latent functions under one draw."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy import linalg as jsl
from jaxtyping import Array, Float

from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.toolkit import LatentPredictive, draw_joint, inducing_features, prior_factor
from kpp.kernels import AbstractKernel
from kpp.typing import RngKey


class LatentFunctions(NamedTuple):
    r"""L independent functions given whitened values z at w points: :math:`f_l = m_l + s_l\, \phi(x)^\top z_l` + rest.

    The features are :math:`\phi(x) = R^{-1} k(Z, x)`, :math:`R R^\top = K_{ww}`; mean m and scale s are numbers or
    (l,).
    """

    kernel: AbstractKernel
    points: Array
    white: Array
    mean: Array
    scale: Array

    def moments(self, x: Array) -> tuple[Float[Array, "p l"], Float[Array, "p l"]]:
        """Return means and variances at points, each (p, l)."""
        _, features, rest = inducing_features(self.kernel, self.points, x)
        return self._values(features @ self.white), jnp.square(self._each(self.scale))[None] * rest[:, None]

    def at_points(self) -> Float[Array, "w l"]:
        """Return the values at Z, which the whitened values determine."""
        return self._values(prior_factor(self.kernel.gram(self.points)) @ self.white)  # phi(Z)^T z = R z

    def draw(self, rng_key: RngKey, x: Array) -> Float[Array, "p l"]:
        """Draw the values of all functions at p points, jointly."""
        _, features, rest = inducing_features(self.kernel, self.points, x)
        # What Z leaves over is independent between functions, so that all of them share one covariance up to scales.
        covariance = self.kernel.gram(x) - jnp.matmul(features, features.T, precision="highest")
        law = LatentPredictive(jnp.zeros_like(rest), rest, covariance)
        level = jnp.mean(self.kernel.diagonal(x))
        keys = jax.random.split(rng_key, self.white.shape[1])
        further = jax.vmap(lambda key: draw_joint(key, law, level), out_axes=1)(keys)
        return self._values(features @ self.white + further)

    def posterior(self, mixing: Float[Array, "p l"]) -> GPPosterior:
        """Return the law of the functions that the observations depend on, the mixtures, as p outputs."""
        factor = prior_factor(self.kernel.gram(self.points))
        root = jsl.solve_triangular(factor, jnp.eye(factor.shape[0], dtype=factor.dtype), lower=True, trans=1)
        scaled = mixing * self._each(self.scale)[None]
        coefficients = root @ self.white @ scaled.T  # phi(x)^T z = k(x, Z) R^-T z
        function = RKHSFunction(self.kernel, self.points, coefficients, mixing @ self._each(self.mean))
        return GPPosterior(function, root, scaled @ scaled.T)

    def _values(self, standard: Float[Array, "p l"]) -> Float[Array, "p l"]:
        """Return values with means and scales, from those of the functions with mean 0 and scale 1."""
        return self._each(self.mean)[None] + self._each(self.scale)[None] * standard

    def _each(self, value: Array) -> Float[Array, " l"]:
        return jnp.broadcast_to(value, self.white.shape[1:])
