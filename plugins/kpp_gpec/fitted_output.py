"""The fitted process of one output of a model."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx

from kpp_gpec.boundary.sampler import BoundarySample
from kpp_gpec.process.explanation_process import AbstractExplanationProcess
from kpp_gpec.process.geodesic_kernel import WeightedExponentialGeodesic
from kpp_gpec.process.hyperparameters import SelectedHyperparameters, combine_kernels
from kpp_gpec.process.multitask import condition


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
