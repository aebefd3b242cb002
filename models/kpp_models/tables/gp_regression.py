"""Gaussian-process regression as a NumPyro model function."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
from jaxtyping import Array
from numpyro import distributions as dist

from kpp.gp import GaussianProcessMarginal, IterativeSettings
from kpp.gp.toolkit import (
    InducingBound,
    IterativeMarginal,
    IterativeSystem,
    PriorMean,
    evaluate_mean,
    few_features,
    inducing_features,
)
from kpp.kernels import AbstractKernel
from kpp.priors import sample as draw_priors
from kpp.typing import AnyArray, Leaf

LATENTS = ("exact", "inducing", "iterative")


def gp_regression(
    x: Array,
    y: Array | None,
    kernel: AbstractKernel,
    noise_variance: Leaf,
    mean: PriorMean | Leaf = 0.0,
    row_variances: Array | None = None,
    inducing_points: Leaf | None = None,
    iterative: IterativeSettings | None = None,
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
        iterative: Settings, for the estimate of the evidence by conjugate gradients,
            `kpp.gp.toolkit.IterativeMarginal`.
    """
    kernel = draw_priors("kernel", kernel)
    noise = draw_priors("noise_variance", noise_variance)
    center = evaluate_mean(draw_priors("mean", mean), x)
    noise = noise if row_variances is None else noise + row_variances
    if iterative is not None:
        law: dist.Distribution = IterativeMarginal(center, IterativeSystem.create(kernel, x, noise, iterative))
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
    center, noise = (jnp.broadcast_to(value, features.shape[:1]) for value in (mean, noise_variance))
    return dist.LowRankMultivariateNormal(center, features, noise)
