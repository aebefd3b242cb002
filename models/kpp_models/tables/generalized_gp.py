"""Gaussian processes with any likelihood of one latent value: the NumPyro model function, and the posterior."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
from jaxtyping import Array

from kpp.foundation.validation import one_of
from kpp.gp import AbstractPointwiseLikelihood, LaplaceMarginal, condition, condition_on_values
from kpp.gp.toolkit import (
    INDUCING,
    WHITENED,
    ConditionedProcess,
    LatentParts,
    PriorMean,
    evaluate_mean,
    inducing_features,
    observe_inducing,
    observe_sampled,
    prior_covariance,
    prior_factor,
)
from kpp.inference import Data
from kpp.inference.toolkit import Sample
from kpp.kernels import AbstractKernel
from kpp.priors import sample as draw_priors
from kpp.typing import Leaf

LATENTS = ("laplace", "sample", "inducing")


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
    n = x.shape[0]
    if latent == "laplace":
        law = LaplaceMarginal(mean, prior_covariance(kernel, x), likelihood, whitened=WHITENED)
        numpyro.sample("y", law, obs=y)
        return
    if latent == "sample":
        observe_sampled(likelihood, lambda white: mean + prior_factor(kernel.gram(x)) @ white, (n,), y)
        return
    points = jnp.asarray(draw_priors("inducing_points", inducing_points))

    def parts(rows: Array) -> LatentParts:
        _, features, rest = inducing_features(kernel, points, x[rows])
        return LatentParts(mean[rows] if jnp.ndim(mean) else mean, features, rest)

    observe_inducing(likelihood, parts, points.shape[:1], n, y, minibatch)


def generalized_posterior(
    sample: Sample,
    data: Data,
    kernel: AbstractKernel,
    likelihood: AbstractPointwiseLikelihood,
    mean: PriorMean,
    latent: str,
    inducing_points: Leaf | None,
) -> ConditionedProcess:
    r"""Return the posterior of f under one draw; the arguments are those of `generalized_gp`, without priors.

    With ``latent="laplace"``, :math:`R R^\top = W^{1/2} B^{-1} W^{1/2} = (K + W^{-1})^{-1}` (Rasmussen and Williams
    2006, equations 3.24 and 3.27), an approximation. With ``latent="sample"`` it is conditioned on the latent values
    that are drawn, :math:`R R^\top = K^{-1}`, so that the variance at the training points is 0; this also holds for
    draws of ``kpp.Laplace(importance=True)``. With
    ``latent="inducing"`` it is conditioned on the values at the inducing points.
    """
    if latent == "laplace" and WHITENED not in sample:
        return condition(kernel, data["x"], likelihood, mean)
    if inducing_points is not None:
        white = sample[INDUCING]
        return condition_on_values(kernel, inducing_points, white, likelihood, mean, observed=data["x"])
    return condition_on_values(kernel, data["x"], sample[WHITENED], likelihood, mean)


def latent_dims() -> dict[str, tuple[str, ...]]:
    """Name the axes of the whitened latent values, which belong to the rows, and of the inducing points."""
    return {
        WHITENED: ("instance",),
        INDUCING: ("inducing_point",),
        "inducing_points": ("inducing_point", "feature"),
    }
