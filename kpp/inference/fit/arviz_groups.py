"""The groups of an ArviZ object, as xarray datasets in which every axis has a name."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
import numpyro.infer
import xarray as xr

from kpp.inference.base import Data, NumpyroModel, Posterior, Site, as_arguments, trace, whole_plates
from kpp.storage import arviz_data

_LOGGER = logging.getLogger("kpp")
SAMPLE_DIMS = ("chain", "draw")
LATENT = "latent"  # the group of latent values


class Naming:
    """Names for the axes of all arrays in an ArviZ object."""

    def __init__(
        self,
        feature_names: Sequence[str],
        num_rows: int,
        overrides: Mapping[str, tuple[str, ...]] | None = None,  # names of axes in place of the default ones, by site
        coordinates: Mapping[str, Sequence[Any]] | None = None,  # along axes, by the name of the axis; else numbers
    ) -> None:
        self.feature_names = list(feature_names)
        self.num_rows = num_rows
        self.overrides = dict(overrides or {})
        self.coordinates = {"feature": self.feature_names, **(coordinates or {})}

    def of_site(self, site: Site) -> tuple[str, ...]:
        """Return a name for each axis of a site: plates, then ``feature`` at length d, else ``<site>_feature``."""
        if site.name in self.overrides:
            return self.overrides[site.name]
        if site.kind == "observed":
            return self._distinct(["instance" if size == self.num_rows else None for size in site.shape], site)
        plates = [*site.plates, *[None] * (len(site.shape) - len(site.plates))]
        return self._distinct(plates, site)

    def of_data(self, name: str, shape: Sequence[int]) -> tuple[str, ...]:
        """Return a name for each axis of an array of the data."""
        leading = "instance" if shape and shape[0] == self.num_rows else None
        return self._distinct([leading, *[None] * (len(shape) - 1)][: len(shape)], Site(name, "data", tuple(shape), ()))

    def dataset(self, values: Mapping[str, Any], dims: Mapping[str, tuple[str, ...]]) -> xr.Dataset:
        """Build a dataset with a coordinate for every axis."""
        variables = {name: (dims[name], np.asarray(value)) for name, value in values.items()}
        sizes = {dim: size for names, value in variables.values() for dim, size in zip(names, value.shape, strict=True)}
        coords = {dim: self.coordinates.get(dim, np.arange(size)) for dim, size in sizes.items()}
        return xr.Dataset(variables, coords=coords, attrs={"created_by": "kpp"})

    def draws(self, values: Mapping[str, Any], dims: Mapping[str, tuple[str, ...]]) -> xr.Dataset:
        """Build a dataset of draws; the axes chain and draw are before those of `dims`."""
        return self.dataset(values, {name: (*SAMPLE_DIMS, *dims[name]) for name in values})

    def _distinct(self, known: Sequence[str | None], site: Site) -> tuple[str, ...]:
        names: list[str] = []
        for size, name in zip(site.shape, known, strict=True):
            if name is None:
                name = "feature" if size == len(self.feature_names) else f"{site.name}_feature"
            while name in names:
                name = f"{name}_other"
            names.append(name)
        return tuple(names)


def posterior_groups(
    posterior: Posterior, sites: Mapping[str, Site], naming: Naming, latent_sites: Sequence[str]
) -> dict[str, xr.Dataset]:
    """Return the groups posterior, latent and sample_stats.

    Latent are `latent_sites`, discrete sites, and sites that the model integrates out and the inference draws.
    """
    shapes = {name: tuple(np.shape(value)[2:]) for name, value in posterior.samples.items()}
    found_sites = {name: sites.get(name, Site(name, "latent", shape, ())) for name, shape in shapes.items()}
    draws = naming.draws(posterior.samples, {name: naming.of_site(site) for name, site in found_sites.items()})
    if not posterior.samples:
        draws = draws.assign_coords(chain=[0], draw=[0])
    draws.attrs.update({"inference_library": "numpyro"})
    latent = [name for name in found_sites if name in latent_sites or name not in sites or sites[name].discrete]
    found = separate_latent(draws, latent)
    if posterior.sample_stats:
        dims = {name: posterior.stats_dims.get(name, SAMPLE_DIMS) for name in posterior.sample_stats}
        found["sample_stats"] = naming.dataset(posterior.sample_stats, dims)
    return found


def separate_latent(draws: xr.Dataset, latent: Sequence[str]) -> dict[str, xr.Dataset]:
    """Return the groups posterior and latent of the draws of all sites.

    Draws of only one kind are the group posterior, without which ArviZ computes nothing.
    """
    if len(latent) in (0, len(draws.data_vars)):
        return {"posterior": draws}
    return {"posterior": _without_unused(draws.drop_vars(latent)), LATENT: _without_unused(draws[[*latent]])}


def data_groups(
    numpyro_model: NumpyroModel, data: Data, naming: Naming, predicted: Collection[str]
) -> dict[str, xr.Dataset]:
    """Return the groups observed_data (by observed site) and constant_data (by argument).

    Observed sites that the model does not predict are constant data: ArviZ compares all observed data with predictions.
    If no site is predicted, all are observed data.
    """
    values = _observed_values(as_arguments(numpyro_model), data)
    dims = {name: naming.of_site(Site(name, "observed", value.shape, ())) for name, value in values.items()}
    observed = naming.dataset(values, dims)
    constant = constant_group(inputs_of(numpyro_model, data), naming)
    if predicted:
        rest = _without_unused(observed.drop_vars([*predicted, *constant.data_vars], errors="ignore"))
        constant, observed = constant.merge(rest), _without_unused(observed[[*predicted]])
    return {"observed_data": observed} | ({"constant_data": constant} if constant.data_vars else {})


def constant_group(inputs: Data, naming: Naming) -> xr.Dataset:
    """Return the arrays of inputs, by the name of the input and the path in it."""
    constant = {}
    for name, value in inputs.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(value):
            where = jax.tree_util.keystr(path, simple=True, separator=".")
            constant[f"{name}.{where}" if where else name] = leaf
    return naming.dataset(constant, {name: naming.of_data(name, np.shape(value)) for name, value in constant.items()})


def prior_groups(
    rng_key: jax.Array, model: Any, data: Data, sites: Mapping[str, Site], naming: Naming, num_samples: int
) -> dict[str, xr.Dataset]:
    """Return the groups prior, without latent values, and prior_predictive, drawn by NumPyro without observations."""
    inputs = inputs_of(model.numpyro_model, data)
    try:
        draws = _draw_prior(as_arguments(model.numpyro_model), rng_key, inputs, num_samples)
    except NotImplementedError as error:
        _LOGGER.warning(
            "the model cannot be drawn from its prior (%s); the groups prior and prior_predictive are left out", error
        )
        return {}
    found, drawn = {}, draws.keys() - model.latent_sites
    for group, kinds in (("prior", ("latent", "deterministic")), ("prior_predictive", ("observed",))):
        names = [name for name, site in sites.items() if site.kind in kinds and name in drawn]
        values = {name: np.asarray(draws[name])[None] for name in names}
        if values:
            found[group] = naming.draws(values, {name: naming.of_site(sites[name]) for name in values})
    return found


def _without_unused(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset without the coordinates of axes that no variable has, those of draws excepted."""
    used = {dim for variable in dataset.data_vars.values() for dim in variable.dims}
    return dataset.drop_vars([str(name) for name in dataset.coords if name not in used.union(SAMPLE_DIMS)])


