"""The Gaussian processes of tables as NumPyro model functions, for models of one's own."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
from jax.scipy import linalg as jsl
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.foundation.validation import one_of
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp import (
    AbstractPointwiseLikelihood,
    BernoulliLikelihood,
    GaussianProcessMarginal,
    IterativeSettings,
    LaplaceMarginal,
)
from kpp.gp.toolkit import (
    WHITENED,
    AbstractMultiLatentLikelihood,
    InducingBound,
    IterativeMarginal,
    IterativeSystem,
    LatentParts,
    LatentPredictive,
    PriorMean,
    draw_joint,
    evaluate_mean,
    few_features,
    inducing_features,
    observe_inducing,
    observe_sampled,
    prior_covariance,
    prior_factor,
    quasiseparable_marginal,
)
from kpp.kernels import AbstractKernel
from kpp.priors import sample as draw_priors
from kpp.typing import AnyArray, Leaf, RngKey

LATENTS = ("laplace", "sample", "inducing")
MULTI_LATENTS = ("sample", "inducing")


def gp_regression(
    x: Array,
    y: Array | None,
    kernel: AbstractKernel,
    noise_variance: Leaf,
    mean: PriorMean | Leaf = 0.0,
    row_variances: Array | None = None,
    inducing_points: Leaf | None = None,
    iterative: IterativeSettings | None = None,
    quasiseparable: bool = False,
) -> None:
    r"""Gaussian-process regression as a NumPyro model function.

    .. math:: y \sim N(m(X),\; k(X, X) + \sigma^2 I + \mathrm{diag}(s))

    The sites are those of the priors in `kernel`, `noise_variance` and `mean` (``kernel.lengthscale``, ...) and the
    observed site ``y``, one vector. If the kernel has q < n finite features, time is of order n q^2 and no kernel
    matrix is made.

    Args:
        x: The points, of shape (n, d).
        y: The targets, of shape (n,), or None to draw them.
        kernel: k, with or without priors among its leaves.
        noise_variance: :math:`\sigma^2`, the variance of the observation noise, a number or a prior.
        mean: m, the prior mean: a number, a prior, or a function of the points, which may hold priors.
        row_variances: s, what the variance of each row has in addition, (n,), or None.
        inducing_points: Inducing points, (w, d), or a prior for them: y then has the density of the collapsed bound,
            `kpp.gp.toolkit.InducingBound`. None for the exact evidence.
        iterative: Settings, of the estimated evidence, `kpp.gp.toolkit.IterativeMarginal`.
        quasiseparable: Whether x is one column in ascending order, of which the evidence takes linear time by tinygp.
    """
    kernel = draw_priors("kernel", kernel)
    noise = draw_priors("noise_variance", noise_variance)
    center = evaluate_mean(draw_priors("mean", mean), x)
    noise = noise if row_variances is None else noise + row_variances
    if quasiseparable:
        law: dist.Distribution = quasiseparable_marginal(kernel, x, noise, center)
    elif iterative is not None:
        law = IterativeMarginal(center, IterativeSystem.create(kernel, x, noise, iterative))
    elif inducing_points is None:
        law = _marginal(x, kernel, noise, center)
    else:
        _, features, rest = inducing_features(kernel, draw_priors("inducing_points", inducing_points), x)
        law = InducingBound(center, features, noise, rest)
    numpyro.sample("y", law, obs=y)


def _marginal(x: Array, kernel: AbstractKernel, noise_variance: Leaf, mean: AnyArray) -> dist.Distribution:
    """Return the law of the targets: by features if the kernel has few of them, else by the kernel matrix."""
    features = few_features(kernel, x, noise_variance)
    if features is None:
        return GaussianProcessMarginal(mean, kernel.gram(x), noise_variance)
    # NumPyro's law takes a vector of means and one of variances, never one number for all rows.
    center, noise = (jnp.broadcast_to(value, features.shape[:1]) for value in (mean, noise_variance))
    return dist.LowRankMultivariateNormal(center, features, noise)


def gp_classification(
    x: Array,
    y: Array | None,
    kernel: AbstractKernel,
    mean: PriorMean | Leaf = 0.0,
    link: str = "logit",
    latent: str = "laplace",
    inducing_points: Leaf | None = None,
    minibatch: int | None = None,
) -> None:
    r"""Gaussian-process classification as a NumPyro model function.

    .. math:: y_i \sim \mathrm{Bernoulli}(\sigma(f(x_i))), \qquad f \sim GP(m, k)

    The sites are those of the priors in `kernel` and `mean`, the observed site ``y``, and for ``latent="sample"`` the
    site ``latent_whitened``, of shape (n,).

    Args:
        x: The points, of shape (n, d).
        y: Labels in {0, 1}, of shape (n,), or None to draw them.
        kernel: k, with or without priors among its leaves.
        mean: m, the prior mean of f: a number, a prior, or a function of the points, which may hold priors.
        link: "logit" or "probit".
        latent: As for `generalized_gp`.
        inducing_points: Inducing points, (w, d), or a prior for them.
        minibatch: The number of rows of a subsample.
    """
    generalized_gp(x, y, kernel, BernoulliLikelihood(link=link), mean, latent, inducing_points, minibatch)


def generalized_gp(
    x: Array,
    y: Array | None,
    kernel: AbstractKernel,
    likelihood: AbstractPointwiseLikelihood,
    mean: PriorMean | Leaf = 0.0,
    latent: str = "laplace",
    inducing_points: Leaf | None = None,
    minibatch: int | None = None,
) -> None:
    r"""Observations of a Gaussian process with any likelihood, as a NumPyro model function.

    .. math:: y_i \sim p(y_i \mid f(x_i)), \qquad f \sim GP(m, k)

    The sites are those of the priors in `kernel`, `likelihood` and `mean`, the observed site ``y``, and for
    ``latent="sample"`` the site ``latent_whitened``, of shape (n,).

    Args:
        x: The points, of shape (n, d).
        y: The observations, of shape (n,), or None to draw them.
        kernel: k, with or without priors among its leaves.
        likelihood: p(y | f) without the observations, with or without priors among its leaves.
        mean: m, the prior mean of f: a number, a prior, or a function of the points, which may hold priors.
        latent: "laplace" integrates f out by Laplace's approximation (one vector site ``y``), "sample" makes the
            inference sample it (n independent sites given f), "inducing" its values at inducing points, site
            ``inducing_whitened``: the rest is integrated out in a lower bound of the evidence.
        inducing_points: Inducing points, (w, d), or a prior for them, with "inducing".
        minibatch: The number of rows of a subsample, with "inducing"; None for all rows.
    """
    one_of(latent, "latent", LATENTS)
    kernel = draw_priors("kernel", kernel)
    likelihood = draw_priors("likelihood", likelihood)
    mean = evaluate_mean(draw_priors("mean", mean), x)
    observe_process(x, y, kernel, likelihood, mean, latent, inducing_points, minibatch)


def observe_process(
    x: Any,
    y: Array | None,
    kernel: AbstractKernel,
    likelihood: AbstractPointwiseLikelihood,
    mean: Array | float,
    latent: str | None,
    inducing: Any = None,
    minibatch: int | None = None,
) -> None:
    """Observe a process without priors at a batch of points, as `generalized_gp` does; None is "laplace".

    The mean is one number, or one for each point. Inducing points are a batch, or a prior for an array.
    """
    n = num_rows(x)
    if latent in (None, "laplace"):
        law = LaplaceMarginal(mean, prior_covariance(kernel, x), likelihood, whitened=WHITENED)
        numpyro.sample("y", law, obs=y)
        return
    if latent == "sample":
        observe_sampled(likelihood, lambda white: mean + prior_factor(kernel.gram(x)) @ white, (n,), y)
        return
    points = draw_priors("inducing_points", inducing)

    def parts(rows: Array) -> LatentParts:
        _, features, rest = inducing_features(kernel, points, jax.tree.map(lambda leaf: leaf[rows], x))
        return LatentParts(jnp.asarray(mean)[rows] if jnp.ndim(mean) else mean, features, rest)

    observe_inducing(likelihood, parts, (num_rows(points),), n, y, minibatch)


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
        inducing_points: As for `generalized_gp`.
        minibatch: As for `generalized_gp`.
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


def num_rows(batch: Any) -> int:
    """Return the number of points of a batch."""
    return jax.tree.leaves(batch)[0].shape[0]


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
