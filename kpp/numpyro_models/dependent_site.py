"""Pointwise log likelihoods of a site of dependent observations, such as a Gaussian process, in an ArviZ object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import xarray as xr
from jaxtyping import Array

from kpp import linalg
from kpp.gp.laws.distributions import GaussianProcessMarginal
from kpp.gp.laws.gaussian_laws import gaussian_loo_by_factor, student_t_loo_by_factor
from kpp.inference.base import NumpyroModel
from kpp.inference.fit.draws import draw_map, flatten_draws, unflatten_draws
from kpp.numpyro_models.replay import Replay, Unknown, describe_sites, read_samples, require_known
from kpp.storage import arviz_data

_TINYGP = "tinygp.numpyro_support.TinyDistribution"
_WITH_FACTOR = (dist.MultivariateNormal, dist.MultivariateStudentT)
_WITH_COVARIANCE = (dist.LowRankMultivariateNormal, GaussianProcessMarginal)
_KNOWN = f"{', '.join(cls.__name__ for cls in (*_WITH_FACTOR, *_WITH_COVARIANCE))} or {_TINYGP}"


def add_pointwise(
    idata: Any, numpyro_model: NumpyroModel, samples: object = None, *, data: Mapping[str, Any], site: str | None = None
) -> Any:
    r"""Return an ArviZ object with pointwise log likelihoods of a multivariate normal site, so that it counts n rows.

    For each draw :math:`\theta` they are :math:`\log p(y_i \mid y_{-i}, \theta)` in closed form; see
    `kpp.numpyro_models.pointwise`. NumPyro and ArviZ hold the whole vector for one observation, for which `arviz.loo`
    has no meaning.

    Args:
        idata: An ArviZ InferenceData or DataTree with the group posterior; it is not changed.
        numpyro_model: The model function, with an observed site whose distribution is MultivariateNormal,
            MultivariateStudentT, LowRankMultivariateNormal, `kpp.gp.GaussianProcessMarginal`, or tinygp's
            ``gp.numpyro_dist()``.
        samples: The draws of the latent sites, as for `kpp.posterior_function`, where the group posterior lacks some;
            they must be the draws of this group, in its order.
        data: The arguments by name with which the model was run, observations included.
        site: The name of the site; needed only if the model has several such sites.

    Returns:
        The object of the installed ArviZ with all groups of `idata`. In the group log_likelihood the site has the
        dimensions chain and draw and those of its observations.

    Raises:
        ValueError: If there is no such site, or several and `site` is None; or if its distribution depends on latent
            sites without draws.
        FloatingPointError: If a covariance cannot be factorized for a draw; the message tells the first.
    """
    posterior = arviz_data.group(idata, "posterior")
    replay = Replay(numpyro_model, dict(data))
    name = _site_name(_observed(replay), site)
    sites = describe_sites(numpyro_model, data)
    drawn = {key: found for key, found in sites.items() if found.kind in ("latent", "param")}
    draws = read_samples(posterior if samples is None else samples, drawn)
    first = {key: value[0, 0] for key, value in draws.items()}
    what = f"the distribution of {name!r}"
    require_known(lambda unknown: _log_likelihood(replay, name, first, unknown), sites, draws, what)
    shape = _shape(posterior, draws)
    values = draw_map(_of_draw)(flatten_draws(draws), jnp.arange(shape[0] * shape[1]), (replay, name))
    return _with_variable(idata, name, np.asarray(unflatten_draws(values, shape)))


def _shape(posterior: xr.Dataset, draws: Mapping[str, Array]) -> tuple[int, int]:
    """Return the numbers of chains and draws, or raise ValueError if draws do not have those of the posterior."""
    shape = (posterior.sizes.get("chain", 1), posterior.sizes.get("draw", 1))
    found = {key: value.shape[:2] for key, value in draws.items() if value.shape[:2] != shape}
    if found:
        raise ValueError(f"`samples` must be the {shape} draws of the group posterior of `idata`, got {found}")
    return shape


def _of_draw(draw: dict[str, Array], number: Array, shared: tuple[Replay, str]) -> Array:
    return _log_likelihood(*shared, draw, Unknown())


def _log_likelihood(replay: Replay, site: str, draw: Mapping[str, Array], unknown: Unknown) -> Array:
    """Return the leave-one-out log densities of the observations of a site, (*batch, n), under one draw."""
    found = replay.trace(draw, {}, None, unknown)[site]
    distribution, batch = _unwrap(found["fn"]), found["fn"].batch_shape
    location = jnp.broadcast_to(distribution.loc, found["fn"].shape())
    residual = found["value"] - location
    factor = _factor(distribution)
    factor = jnp.broadcast_to(factor, (*batch, *factor.shape[-2:]))
    if not isinstance(distribution, dist.MultivariateStudentT):
        return _over(batch, gaussian_loo_by_factor, residual, factor)
    return _over(batch, student_t_loo_by_factor, residual, factor, jnp.broadcast_to(distribution.df, batch))


def _factor(distribution: Any) -> Array:
    """Return the lower Cholesky factor of a covariance or scale matrix, (*batch, n, n)."""
    if isinstance(distribution, _WITH_FACTOR):
        return distribution.scale_tril
    matrix = distribution.covariance_matrix
    return _over(matrix.shape[:-2], lambda one: linalg.cholesky(one, what="the covariance matrix of `y`"), matrix)


def _over(batch: tuple[int, ...], f: Any, *arrays: Array) -> Array:
    """Apply a function to one member of a batch after the other."""
    if not batch:
        return f(*arrays)
    flat = [array.reshape(-1, *array.shape[len(batch) :]) for array in arrays]
    result = jax.lax.map(lambda members: f(*members), tuple(flat))
    return result.reshape(*batch, *result.shape[1:])


def _observed(replay: Replay) -> dict[str, Any]:
    """Return the distributions of the observed sites by name, without values."""
    found: dict[str, Any] = {}

    def look() -> None:
        for name, site in replay.trace({}, {}, None).items():
            if site["type"] == "sample" and site["is_observed"]:
                found[name] = site["fn"]

    jax.eval_shape(look)
    return found


def _site_name(observed: Mapping[str, Any], site: str | None) -> str:
    """Return the name of the only observed site with a known distribution, or of the one asked for."""
    kinds = {name: _unwrap(distribution) for name, distribution in observed.items()}
    known = [name for name, distribution in kinds.items() if _is_known(distribution)]
    if site in known:
        return str(site)
    if site is None and len(known) == 1:
        return known[0]
    listed = {name: type(distribution).__name__ for name, distribution in kinds.items()}
    wanted = "name one of several sites" if site is None and known else "name an observed site"
    raise ValueError(f"`site` must {wanted} with the distribution {_KNOWN}, got {site!r}; observed are {listed}")


def _unwrap(distribution: Any) -> Any:
    """Return a distribution without the batch axes and masks that plates and handlers give it."""
    while isinstance(distribution, (dist.ExpandedDistribution, dist.MaskedDistribution)):
        distribution = distribution.base_dist
    return distribution


def _is_known(distribution: Any) -> bool:
    # A subclass may have another density, as the bound of inducing points has.
    kind = type(distribution)
    return kind in (*_WITH_FACTOR, *_WITH_COVARIANCE) or f"{kind.__module__}.{kind.__qualname__}" == _TINYGP


def _with_variable(idata: Any, name: str, values: np.ndarray) -> Any:
    """Return an ArviZ object in whose group log_likelihood a variable is added or replaced."""
    groups = arviz_data.groups(idata)
    posterior = groups["posterior"]
    observed = groups.get("observed_data", xr.Dataset())
    dims: tuple[Any, ...] = tuple(f"{name}_dim_{axis}" for axis in range(values.ndim - 2))
    coords: dict[Any, Any] = {dim: posterior[dim] for dim in ("chain", "draw")}
    if name in observed and observed[name].shape == values.shape[2:]:
        dims = observed[name].dims
        coords |= {dim: observed[dim] for dim in dims if dim in observed.coords}
    variable = xr.DataArray(values, dims=("chain", "draw", *dims), coords=coords, name=name)
    others = groups.get("log_likelihood", xr.Dataset()).drop_vars(name, errors="ignore")
    merged = {**groups, "log_likelihood": others.assign({name: variable})}
    return arviz_data.from_groups(merged, getattr(idata, "attrs", {}))
