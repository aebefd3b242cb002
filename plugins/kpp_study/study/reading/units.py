"""The units of a study's table and those of its model, which sees standardized numbers; results go back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from kpp.data.tables import Scales, Schema
from kpp.explanations import Explanation
from kpp.inspection import Curve

_TARGET_GROUPS = ("observed_data", "posterior_predictive", "prior_predictive")
# How a result changes if the function f becomes c + s f: by which power of s it is multiplied, and whether c is added.
_CHANGES = {
    "values": (1, False),
    "base_values": (1, True),
    "predictions": (1, True),
    "variance": (2, False),
    "covariance": (2, False),
    "interactions": (1, False),
    "standard_errors": (1, False),
    "effects": (1, False),
}


@dataclasses.dataclass(frozen=True)
class StudyUnits:
    """The conversion between the units of a study's table and those of its model: (value - center) / scale."""

    schema: Schema
    center: Float[np.ndarray, " d"]  # subtracted from each feature, in its own unit
    scale: Float[np.ndarray, " d"]  # the divisor of each feature; 1 for categories, booleans and constant columns
    target_center: float
    target_scale: float
    target: str  # the name of the target; of two classes, what 1 stands for

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray | None, schema: Schema, target: str, *, standardize: bool) -> StudyUnits:
        """Return the conversion of points (n, d) and of a target, None if it is not scaled."""
        if not standardize:
            return cls(schema, np.zeros(x.shape[1]), np.ones(x.shape[1]), 0.0, 1.0, target)
        scales = Scales.of(x, schema)
        center, scale = (0.0, 1.0) if y is None else (float(y.mean()), float(y.std()))
        return cls(schema, scales.center, scales.scale, center, scale, target)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> StudyUnits:
        """Return the conversion that `to_json` and the key "shown" describe."""
        center, scale = np.asarray(facts["center"]), np.asarray(facts["scale"])
        schema = Schema.from_json(facts["schema"])
        return cls(schema, center, scale, facts["target_center"], facts["target_scale"], facts["shown"])

    def to_json(self) -> dict[str, Any]:
        """Return the columns and the numbers of the conversion, as JSON values."""
        return {
            "schema": self.schema.to_json(),
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            "target_center": self.target_center,
            "target_scale": self.target_scale,
        }

    @property
    def is_identity(self) -> bool:
        """Whether the model's units are the units of the file."""
        untouched = np.all(self.scale == 1.0) and not self.center.any()
        return bool(untouched and self.target_scale == 1.0 and self.target_center == 0.0)

    def points(self, table: Any, unseen: str = "error") -> Any:
        """Return rows of features in the model's units: numbers standardized, categories unchanged.

        They are a data frame of the features, if the table is a data frame with at least these, or an array (n, d);
        levels that are not known are treated as `kpp.Fit.predict` treats them. Raises ValueError if columns are
        missing, a level is unknown, or values are missing.
        """
        points = dataclasses.replace(self.schema, unseen=unseen).read(table)
        scaled = (points - self.center[None, :]) / self.scale[None, :]
        if not isinstance(table, pd.DataFrame):
            return scaled
        names, levels = self.schema.feature_names, self.schema.levels
        columns = {name: table[name] if name in levels else scaled[:, i] for i, name in enumerate(names)}
        return pd.DataFrame(columns, index=table.index)

    def response(self, y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return targets in the model's units."""
        return (y - self.target_center) / self.target_scale

    def explanation(self, explanation: Explanation, table: Any, rows: np.ndarray | None = None) -> Explanation:
        r"""Return an explanation of rows of a table in the units of the table.

        Shapley values are linear in the function and do not depend on the units of features, so the values of
        :math:`c + s f` are :math:`s \phi`, with base value :math:`c + s b`. Features that stand for several columns
        have no unit. Without a table the features are differences between two items. The numbers of the rows name them,
        unless they are pairs of named items.
        """
        dataset = explanation.dataset.copy()
        for name, (power, shifts) in _CHANGES.items():
            if name in dataset:
                shift = self.target_center if shifts else 0.0
                dataset[name] = shift + self.target_scale**power * dataset[name]
        columns = explanation.data.values.copy()
        x = None if table is None else self.schema.read(table)
        for index, name in enumerate(explanation.feature_names):
            if name in self.schema.feature_names:
                column = self.schema.index(name)
                columns[:, index] = columns[:, index] * self.scale[column] if x is None else x[:, column]
        dataset["data"] = dataset["data"].copy(data=columns)
        if rows is not None and (x is not None or dataset["instance"].dtype.kind not in "OU"):
            numbered = [dim for dim in ("instance", "instance_other") if dim in dataset.dims]
            dataset = dataset.assign_coords(dict.fromkeys(numbered, rows))
        return Explanation(dataset.assign_attrs(target=self.target))

    def curve(self, curve: Curve) -> Curve:
        """Return a curve in the units of the table; probabilities have no unit."""
        dataset, feature = curve.dataset, curve.attrs["feature"]
        column = self.schema.index(feature)
        if feature not in self.schema.categories:
            moved = {name: self.center[column] + self.scale[column] * dataset[name] for name in ("grid", "data")}
            dataset = dataset.assign_coords(grid=moved["grid"].to_numpy()).assign(data=moved["data"])
        if curve.attrs["scale"] != "probability":
            values = {name: self.target_center + self.target_scale * dataset[name] for name in ("draws", "mean")}
            if "covariance" in dataset:
                values["covariance"] = self.target_scale**2 * dataset["covariance"]
            dataset = dataset.assign(values)
        return dataclasses.replace(curve, dataset=dataset)

    def groups(self, groups: Mapping[str, xr.Dataset], x: Float[np.ndarray, "n d"]) -> dict[str, xr.Dataset]:
        r"""Express the groups of a fit about target and features in their own units, in which `x` are the features.

        Draws and observations of the target become :math:`c + s y`, its log densities become :math:`\log p(y) - \log
        s`, and the features in `constant_data` become the features of the file. Hyperparameters stay in the model's
        units: a lengthscale of 2 is two standard deviations of its feature. `constant_data` also holds the conversion
        to the model's units: ``feature_center`` and ``feature_scale`` (feature), ``target_center`` and
        ``target_scale``.
        """
        converted = dict(groups)
        for name in _TARGET_GROUPS:
            if name in converted:
                converted[name] = converted[name].map(
                    lambda values: self.target_center + self.target_scale * values, keep_attrs=True
                )
        if "log_likelihood" in converted:
            shift = math.log(self.target_scale)
            converted["log_likelihood"] = converted["log_likelihood"].map(lambda d: d - shift, keep_attrs=True)
        constant = converted.get("constant_data", xr.Dataset())
        if "x" in constant and constant["x"].shape == x.shape:
            constant = constant.assign(x=constant["x"].copy(data=x))
        own: dict[str, Any] = {
            "feature_center": ("feature", self.center),
            "feature_scale": ("feature", self.scale),
            "target_center": ((), self.target_center),
            "target_scale": ((), self.target_scale),
        }
        converted["constant_data"] = constant.assign(own).assign_coords(feature=list(self.schema.feature_names))
        return converted
