"""Gaussian-process classification as a NumPyro model function."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
from jax.scipy.special import log_ndtr
from jaxtyping import Array
from numpyro import distributions as dist

from kpp.gp import (
    LINKS,
    BernoulliLikelihood,
    ExpectedBernoulli,
    LaplaceBernoulliMarginal,
    PriorMean,
    condition_on_values,
    evaluate_mean,
    prior_covariance,
    prior_factor,
)
from kpp.kernels import AbstractKernel
from kpp.priors import sample as draw_priors
from kpp.typing import Leaf
from kpp.validation import one_of

__all__ = ["INDUCING", "LATENTS", "WHITENED", "gp_classification"]

LATENTS = ("laplace", "sample", "inducing")

#: The site of the whitened latent values z if they are sampled: f = m + L z with K = L L^T.
WHITENED = "latent_whitened"
#: The site of the whitened values at inducing points.
INDUCING = "inducing_whitened"


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
        latent: "laplace" integrates f out by Laplace's approximation (one vector site ``y``), "sample" makes the
            inference sample it (n independent sites given f), "inducing" its values at inducing points, site
            ``inducing_whitened``: the rest is integrated out in a lower bound of the evidence.
        inducing_points: Inducing points, (w, d), or a prior for them, with "inducing".
        minibatch: The number of rows of a subsample, with "inducing"; None for all rows.
    """
    one_of(link, "link", LINKS)
    one_of(latent, "latent", LATENTS)
    kernel = draw_priors("kernel", kernel)
    mean = evaluate_mean(draw_priors("mean", mean), x)
    if latent == "laplace":
        numpyro.sample("y", LaplaceBernoulliMarginal(mean, prior_covariance(kernel, x), link), obs=y)
        return
    n = x.shape[0]
    if latent == "inducing":
        points = jnp.asarray(draw_priors("inducing_points", inducing_points))
        white = numpyro.sample(INDUCING, dist.Normal(0.0, 1.0).expand([points.shape[0]]).to_event(1))
        likelihood = BernoulliLikelihood(jnp.zeros(n) if y is None else y, link)  # has no effect on moments
        posterior = condition_on_values(kernel, points, white, likelihood, observed=x)
        with numpyro.plate("instance", n, subsample_size=None if minibatch is None else min(minibatch, n)) as rows:
            law = posterior.moments(x[rows])
            center = law.mean + (mean[rows] if jnp.ndim(mean) else mean)
            numpyro.sample("y", ExpectedBernoulli(center, law.variance, link), obs=None if y is None else y[rows])
        return
    white = numpyro.sample(WHITENED, dist.Normal(0.0, 1.0).expand([n]).to_event(1))
    f = mean + prior_factor(kernel.gram(x)) @ white
    with numpyro.plate("instance", n):
        numpyro.sample("y", dist.Bernoulli(logits=f if link == "logit" else log_ndtr(f) - log_ndtr(-f)), obs=y)
