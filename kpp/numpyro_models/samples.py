"""Draws of a posterior as NumPyro and ArviZ hand them over, read into arrays that lead with (chain, draw)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from kpp.inference.base import Site
from kpp.storage import arviz_data

_SAMPLE_DIMS = ("chain", "draw")
_KINDS = (
    "a dict of draws by site, a NumPyro MCMC that has run, an ArviZ InferenceData, an xarray DataTree, or the Dataset "
    "of a group posterior"
)


def read_samples(posterior: object, sites: Mapping[str, Site]) -> dict[str, Array]:
    """Return the draws of some sites.

    Args:
        posterior: Draws by site, in a dict, a NumPyro MCMC, an ArviZ InferenceData or DataTree, or an xarray Dataset.
            Arrays of a dict lead with (draw,) or with (chain, draw); the model tells which.
        sites: The sites of the model whose draws are wanted.

    Returns:
        The draws of those sites that `posterior` holds, each (chain, draw, *shape).

    Raises:
        TypeError: If `posterior` is of another type.
        ValueError: If the draws lack the axes chain and draw, are not finite, or their numbers differ between sites.
    """
    dataset = _dataset(posterior)
    if dataset is not None:
        found = {name: _of_variable(dataset[name]) for name in sites if name in dataset}
    elif hasattr(posterior, "get_samples"):
        draws = posterior.get_samples(group_by_chain=True)
        found = {name: np.asarray(draws[name]) for name in sites if name in draws}
    elif isinstance(posterior, Mapping):
        found = {name: _of_array(np.asarray(posterior[name]), sites[name]) for name in sites if name in posterior}
    else:
        raise TypeError(f"`posterior` must be {_KINDS}, got {type(posterior).__name__}")
    _check(found)
    return {name: jnp.asarray(value) for name, value in found.items()}


def _dataset(posterior: Any) -> xr.Dataset | None:
    """Return the group posterior of an object of ArviZ or xarray, and None for other objects."""
    if isinstance(posterior, xr.Dataset):
        return posterior
    if hasattr(posterior, "groups"):
        return arviz_data.group(posterior, "posterior")
    return None


def _of_variable(variable: xr.DataArray) -> np.ndarray:
    missing = [dim for dim in _SAMPLE_DIMS if dim not in variable.dims]
    if missing:
        raise ValueError(
            f"`posterior` must have the dimensions chain and draw, got {variable.dims} for {variable.name!r}"
        )
    return variable.transpose(*_SAMPLE_DIMS, ...).to_numpy()


def _of_array(draws: np.ndarray, site: Site) -> np.ndarray:
    """Return draws of a dict with the axes of chains and draws; those of one chain may lack the first."""
    num_axes = draws.ndim - len(site.shape)
    if num_axes not in (1, 2):
        raise ValueError(
            f"`posterior` must hold draws of {site.name!r} of shape (draw, *{site.shape}) or (chain, draw, "
            f"*{site.shape}), got shape {draws.shape}"
        )
    return draws[None] if num_axes == 1 else draws


def _check(draws: Mapping[str, np.ndarray]) -> None:
    shapes = {name: value.shape[:2] for name, value in draws.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"`posterior` must have as many chains and draws for all sites, got {shapes}")
    for name, value in draws.items():
        if 0 in value.shape[:2]:
            raise ValueError(f"`posterior` must hold at least one draw, got shape {value.shape} for {name!r}")
        if value.dtype.kind not in "fiub" or not np.isfinite(value).all():
            raise ValueError(f"`posterior` must hold finite numbers, got others for {name!r}")
