r"""Queries about effects of interventions: which treatment is best, and how two treatments differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kpp.foundation.validation import as_points
from kpp.inference import AbstractModel, Data, Fit
from kpp.inference.toolkit import Sample
from kpp.typing import Numbers, RngKey

if TYPE_CHECKING:
    import xarray as xr


def argmin_posterior(
    rng_key: RngKey, fit: Fit, grid: Numbers, num_samples: int, *, maximize: bool = False
) -> xr.DataArray:
    r"""Return the probability that each treatment of a grid has the lowest effect.

    .. math:: P\bigl(g(x_j) = \min_i g(x_i) \mid D\bigr), \qquad g(x) = E[T \mid do(X = x)]

    It is the share of joint draws of g on the grid with their minimum there. Each draw is from the Gaussian with the
    moments of g, under one posterior draw of the hyperparameters.

    Args:
        rng_key: A JAX random key.
        fit: A fit of a model of effects, such as `kpp_models.BayesIMP`.
        grid: The p treatments, (p, d) or a data frame.
        num_samples: The number of draws.
        maximize: Whether to return the probability of the highest effect.

    Returns:
        The probabilities, dims (instance,), which sum to 1.

    Raises:
        ValueError: If the grid or the number of draws is invalid.
    """
    draws = fit.sample_predictive(rng_key, grid, num_samples)
    best = (-draws if not maximize else draws).argmax("instance")
    counts = np.bincount(best.values, minlength=draws.sizes["instance"])
    shares = draws.isel(sample=0, drop=True).copy(data=counts / num_samples)
    return shares.rename("probability")


def contrast(fit: Fit, x: Numbers, other: Numbers) -> xr.Dataset:
    r"""Return the posterior of differences between the effects of treatments.

    .. math::

        E[g(x_i) - g(x'_i)], \qquad \mathrm{var} = \kappa(x_i, x_i) - 2 \kappa(x_i, x'_i) + \kappa(x'_i, x'_i)

    The two effects are learned from the same data, so the variance of their difference is often smaller than that of
    either effect.

    Args:
        fit: A fit of a model of effects, such as `kpp_models.BayesIMP`.
        x: The p treatments, (p, d) or a data frame.
        other: The treatments to compare with: p, row by row, or one for all.

    Returns:
        ``mean`` and ``latent_variance`` with dims (chain, draw, instance).

    Raises:
        ValueError: If `x` and `other` do not fit each other or the training data.
    """
    import xarray as xr

    first, second = (_read(fit, table, name) for table, name in ((x, "x"), (other, "other")))
    if second.shape[0] not in (1, first.shape[0]):
        raise ValueError(f"`other` must have one row, or as many as `x`, {first.shape[0]}, got {second.shape[0]} rows")
    second = jnp.broadcast_to(second, first.shape)

    def of_one_draw(model: AbstractModel, sample: Sample, data: Data, pairs: Array) -> tuple[Array, Array]:
        found = model.predictive(sample, data, pairs, covariance=True)
        mean, covariance = found["mean"], found["latent_covariance"]
        own, across = jnp.diagonal(covariance), jnp.diagonal(covariance, offset=mean.shape[0] // 2)
        above, below = jnp.split(own, 2)
        return jnp.subtract(*jnp.split(mean, 2)), jnp.maximum(above + below - 2 * across, 0.0)

    dims = ("chain", "draw", "instance")
    names = ("mean", "latent_variance")
    values = fit.map_draws(of_one_draw, jnp.concatenate([first, second]))
    found = xr.Dataset({name: (dims, np.asarray(value)) for name, value in zip(names, values, strict=True)})
    return found.assign_coords({dim: np.arange(size) for dim, size in found.sizes.items()})


def _read(fit: Fit, table: Numbers, name: str) -> Array:
    return as_points(table if fit.schema is None else fit.schema.read(table, name), name)
