"""Conversion of the results of a model of standardised data back to the units of the file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from kpp.explanations import Explanation
from kpp.preferences import Matches
from kpp_study.study.data import Standardization, StudyData

_TARGET_GROUPS = ("observed_data", "posterior_predictive", "prior_predictive")


def groups_in_original_units(groups: Mapping[str, xr.Dataset], data: StudyData) -> dict[str, xr.Dataset]:
    r"""Express all results about the target and the features in their own units.

    Draws and observations of the target become :math:`c + s y`, its log densities become :math:`\log p(y) - \log s`,
    and the features in `constant_data` become the features of the file. Hyperparameters stay in the model's units: a
    lengthscale of 2 is two standard deviations of its feature. `constant_data` also holds the conversion to the model's
    units: ``feature_center`` and ``feature_scale`` (feature), ``target_center`` and ``target_scale``.
    """
    scaling = data.standardization
    converted = dict(groups)
    for name in _TARGET_GROUPS:
        if name in converted:
            converted[name] = converted[name].map(
                lambda values: scaling.target_center + scaling.target_scale * values, keep_attrs=True
            )
    if "log_likelihood" in converted:
        shift = math.log(scaling.target_scale)
        converted["log_likelihood"] = converted["log_likelihood"].map(lambda values: values - shift, keep_attrs=True)
    converted["constant_data"] = _constant_data(converted.get("constant_data", xr.Dataset()), data)
    return converted


def explanation_in_original_units(explanation: Explanation, data: StudyData, rows: np.ndarray) -> Explanation:
    """Express an explanation in the units of the file, with instances named by their row numbers (p,)."""
    dataset = values_in_original_units(explanation, data.standardization)
    dataset["data"] = dataset["data"].copy(data=_instances(explanation, data, rows))
    names = {dim: rows for dim in ("instance", "instance_other") if dim in dataset.dims}
    if isinstance(data.training, Matches) and dataset["instance"].dtype.kind in "OU":
        names = {}  # the names of both items
    return Explanation(dataset.assign_coords(names))


def values_in_original_units(explanation: Explanation, scaling: Standardization) -> xr.Dataset:
    r"""Return the dataset of an explanation in the target's unit; the explained rows stay as they are.

    Shapley values are linear in the function and do not depend on the units of features, so the values of :math:`c + s
    f` are :math:`s \phi`, with base value :math:`c + s b`.
    """
    center, scale = scaling.target_center, scaling.target_scale
    dataset = explanation.dataset.copy()
    for name, factor, shift in (
        ("values", scale, 0.0),
        ("base_values", scale, center),
        ("predictions", scale, center),
        ("variance", scale**2, 0.0),
        ("covariance", scale**2, 0.0),
        ("interactions", scale, 0.0),
        ("standard_errors", scale, 0.0),
        ("effects", scale, 0.0),
    ):
        if name in dataset:
            dataset[name] = shift + factor * dataset[name]
    return dataset


def _instances(explanation: Explanation, data: StudyData, rows: np.ndarray) -> np.ndarray:
    """Return the explained rows in the units of the file; features that stand for several columns are unchanged."""
    columns = explanation.data.values.copy()
    for index, name in enumerate(explanation.feature_names):
        if name not in data.schema.feature_names:
            continue
        if isinstance(data.training, Matches):  # differences between two items
            columns[:, index] *= data.standardization.scale[data.schema.index(name)]
        else:
            columns[:, index] = data.x[rows, data.schema.index(name)]
    return columns


def _constant_data(constant: xr.Dataset, data: StudyData) -> xr.Dataset:
    scaling = data.standardization
    names = list(data.schema.feature_names)
    own: dict[str, Any] = {
        "feature_center": ("feature", scaling.center),
        "feature_scale": ("feature", scaling.scale),
        "target_center": ((), scaling.target_center),
        "target_scale": ((), scaling.target_scale),
    }
    if "x" in constant and constant["x"].shape == data.x.shape:
        constant = constant.assign(x=constant["x"].copy(data=data.x))
    return constant.assign(own).assign_coords(feature=names)
