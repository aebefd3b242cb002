"""Gaussian-process classification as a NumPyro model function."""

from __future__ import annotations

from jaxtyping import Array

from kpp.gp import BernoulliLikelihood
from kpp.gp.toolkit import PriorMean
from kpp.kernels import AbstractKernel
from kpp.typing import Leaf
from kpp_models.tables.generalized_gp import generalized_gp


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
    generalized_gp(x, y, kernel, BernoulliLikelihood(link=link), mean, latent, inducing_points, minibatch)
