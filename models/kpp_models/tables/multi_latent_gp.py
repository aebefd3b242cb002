"""Gaussian processes with several latent functions: the NumPyro model function, and their law under one draw."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy import linalg as jsl
from jaxtyping import Array, Float

from kpp.foundation.validation import one_of
from kpp.functions import RKHSFunction
from kpp.gp.toolkit import (
    AbstractMultiLatentLikelihood,
    LatentParts,
    LatentPredictive,
    draw_joint,
    inducing_features,
    observe_inducing,
    observe_sampled,
    prior_factor,
)
from kpp.kernels import AbstractKernel
from kpp.priors import sample as draw_priors
from kpp.typing import Leaf, RngKey

MULTI_LATENTS = ("sample", "inducing")


class LatentFunctions(NamedTuple):
    r"""L independent functions given whitened values z at w points: :math:`f_l = m_l + s_l\, \phi(x)^\top z_l` + rest.

    The features are :math:`\phi(x) = R^{-1} k(Z, x)`, :math:`R R^\top = K_{ww}`.

    Attributes:
        kernel: k.
        points: Z, (w, d).
        white: z, (w, l).
        mean: m, a number or (l,).
        scale: s, a number or (l,).
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
        return self._values(prior_factor(self.kernel.gram(self.points)) @ self.white)

    def draw(self, rng_key: RngKey, x: Array) -> Float[Array, "p l"]:
        """Draw the values of all functions at p points, jointly."""
        _, features, rest = inducing_features(self.kernel, self.points, x)
        covariance = self.kernel.gram(x) - jnp.matmul(features, features.T, precision="highest")
        law = LatentPredictive(jnp.zeros_like(rest), rest, covariance)
        level = jnp.mean(self.kernel.diagonal(x))
        keys = jax.random.split(rng_key, self.white.shape[1])
        further = jax.vmap(lambda key: draw_joint(key, law, level), out_axes=1)(keys)
        return self._values(features @ self.white + further)

    def function(self) -> RKHSFunction:
        """Return the means as one function with l outputs."""
        factor = prior_factor(self.kernel.gram(self.points))
        coefficients = jsl.solve_triangular(factor, self.white, lower=True, trans=1)
        return RKHSFunction(
            self.kernel, self.points, coefficients * self._each(self.scale)[None], self._each(self.mean)
        )

    def _values(self, standard: Float[Array, "p l"]) -> Float[Array, "p l"]:
        """Return values with means and scales, from those of the functions with mean 0 and scale 1."""
        return self._each(self.mean)[None] + self._each(self.scale)[None] * standard

    def _each(self, value: Array) -> Float[Array, " l"]:
        return jnp.broadcast_to(value, self.white.shape[1:])


def multi_latent_gp(
    x: Array,
    y: Array | None,
    kernel: AbstractKernel,
    likelihood: AbstractMultiLatentLikelihood,
    mean: Leaf = 0.0,
    scale: Leaf = 1.0,
    latent: str = "sample",
    inducing_points: Leaf | None = None,
    minibatch: int | None = None,
) -> None:
    r"""Observations that depend on several latent functions, as a NumPyro model function.

    .. math:: y_i \sim p(y_i \mid f_1(x_i), \ldots, f_L(x_i)), \qquad f_l \sim GP(m_l, s_l^2 k) \text{ independently}

    The sites are those of the priors in `kernel`, `likelihood`, `mean` and `scale`, the observed site ``y``, and
    ``latent_whitened``, (n, L), or ``inducing_whitened``, (w, L).

    Args:
        x: The points, of shape (n, d).
        y: The observations, (n, ...), or None to draw them.
        kernel: k, with or without priors among its leaves.
        likelihood: p(y | f) without the observations, with or without priors among its leaves.
        mean: m, a number or (L,), or a prior.
        scale: s, positive, a number or (L,), or a prior.
        latent: "sample" makes the inference sample the latent values at the points, "inducing" those at inducing
            points: the rest is integrated out in a lower bound of the evidence.
        inducing_points: Inducing points, (w, d), or a prior for them, with "inducing".
        minibatch: The number of rows of a subsample, with "inducing"; None for all rows.
    """
    one_of(latent, "latent", MULTI_LATENTS)
    kernel, likelihood = draw_priors("kernel", kernel), draw_priors("likelihood", likelihood)
    mean, scale = draw_priors("mean", mean), draw_priors("scale", scale)
    n, count = x.shape[0], likelihood.num_latents
    if latent == "sample":
        observe_sampled(likelihood, lambda z: LatentFunctions(kernel, x, z, mean, scale).at_points(), (n, count), y)
        return
    points = jnp.asarray(draw_priors("inducing_points", inducing_points))

    def parts(rows: Array) -> LatentParts:
        _, features, rest = inducing_features(kernel, points, x[rows])
        return LatentParts(jnp.broadcast_to(mean, (1, count)), features, rest, jnp.broadcast_to(scale, (count,)))

    observe_inducing(likelihood, parts, (points.shape[0], count), n, y, minibatch)
