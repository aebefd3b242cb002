"""Gaussian-process regression and classification as NumPyro model functions."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
from jax.scipy.special import log_ndtr
from jaxtyping import Array
from numpyro import distributions as dist

from kpp.gp import (
    LINKS,
    GaussianProcessMarginal,
    InducingBound,
    LaplaceBernoulliMarginal,
    PriorMean,
    evaluate_mean,
    few_features,
    inducing_features,
    prior_covariance,
    prior_factor,
)
from kpp.kernels import AbstractKernel
from kpp.priors import sample as draw_priors
from kpp.typing import AnyArray, Leaf
from kpp.validation import one_of

__all__ = ["LATENTS", "REGRESSION_LATENTS", "WHITENED", "gp_classification", "gp_regression"]

LATENTS = ("laplace", "sample")
REGRESSION_LATENTS = ("exact", "inducing")

#: The site of the whitened latent values z if they are sampled: f = m + L z with K = L L^T.
WHITENED = "latent_whitened"


def gp_regression(
    x: Array,
    y: Array | None,
    kernel: AbstractKernel,
    noise_variance: Leaf,
    mean: PriorMean | Leaf = 0.0,
    row_variances: Array | None = None,
    inducing_points: Leaf | None = None,
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
            `kpp.gp.InducingBound`. None for the exact evidence.
    """
    kernel = draw_priors("kernel", kernel)
    noise = draw_priors("noise_variance", noise_variance)
    center = evaluate_mean(draw_priors("mean", mean), x)
    noise = noise if row_variances is None else noise + row_variances
    if inducing_points is None:
        numpyro.sample("y", _marginal(x, kernel, noise, center), obs=y)
        return
    _, features, rest = inducing_features(kernel, draw_priors("inducing_points", inducing_points), x)
    numpyro.sample("y", InducingBound(center, features, noise, rest), obs=y)


def _marginal(x: Array, kernel: AbstractKernel, noise_variance: Leaf, mean: AnyArray) -> dist.Distribution:
    """Return the law of the targets: by features if the kernel has few of them, else by the kernel matrix."""
    features = few_features(kernel, x, noise_variance)
    if features is None:
        return GaussianProcessMarginal(mean, kernel.gram(x), noise_variance)
    center, noise = (jnp.broadcast_to(value, features.shape[:1]) for value in (mean, noise_variance))
    return dist.LowRankMultivariateNormal(center, features, noise)


def gp_classification(
    x: Array,
    y: Array | None,
    kernel: AbstractKernel,
    mean: PriorMean | Leaf = 0.0,
    link: str = "logit",
    latent: str = "laplace",
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
        latent: "laplace" integrates f out by Laplace's approximation (one vector site ``y``), "sample" makes the
            inference sample it (n independent sites given f).
    """
    one_of(link, "link", LINKS)
    one_of(latent, "latent", LATENTS)
    kernel = draw_priors("kernel", kernel)
    mean = evaluate_mean(draw_priors("mean", mean), x)
    if latent == "laplace":
        numpyro.sample("y", LaplaceBernoulliMarginal(mean, prior_covariance(kernel, x), link), obs=y)
        return
    n = x.shape[0]
    white = numpyro.sample(WHITENED, dist.Normal(0.0, 1.0).expand([n]).to_event(1))
    f = mean + prior_factor(kernel.gram(x)) @ white
    with numpyro.plate("instance", n):
        numpyro.sample("y", dist.Bernoulli(logits=f if link == "logit" else log_ndtr(f) - log_ndtr(-f)), obs=y)
