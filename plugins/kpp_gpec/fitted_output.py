"""The fitted process of one output of a model, and the file of all outputs.

The netCDF file holds the arrays of each output in a group of its own, everything else as JSON. Cholesky factors are not
stored: they are computed again from the explanations and the kernel, which gives the same numbers.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import xarray as xr

from kpp.data.tables import Schema
from kpp.storage import netcdf
from kpp_gpec.boundary.sampler import BoundarySample
from kpp_gpec.process.explanation_process import AbstractExplanationProcess
from kpp_gpec.process.geodesic_kernel import WeightedExponentialGeodesic
from kpp_gpec.process.hyperparameters import SelectedHyperparameters, combine_kernels
from kpp_gpec.process.multitask import condition

_MARK, _FORMAT = "kpp_gpec", 1
_COUNTS = ("num_pairs", "num_converged", "num_calls", "num_evaluations", "status")


class FittedOutput(eqx.Module):
    """The process of one output of the model, and its boundary."""

    process: AbstractExplanationProcess  # of all features
    selected: SelectedHyperparameters
    geodesic: WeightedExponentialGeodesic | None  # the WEG kernel with its root, or None without a boundary
    boundary: BoundarySample | None  # in the features' own units, or None if none was sampled
    num_components: int = eqx.field(static=True, default=0)  # of the graph of the boundary sample

    def with_hyperparameters(self, **changes: Any) -> FittedOutput:
        """Return the same output with some fields of `selected` replaced, and the processes conditioned again."""
        geodesic = self.geodesic
        if geodesic is None:  # without a boundary they have no meaning
            changes |= {"decay": None, "concentration": None}
        selected = self.selected._replace(**changes)
        if geodesic is not None and {"decay", "concentration"} & set(changes):
            geodesic = build_geodesic(geodesic, selected)
        kernel = combine_kernels(geodesic, selected.lengthscale)
        old = self.process
        data = old.points, old.values, old.noise
        process = condition(kernel, *data, selected.variance, old.correlations, old.num_inducing)
        return FittedOutput(process, selected, geodesic, self.boundary, self.num_components)


def build_geodesic(
    boundary: WeightedExponentialGeodesic, selected: SelectedHyperparameters
) -> WeightedExponentialGeodesic:
    """Return a WEG kernel with other parameters, its root computed."""
    own: dict[str, Any] = {"decay": selected.decay, "concentration": selected.concentration}
    return dataclasses.replace(boundary, **own, root=None).precompute()


def save(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    description: Mapping[str, Any],
    schema: Schema,
    outputs: Sequence[FittedOutput],
) -> None:
    """Write the parts of a fitted GPEC into one file, which appears only when it is complete.

    `description` holds the fields that JSON can hold, by name. Raises FileNotFoundError if the folder does not exist.
    """
    described = {
        "format": _FORMAT,
        **description,
        "schema": schema.to_json(),
        "outputs": [_describe_output(output) for output in outputs],
    }
    groups = {f"output_{number}": _dataset(_arrays(output)) for number, output in enumerate(outputs)}
    netcdf.write(path, _dataset(arrays, {_MARK: json.dumps(described)}), groups)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of a fitted GPEC, except the model, from a file that `save` has written."""
    root, groups = netcdf.read(path)
    if _MARK not in root.attrs:
        raise ValueError(f"`path` must be a saved GPEC, got {os.fspath(path)!r}, which lacks the attribute {_MARK!r}")
    with netcdf.complete(path, "a saved GPEC"):
        return _fields(json.loads(root.attrs[_MARK]), root, groups)


def _describe_output(output: FittedOutput) -> dict[str, Any]:
    selected = {name: value for name, value in output.selected._asdict().items() if name != "variance"}
    lengthscale = selected["lengthscale"]
    selected["lengthscale"] = None if lengthscale is None else np.asarray(lengthscale).tolist()
    sample = output.boundary
    return {
        "selected": selected,
        "num_components": output.num_components,
        "num_inducing": output.process.num_inducing,
        "normalized": None if output.geodesic is None else output.geodesic.normalized,
        "boundary": None if sample is None else {name: getattr(sample, name) for name in _COUNTS},
    }


def _arrays(output: FittedOutput) -> dict[str, Any]:
    process, geodesic, sample = output.process, output.geodesic, output.boundary
    arrays = {"values": process.values, "noise": process.noise, "variance": process.variance}
    if process.correlations is not None:
        arrays["correlations"] = process.correlations
    if geodesic is not None:
        arrays |= {"samples": geodesic.points, "distances": geodesic.distances}
        if geodesic.members is not None:
            arrays["members"] = geodesic.members
    if sample is not None:
        arrays |= {"boundary_points": sample.points, "boundary_widths": sample.widths}
    return arrays


def _dataset(arrays: Mapping[str, Any], attrs: Mapping[str, Any] | None = None) -> xr.Dataset:
    """Return arrays as a dataset with arbitrary names of axes."""
    values = {name: np.asarray(array) for name, array in arrays.items()}
    variables = {name: ([f"{name}_{axis}" for axis in range(value.ndim)], value) for name, value in values.items()}
    return xr.Dataset(variables, attrs=dict(attrs or {}))


def _fields(described: dict[str, Any], root: xr.Dataset, groups: Mapping[str, xr.Dataset]) -> dict[str, Any]:
    """Return the fields of a fitted GPEC from the description, the arrays and the groups of its file."""
    if described["format"] > _FORMAT:
        raise ValueError(f"`path` holds a GPEC of format {described['format']}; this version reads up to {_FORMAT}")
    arrays = _to_numpy(root)
    z = (arrays["x"] - arrays["location"]) / arrays["scale"]
    outputs = [
        _rebuild(_to_numpy(groups[f"output_{number}"]), output, z) for number, output in enumerate(described["outputs"])
    ]
    names = described["output_names"]
    return {
        **arrays,
        "name": described["name"],
        "outputs": tuple(outputs),
        "schema": Schema.from_json(described["schema"]),
        "feature_names": tuple(described["feature_names"]),
        "groups": described["groups"],
        "output_names": None if names is None else tuple(names),
        "output_positions": tuple(described["output_positions"]),
        "record": described["record"],
    }


def _to_numpy(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    return {str(name): value.to_numpy() for name, value in dataset.data_vars.items()}


def _rebuild(arrays: dict[str, np.ndarray], described: dict[str, Any], z: np.ndarray) -> FittedOutput:
    """Return a saved output, with its processes conditioned again."""
    selected = SelectedHyperparameters(variance=arrays["variance"], **described["selected"])
    if isinstance(selected.lengthscale, list):
        selected = selected._replace(lengthscale=np.asarray(selected.lengthscale))
    selected = selected._replace(at_bounds=tuple(selected.at_bounds))
    geodesic = None
    if "samples" in arrays:
        fields = arrays["samples"], arrays["distances"], selected.decay, selected.concentration
        members = arrays.get("members")
        geodesic = build_geodesic(
            WeightedExponentialGeodesic(*fields, described["normalized"], members=members), selected
        )
    sample = None
    if described["boundary"] is not None:
        points, widths = (jnp.asarray(arrays[name], float) for name in ("boundary_points", "boundary_widths"))
        sample = BoundarySample(points, widths, **described["boundary"])
    kernel = combine_kernels(geodesic, selected.lengthscale)
    data = z, arrays["values"], arrays["noise"]
    process = condition(kernel, *data, selected.variance, arrays.get("correlations"), described.get("num_inducing"))
    return FittedOutput(process, selected, geodesic, sample, described["num_components"])
