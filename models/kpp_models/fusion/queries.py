r"""Queries about effects of interventions: the best treatment, differences of treatments, and values of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kpp.foundation.validation import as_finite_array, as_points
from kpp.inference import AbstractModel, Data, Fit
from kpp.inference.toolkit import Sample
from kpp.typing import Numbers, RngKey
from kpp_models.fusion.model import AbstractEffectModel

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

    Example:
        >>> kpp_models.contrast(fit, x[:2], x[2:4])["mean"].values.round(2)
        array([[[ 0.63, -0.39]]])
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


def off_policy_value(fit: Fit, policies: Mapping[str, Numbers], *, reference: str | None = None) -> xr.Dataset:
    r"""Return the posterior of the expected target if a policy decides the treatment of each row.

    .. math:: g(\pi) = E[T \mid do(\pi)] = m + \Bigl\langle f, \frac1N \sum_{i=1}^N \mu(\pi_i, z_i) \Bigr\rangle

    :math:`\mu(x, z)` is the embedding of the outcome's distribution given treatment and covariates, and f the function
    from outcome to target, each with its uncertainty. The N rows are those of D1, whose covariates may decide the
    treatment. That they are a sample is not part of the variance.

    Args:
        fit: A fit of IME, IMP, BayesIME or `kpp_models.BayesIMP`, without front-door adjustment.
        policies: Policies by name: the treatment of each row of D1, (N, d) or a data frame. Or (l, N, d): l equally
            likely treatments of each row, for a policy that decides by chance.
        reference: The name of a policy, for the differences of all values from its value.

    Returns:
        ``mean`` and ``latent_variance`` with dims (chain, draw, policy).

    Raises:
        ValueError: If there are no policies, one has another shape, the reference is not one of them, or the fit has
            mediators.
        TypeError: If the fit is not of such a model.

    References:
        Martinez-Taboada and Sejdinovic, Bayesian counterfactual mean embeddings and off-policy evaluation, 2022.
    """
    import xarray as xr

    if not isinstance(fit.model, AbstractEffectModel):
        raise TypeError(f"`fit` must be of IME, IMP, BayesIME or BayesIMP, got {type(fit.model).__name__}")
    if fit.model.links[0].adjustment == "frontdoor":
        raise ValueError("`fit` must have no adjustment or covariates, got the front-door adjustment")
    names, known = tuple(policies), fit.data["links"][0]["treatment"]
    layers = [_read_policy(fit, policy, f"policies[{name!r}]", known.shape) for name, policy in policies.items()]
    if not names or reference not in (None, *names):
        raise ValueError(f"`policies` must hold the policy `reference`, got {list(names)} and {reference!r}")
    shares = np.repeat(np.eye(len(names)), [len(own) for own in layers], axis=1)
    shares /= shares.sum(axis=1, keepdims=True)
    shares -= 0.0 if reference is None else shares[names.index(reference)]
    values = fit.map_draws(_combined_moments, jnp.concatenate(layers), jnp.asarray(shares))
    dims = ("chain", "draw", "policy")
    found = {name: (dims, np.asarray(value)) for name, value in zip(("mean", "latent_variance"), values, strict=True)}
    chains, draws = values[0].shape[:2]
    return xr.Dataset(found, {"chain": np.arange(chains), "draw": np.arange(draws), "policy": list(names)})


def _combined_moments(
    model: AbstractModel, sample: Sample, data: Data, layers: Array, shares: Array
) -> tuple[Array, Array]:
    """Return mean and variance of weighted sums of effects of policies."""
    found = model.predictive(sample, data, layers, covariance=True)
    variance = jnp.einsum("ql,lk,qk->q", shares, found["latent_covariance"], shares, precision="highest")
    return shares @ found["mean"], jnp.maximum(variance, 0.0)


def _read_policy(fit: Fit, policy: Numbers, name: str, shape: tuple[int, ...]) -> Array:
    """Return the treatments of all rows in layers, (l, N, d)."""
    given = as_finite_array(policy, name) if np.ndim(policy) == 3 else _read(fit, policy, name)[None]
    if given.shape[1:] != shape:
        raise ValueError(f"`{name}` must have shape {shape} or (l, {shape[0]}, {shape[1]}), got {np.shape(policy)}")
    return given


def _read(fit: Fit, table: Numbers, name: str) -> Array:
    return as_points(table if fit.schema is None else fit.schema.read(table, name), name)
