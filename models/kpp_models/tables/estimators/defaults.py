"""The kernels and priors of estimators whose user gives none, in the units of the data."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpyro import distributions as dist

from kpp.data.tables import Schema
from kpp.kernels import RBF, AbstractKernel, default_kernel, median_heuristic

_CONSTANT = 100.0  # the variance of a constant, in multiples of the kernel's, so that it is hardly penalized

Points = Float[np.ndarray, "n d"]


def fixed_rbf(points: Points) -> RBF:
    r"""Return an RBF whose lengthscales are :math:`\sqrt d` times the median distances of the d columns."""
    return RBF(_scales(points))


def scaled_kernel(points: Points, schema: Schema, *, priors: bool = False, variance: float = 1.0) -> AbstractKernel:
    """Return `kpp.kernels.default_kernel` at, or with priors around, the lengthscales of `fixed_rbf` on numbers."""
    numbers = [index for index, name in enumerate(schema.feature_names) if name not in schema.categories]
    scales = _scales(points[:, numbers]) if numbers else 1.0
    return default_kernel(schema, priors=priors, lengthscale=scales, variance=variance)


def kernel_with_constant(points: Points, schema: Schema) -> AbstractKernel:
    """Return `scaled_kernel` plus a constant, for methods without an intercept."""
    return scaled_kernel(points, schema) + _CONSTANT


def target_variance(y: Float[np.ndarray, " n"]) -> float:
    """Return the variance of the targets, finite and positive; 1 if all are equal, where it may be a rounding error."""
    if np.ptp(y) == 0:
        return 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        variance = float(np.var(y))
    if not 0 < variance < np.inf:
        raise ValueError(
            f"`y` must have a variance within the range of double precision, got numbers from {np.min(y):.3g} to "
            f"{np.max(y):.3g}; choose another unit"
        )
    return variance


def noise_prior(variance: float) -> dist.Distribution:
    r"""Return a prior with the median v / 10, :math:`\sigma^2 \sim \mathrm{InverseGamma}(1/2, 0.0227 v)`.

    It keeps away from 0: the density of targets without noise has no maximum under a prior that does not. v is the
    variance of the targets.
    """
    return dist.InverseGamma(0.5, 0.0227 * variance)  # v / 10 times 0.227, the median of Gamma(1/2, 1)


def _scales(points: Points) -> Float[np.ndarray, " d"]:
    return np.asarray(median_heuristic(points)) * points.shape[1] ** 0.5  # squared distances grow with d
