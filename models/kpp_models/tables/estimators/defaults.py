"""The kernels and priors of estimators whose user gives none, in the units of the data."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpyro import distributions as dist

from kpp.kernels import RBF, AbstractKernel, default_kernel, median_heuristic
from kpp.tables import Schema

__all__ = ["fixed_kernel", "fixed_rbf", "kernel_with_constant", "kernel_with_priors", "mean_prior", "noise_prior"]

_CONSTANT = 100.0  # the variance of a constant, in multiples of the kernel's, so that it is hardly penalized

Points = Float[np.ndarray, "n d"]


def fixed_rbf(points: Points) -> RBF:
    r"""Return an RBF whose lengthscales are :math:`\sqrt d` times the median distances of the d columns."""
    return RBF(_scales(points))


def fixed_kernel(points: Points, schema: Schema) -> AbstractKernel:
    """Return `kpp.kernels.default_kernel` without priors, with the lengthscales of `fixed_rbf` on numbers."""
    return _kernel(points, schema, priors=False, variance=1.0)


def kernel_with_constant(points: Points, schema: Schema) -> AbstractKernel:
    """Return `fixed_kernel` plus a constant, for methods without an intercept."""
    return fixed_kernel(points, schema) + _CONSTANT


def kernel_with_priors(points: Points, schema: Schema, variance: float) -> AbstractKernel:
    """Return `kpp.kernels.default_kernel` with priors around the parameters of `fixed_kernel` times a variance."""
    return _kernel(points, schema, priors=True, variance=variance)


def noise_prior(variance: float) -> dist.Distribution:
    r"""Return a prior around a tenth of the targets' variance v, :math:`\log \sigma^2 \sim N(\log(v / 10), 1.5^2)`."""
    return dist.LogNormal(np.log(variance / 10), 1.5)


def mean_prior(y: Float[np.ndarray, " n"]) -> dist.Distribution:
    """Return a normal distribution with the mean and the standard deviation of the targets."""
    return dist.Normal(float(np.mean(y)), float(np.std(y)) or 1.0)


def _kernel(points: Points, schema: Schema, *, priors: bool, variance: float) -> AbstractKernel:
    numbers = [index for index, name in enumerate(schema.feature_names) if name not in schema.categories]
    scales = _scales(points[:, numbers]) if numbers else 1.0
    return default_kernel(schema, priors=priors, lengthscale=scales, variance=variance)


def _scales(points: Points) -> Float[np.ndarray, " d"]:
    return np.asarray(median_heuristic(points)) * points.shape[1] ** 0.5
