"""Comparison of explanations of the same points by several value functions, explainers or models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from kpp.explanations.explanation import Explanation


def compare(explanations: Mapping[str, Explanation]) -> xr.Dataset:
    r"""Compare explanations of the same points.

    Draws are replaced by their mean. For the contributions :math:`\phi, \phi'` of two explanations to one prediction,

    .. math:: \mathrm{distance} = \Bigl(\sum_j (\phi_j - \phi'_j)^2\Bigr)^{1/2}

    Args:
        explanations: The explanations by name, at least two, of the same points and features.

    Returns:
        ``values`` (explanation, instance, feature[, output]) and ``base_values`` (explanation, instance[, output]);
        ``importance`` (explanation, feature[, output]), the mean absolute contributions; and for each two explanations
        ``difference`` (explanation, explanation_other, feature[, output]), the mean over instances of
        :math:`\phi_j - \phi'_j`, and (explanation, explanation_other, instance[, output]) ``distance`` and
        ``correlation`` over the features, which is 0 if one of the two is constant. `kpp.plots.comparison` draws
        the values.

    Raises:
        ValueError: If there are fewer than two, or their points, features or outputs differ.
    """
    if len(explanations) < 2:
        raise ValueError(f"`explanations` must be at least two, by name, got {list(explanations)}")
    means = {name: explanation.mean() for name, explanation in explanations.items()}
    first = next(iter(means.values()))
    for name, mean in means.items():
        _check_same_points(first, mean, name)
    names = xr.DataArray(list(means), dims="explanation", name="explanation")
    values = xr.concat([mean.values for mean in means.values()], dim=names)
    bases = [mean.base_values.broadcast_like(mean.predictions) for mean in means.values()]
    others = values.rename(explanation="explanation_other")
    gaps = values - others
    parts = {
        "values": values,
        "base_values": xr.concat(bases, dim=names),
        "importance": abs(values).mean("instance"),
        "difference": gaps.mean("instance"),
        "distance": (gaps**2).sum("feature") ** 0.5,
        "correlation": _correlation(values, others),
    }
    leading = ("explanation", "explanation_other", "instance", "feature")
    ordered = {
        name: part.transpose(*(dim for dim in leading if dim in part.dims), ...).drop_attrs()
        for name, part in parts.items()
    }
    return xr.Dataset(ordered)


def _check_same_points(first: Explanation, other: Explanation, name: str) -> None:
    for dim in ("instance", "feature", "output"):
        labels = [list(mean.values.coords[dim].values) if dim in mean.values.dims else None for mean in (first, other)]
        if labels[0] != labels[1]:
            raise ValueError(f"`explanations` must have the same {dim}s, got {labels[0]} and, in {name!r}, {labels[1]}")
    if not np.array_equal(first.data.values, other.data.values, equal_nan=True):
        raise ValueError(f"`explanations` must be of the same points; the data of {name!r} differ from the first one's")


def _correlation(values: xr.DataArray, others: xr.DataArray) -> xr.DataArray:
    centered = [array - array.mean("feature") for array in (values, others)]
    product = xr.dot(*centered, dim="feature")
    scale = np.sqrt(xr.dot(centered[0], centered[0], dim="feature") * xr.dot(centered[1], centered[1], dim="feature"))
    return xr.where(scale > 0, product / scale.where(scale > 0, 1.0), 0.0)
