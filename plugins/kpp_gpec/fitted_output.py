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

    @classmethod
    def create(
        cls,
        data: tuple[Any, Any, Any],
        how: tuple[Any, int | None],
        selected: SelectedHyperparameters,
        geodesic: WeightedExponentialGeodesic | None,
        boundary: BoundarySample | None,
        num_components: int,
    ) -> FittedOutput:
        """Condition on points, values and noise, with correlations and a number of inducing points.

        The WEG kernel gets the parameters that were selected.
        """
        if geodesic is not None:
            own: dict[str, Any] = {"decay": selected.decay, "concentration": selected.concentration}
            geodesic = dataclasses.replace(geodesic, **own, root=None).precompute()
        kernel = combine_kernels(geodesic, selected.lengthscale)
        process = condition(kernel, *data, selected.variance, *how)
        return cls(process, selected, geodesic, boundary, num_components)

    def with_hyperparameters(self, **changes: Any) -> FittedOutput:
        """Return the same output with some fields of `selected` replaced, and the processes conditioned again."""
        if self.geodesic is None:  # without a boundary they have no meaning
            changes |= {"decay": None, "concentration": None}
        old, selected = self.process, self.selected._replace(**changes)
        data, how = (old.points, old.values, old.noise), (old.correlations, old.num_inducing)
        return FittedOutput.create(data, how, selected, self.geodesic, self.boundary, self.num_components)


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
    described = {"format": _FORMAT, **description, "schema": schema.to_json()}
    described["outputs"] = [_describe_output(output) for output in outputs]
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
    fields = {name: described[name] for name in ("name", "groups", "record")}
    for name in ("feature_names", "output_names", "output_positions"):  # JSON has no tuples
        fields[name] = None if described[name] is None else tuple(described[name])
    return {**arrays, **fields, "outputs": tuple(outputs), "schema": Schema.from_json(described["schema"])}


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
        geodesic = WeightedExponentialGeodesic(*fields, described["normalized"], members=arrays.get("members"))
    sample = None
    if described["boundary"] is not None:
        points, widths = (jnp.asarray(arrays[name], float) for name in ("boundary_points", "boundary_widths"))
        sample = BoundarySample(points, widths, **described["boundary"])
    data, how = (z, arrays["values"], arrays["noise"]), (arrays.get("correlations"), described.get("num_inducing"))
    return FittedOutput.create(data, how, selected, geodesic, sample, described["num_components"])
