"""One netCDF file per fit: the ArviZ groups, the training data, the state of the inference, and a JSON description.

The file holds the groups that ArviZ knows, so ``arviz.from_netcdf`` can open it, and two more groups: ``kpp_data`` (the
training data) and ``kpp_state`` (the state from which the inference continues). The attribute ``kpp`` of the file is
JSON: model and inference as registered names with their fields, the schema of the points, and the structure of the
data. An inference that no plugin registers is written by its import path. Pickle is not used.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from kpp import registry
from kpp.data.tables import Schema
from kpp.inference.base import AbstractInference
from kpp.inference.fit.arviz_groups import LATENT, separate_latent
from kpp.storage import arviz_data, netcdf
from kpp.storage.serialization import from_spec, to_spec

_FORMAT = 1  # the version of the layout of the file: a new layout needs a new number
_DATA, _STATE = "kpp_data", "kpp_state"


def write_fit(path: str | os.PathLike[str], fit: Any) -> None:
    """Write a `kpp.Fit` into one file; the file appears only when it is complete.

    Raises TypeError if the model is not registered, a field of the inference cannot be written, or the data are not
    dicts, lists and tuples of arrays; ValueError if a name contains a slash, which separates groups in netCDF.
    """
    groups, structure = dict(arviz_data.groups(fit.idata)), _structure(fit.data, "")
    arrays = {_name(place): leaf for place, leaf in jax.tree_util.tree_leaves_with_path(fit.data)}
    groups[_DATA], groups[_STATE] = _anonymous(arrays), _anonymous(fit.state)
    for group in groups.values():
        slashed = [str(name) for name in group.variables if "/" in str(name)]
        if slashed:
            raise ValueError(f"netCDF allows no slash in a name, got the sites {slashed}; rename them to save the fit")
    description = {
        "format": _FORMAT,
        "model": to_spec(fit.model),
        "inference": describe_inference(fit.inference),
        "schema": None if fit.schema is None else fit.schema.to_json(),
        "sites": list(fit.draws),
        "data": structure,
        "attrs": dict(fit.idata.attrs),
    }
    netcdf.write(path, xr.Dataset(attrs={"kpp": json.dumps(description), **fit.idata.attrs}), groups)


def read_parts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `write_fit` has written.

    Returns:
        The arguments of `kpp.Fit` by their names.

    Raises:
        ValueError: If the file is not a saved fit, or has a format that this version cannot read.
    """
    root, groups = netcdf.read(path)
    if "kpp" not in root.attrs:
        advice = "; the file fit.nc beside it holds the fit of this study" if "kpp_study" in root.attrs else ""
        raise ValueError(
            f"`path` must be a fit saved by kpp, got {os.fspath(path)}, which lacks the attribute 'kpp'{advice}"
        )
    with netcdf.complete(path, "a fit saved by kpp"):
        return _parts(json.loads(root.attrs["kpp"]), groups)


def describe_inference(inference: AbstractInference) -> dict[str, Any]:
    """Return an inference as JSON values: the name of its class and its fields.

    Raises:
        TypeError: If a field is not a number, text, boolean or None.
    """
    cls = type(inference)
    fields = {field.name: getattr(inference, field.name) for field in dataclasses.fields(inference)}
    for key, value in fields.items():
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise TypeError(
                f"a fit by {cls.__name__} cannot be saved: its `{key}` is a {type(value).__name__}; fields of an "
                "inference must be numbers, text, booleans or None"
            )
    return {"name": _class_name(cls), **fields}


def rebuild_inference(description: Mapping[str, Any]) -> AbstractInference:
    """Return the inference that `describe_inference` described.

    The class is searched by name among the registered inferences, and by import path among the loaded subclasses of
    `AbstractInference`. Nothing is imported except installed plugins, because a name in a file must not decide which
    code runs.

    Raises:
        ValueError: If no class has the name.
    """
    name = description["name"]
    loaded = {_import_path(cls): cls for cls in _subclasses(AbstractInference)}  # type: ignore[type-abstract]
    classes = {**loaded, **registry.inferences()}
    if name not in classes:
        module = name.rpartition(".")[0]
        advice = f"import {module} first" if module else f"the registered ones are {sorted(registry.inferences())}"
        raise ValueError(f"`path` holds a fit by {name}, an inference that is not loaded; {advice}")
    return classes[name](**{key: value for key, value in description.items() if key != "name"})


def _parts(description: dict[str, Any], groups: dict[str, xr.Dataset]) -> dict[str, Any]:
    """Return the parts of a fit from the description and the groups of its file."""
    if description["format"] != _FORMAT:
        raise ValueError(f"`path` holds a fit of format {description['format']}; this version of kpp reads {_FORMAT}")
    arrays = {str(name): jnp.asarray(value.to_numpy()) for name, value in groups.pop(_DATA).data_vars.items()}
    state = {str(name): jnp.asarray(value.to_numpy()) for name, value in groups.pop(_STATE).data_vars.items()}
    schema, model = description["schema"], from_spec(description["model"], "models")
    drawn = {**groups.get("posterior", {}), **groups.get(LATENT, {})}
    if LATENT not in groups and drawn:  # files of older versions have all sites in one group
        groups |= separate_latent(groups["posterior"], [str(site) for site in drawn if site in model.latent_sites])
    return {
        "model": model,
        "arviz": arviz_data.from_groups(groups, description["attrs"]),
        "data": _unflatten(description["data"], arrays),
        "schema": None if schema is None else Schema.from_json(schema),
        "draws": {site: jnp.asarray(drawn[site].to_numpy()) for site in description["sites"]},
        "inference": rebuild_inference(description["inference"]),
        "state": state,
    }


def _class_name(cls: type) -> str:
    """Return the name of a class in a file: the registered name, or else the import path."""
    if cls in registry.inferences().values():
        return registry.name_of("inferences", cls)
    return _import_path(cls)


def _import_path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _subclasses(cls: type[AbstractInference]) -> Iterator[type[AbstractInference]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _anonymous(arrays: Mapping[str, Any]) -> xr.Dataset:
    """Return arrays as a dataset with arbitrary unique names of axes."""
    values = {name: np.asarray(value) for name, value in arrays.items()}
    return xr.Dataset({name: ([f"{name}_{axis}" for axis in range(v.ndim)], v) for name, v in values.items()})


_name = functools.partial(jax.tree_util.keystr, simple=True, separator=".")


def _structure(tree: Any, path: str) -> Any:
    """Return the structure of nested dicts, lists and tuples as JSON, with the name of each array in its place."""
    if tree is None:
        return None
    if isinstance(tree, (jax.Array, np.ndarray)):
        return path
    if isinstance(tree, dict):
        return {"dict": {key: _structure(each, f"{path}.{key}" if path else str(key)) for key, each in tree.items()}}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_structure(each, f"{path}.{index}") for index, each in enumerate(tree)]}
    raise TypeError(
        f"a fit cannot be saved: `data` holds a {type(tree).__name__} at {path!r}; dicts, lists, tuples and "
        "arrays can be"
    )


def _unflatten(structure: Any, arrays: Mapping[str, Any]) -> Any:
    if structure is None:
        return None
    if isinstance(structure, str):
        return arrays[structure]
    ((kind, inner),) = structure.items()
    if kind == "dict":
        return {key: _unflatten(value, arrays) for key, value in inner.items()}
    values = [_unflatten(value, arrays) for value in inner]
    return values if kind == "list" else tuple(values)