@eqx.filter_jit
def _observed_values(numpyro_model: NumpyroModel, data: Data) -> dict[str, Any]:
    found = trace(numpyro_model, data)
    return {name: site["value"] for name, site in found.items() if site["type"] == "sample" and site["is_observed"]}


@eqx.filter_jit
def _draw_prior(numpyro_model: NumpyroModel, rng_key: jax.Array, inputs: Data, num_samples: int) -> dict[str, Any]:
    return numpyro.infer.Predictive(whole_plates(numpyro_model), num_samples=num_samples)(rng_key, **inputs)


def inputs_of(numpyro_model: NumpyroModel, data: Data) -> Data:
    """Return the data without the observed arguments, which are the arguments of the model with default None."""
    parameters = inspect.signature(numpyro_model).parameters
    return {
        name: value for name, value in data.items() if name not in parameters or parameters[name].default is not None
    }


def join_draws(first: Any, second: Any, attrs: dict[str, Any]) -> Any:
    """Concatenate the draws of two ArviZ objects."""
    former, further = arviz_data.groups(first), arviz_data.groups(second)
    joined = dict(further)
    for name in ("posterior", LATENT, "sample_stats", "log_likelihood", "log_prior", "posterior_predictive"):
        shared = [key for key in further.get(name, ()) if key in former.get(name, ())]  # older files lack some
        joined.pop(name, None)
        if name in former and name in further:
            dataset = xr.concat([former[name][shared], further[name][shared]], dim="draw")
            joined[name] = dataset.assign_coords(draw=np.arange(dataset.sizes["draw"]))
    divergences = {}
    if "sample_stats" in joined and "diverging" in joined["sample_stats"]:
        divergences = {"divergences": int(joined["sample_stats"]["diverging"].sum())}
    return arviz_data.from_groups(joined, attrs | divergences)
