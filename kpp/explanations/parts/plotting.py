"""`explanation.plot`: the plots of `kpp.plots` for an explanation's dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp import plots
from kpp.data.tables import Schema
from kpp.explanations.parts.uncertainty import drawn_independently, interval, is_uncertain
from kpp.foundation.arguments import guard_exports
from kpp.plots.intervals import IntervalKind, check_probability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# How many instances of an explanation that is backed by Dask a plot of all instances shows.
_SHOWN = 2000


@dataclasses.dataclass(frozen=True)
class ExplanationPlots:
    """The plots of one explanation. Each draws on `ax`, or on a new figure, and returns the axis.

    With several outputs, `output` names the one to show (or gives its position). Intervals have the given `probability`
    and `kind` ("eti", equal-tailed, or "hdi", highest density); they are drawn where the explanation is uncertain.
    """

    dataset: xr.Dataset

    def beeswarm(
        self,
        *,
        output: str | int | None = None,
        max_features: int = 10,
        probability: float | None = None,
        kind: IntervalKind = "eti",
        ax: Axes | None = None,
    ) -> Axes:
        """Plot every contribution, colored by the value of the feature; with intervals if `probability` is given.

        Points of a categorical feature are gray, because its levels have no order; `scatter` shows them by name.
        """
        part = _in_memory(self._output(output))
        bounds = None if probability is None else _bounds(part, probability, kind)
        categories = xr.DataArray([name in self._schema.levels for name in self._schema.feature_names], dims="feature")
        data = part["data"].where(~categories)
        ax = plots.beeswarm(part["values"], data, intervals=bounds, max_features=max_features, ax=ax)
        return self._say_what_is_shown(self._say_what_varies(ax, bounds is not None), part)

    def bar(
        self,
        *,
        output: str | int | None = None,
        max_features: int = 10,
        probability: float = 0.9,
        kind: IntervalKind = "eti",
        ax: Axes | None = None,
    ) -> Axes:
        """Plot the mean absolute contribution of each feature; its intervals need draws (see `Explanation.sample`).

        They have no bias, so the interval of a feature without effect reaches 0; see `kpp.plots.bar`.
        """
        values, independent = self._output(output)["values"], drawn_independently(self.dataset)
        ax = plots.bar(
            values, probability=probability, kind=kind, max_features=max_features, independent=independent, ax=ax
        )
        return self._say_what_varies(ax, "chain" in values.dims)

    def waterfall(
        self,
        instance: int = 0,
        *,
        output: str | int | None = None,
        max_features: int = 10,
        probability: float = 0.9,
        kind: IntervalKind = "eti",
        ax: Axes | None = None,
    ) -> Axes:
        """Plot how the contributions lead from the base value to the prediction of one instance, given by position."""
        part = _rows(self._output(output), [instance])
        bounds = _bounds(part, probability, kind)
        row = part.isel(instance=0)
        data = part["data"].copy(data=self._schema.as_objects(part["data"].values)).isel(instance=0)
        ax = plots.waterfall(
            row["values"],
            row["base_values"],
            row["predictions"],
            data,
            intervals=None if bounds is None else bounds.isel(instance=0),
            max_features=max_features,
            ax=ax,
        )
        return self._say_what_varies(ax, bounds is not None)

    def scatter(
        self,
        feature: str,
        *,
        color: str | None = None,
        output: str | int | None = None,
        probability: float = 0.9,
        kind: IntervalKind = "eti",
        ax: Axes | None = None,
    ) -> Axes:
        """Plot the contribution of a feature against its value, colored by the value or the level of `color`."""
        part = _in_memory(self._output(output))
        bounds = _bounds(part, probability, kind)
        levels = self._schema.levels
        ax = plots.scatter(
            part["values"],
            part["data"],
            feature,
            color=color,
            intervals=bounds,
            levels=levels.get(feature),
            color_levels=None if color is None else levels.get(color),
            ax=ax,
        )
        return self._say_what_is_shown(self._say_what_varies(ax, bounds is not None), part)

    def forest(
        self,
        instances: int | Sequence[int] = 0,
        *,
        output: str | int | None = None,
        max_features: int = 10,
        probability: float = 0.9,
        kind: IntervalKind = "eti",
        ax: Axes | None = None,
    ) -> Axes:
        """Plot the contributions to one prediction or a few, given by position, with intervals."""
        part = _rows(self._output(output), np.atleast_1d(instances))
        bounds = _bounds(part, probability, kind)
        ax = plots.forest(part["values"], intervals=bounds, max_features=max_features, ax=ax)
        return self._say_what_varies(ax, bounds is not None)

    def interactions(
        self,
        instance: int | None = None,
        *,
        output: str | int | None = None,
        max_features: int = 10,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot the interactions of one instance, given by position, or by default the mean absolute ones of all."""
        if "interactions" not in self.dataset:
            raise ValueError("the explanation holds no interactions; ask its explainer for them")
        values = self._output(output)["interactions"]
        values = values if instance is None else values.isel(instance=instance)
        return plots.interactions(values, max_features=max_features, ax=ax)

    @property
    def _schema(self) -> Schema:
        names = tuple(str(name) for name in self.dataset.coords["feature"].values)
        return Schema.from_json({"feature_names": names, "levels": self.dataset.attrs.get("levels", {})})

    def _output(self, output: str | int | None) -> xr.Dataset:
        if "output" not in self.dataset["values"].dims:
            if output is not None:
                raise ValueError(f"`output` goes with several outputs; the explanation has one, got {output!r}")
            return self.dataset
        names = [str(name) for name in self.dataset.coords["output"].values]
        if isinstance(output, int) and -len(names) <= output < len(names):
            return self.dataset.isel(output=output, drop=True)
        if output not in names:
            raise ValueError(f"`output` must be one of {names} or a position, got {output!r}")
        return self.dataset.isel(output=names.index(str(output)), drop=True)

    def _say_what_varies(self, ax: Axes, has_intervals: bool) -> Axes:
        """Add to the label what part of the uncertainty the intervals hold, if not all of it."""
        part = self.dataset.attrs.get("uncertainty", "full")
        if part != "full" and (has_intervals or part == "posterior mean only"):
            ax.set_xlabel(f"{ax.get_xlabel()}, {part}")
        return ax

    def _say_what_is_shown(self, ax: Axes, part: xr.Dataset) -> Axes:
        """Add to the title how many of the instances are shown, if not all are."""
        shown, known = part.sizes["instance"], self.dataset.sizes["instance"]
        if shown < known:
            ax.set_title(f"{shown} of {known} instances, evenly spaced", fontsize="small")
        return ax


def _in_memory(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset in memory; of one that is backed by Dask at most `_SHOWN` instances, evenly spaced."""
    if dataset.chunks and dataset.sizes["instance"] > _SHOWN:
        chosen = np.linspace(0, dataset.sizes["instance"] - 1, _SHOWN).round().astype(int)
        return _rows(dataset, chosen)
    return dataset.compute()


def _rows(dataset: xr.Dataset, positions: Sequence[int] | np.ndarray) -> xr.Dataset:
    """Return some instances, in memory."""
    return dataset.isel({dim: positions for dim in ("instance", "instance_other") if dim in dataset.dims}).compute()


def _bounds(dataset: xr.Dataset, probability: float, kind: IntervalKind) -> xr.DataArray | None:
    check_probability(probability, kind)
    return interval(dataset, probability, kind) if is_uncertain(dataset) else None


guard_exports(globals())
