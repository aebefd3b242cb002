"""Comparison of explanations of the same points by several value functions, explainers or models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from kpp.explanations.explanation import Explanation
from kpp.explanations.quality import quality
from kpp.typing import RngKey


def compare(
    explanations: Mapping[str, Explanation],
    predictor: Any = None,
    background: Any = None,
    *,
    num_coalitions: int = 1024,
    neighbors: int = 5,
    rng_key: RngKey | None = None,
) -> xr.Dataset:
    r"""Compare explanations of the same points, with each other and with the predictor that they explain.

    Draws are replaced by their mean. For the contributions :math:`\phi, \phi'` of two explanations to one prediction,

    .. math:: \mathrm{distance} = \Bigl(\sum_j (\phi_j - \phi'_j)^2\Bigr)^{1/2}

    With a predictor there are measures of quality. The value v(S) of a coalition S of features, at an instance, is that
    of a game. With :math:`S_r` the r features of the largest contributions, of d,

    .. math::

        \text{deletion}_r = v(S_r^c), \qquad \text{insertion}_r = v(S_r), \qquad
        \text{infidelity} = \mathrm E_S \Bigl(\sum_{j \notin S} \phi_j - (v(\Omega) - v(S))\Bigr)^2, \qquad
        \text{stability} = \max_{i'} \frac{\|\phi(x) - \phi(x_{i'})\|}{\|x - x_{i'}\|}.

    S is drawn by the Shapley kernel, so Shapley values of the same game have the least infidelity of all contributions
    that add up. The :math:`x_{i'}` are the nearest explained instances, at distances in standard deviations of the
    background; a different level of a category counts as 1. These measures keep the draws of an explanation: each draw
    has its own order and errors. If the predictor has the same draws, each is compared with its own function, which is
    the posterior mean of a Gaussian process.

    Args:
        explanations: The explanations by name, at least two (one with a predictor), of the same points and features.
        predictor: What was explained, as for `kpp.explain`; None for no measures of quality.
        background: Rows, (m, d) or a data frame, whose features replace absent ones; or a value function.
        num_coalitions: The largest number of coalitions S for the infidelity; if there are more, a sample.
        neighbors: How many nearest instances the stability compares.
        rng_key: A JAX random key, for the sample of coalitions.

    Returns:
        ``values`` (explanation, instance, feature[, output]) and ``base_values`` (explanation, instance[, output]);
        ``importance`` (explanation, feature[, output]), the mean absolute contributions; and for each two explanations
        ``difference`` (explanation, explanation_other, feature[, output]), the mean over instances of
        :math:`\phi_j - \phi'_j`, and (explanation, explanation_other, instance[, output]) ``distance`` and
        ``correlation`` over the features, which is 0 if one of the two is constant. `kpp.plots.comparison` draws
        the values. With a predictor ``deletion`` and ``insertion`` (explanation, [chain, draw,] instance, step[,
        output]), ``infidelity`` and ``stability`` (explanation, [chain, draw,] instance[, output]), NaN without another
        instance; `kpp.plots.credible_interval` gives intervals.

    Raises:
        TypeError: If the predictor is not a function of points, or a key is needed.
        ValueError: If there are fewer than two, their points, features or outputs differ, or the predictor predicts
            other numbers than those explained (tested without draws) or has other draws.

    References:
        Petsiuk, Das and Saenko, RISE, 2018 (deletion, insertion); Yeh, Hsieh, Suggala, Inouye and Ravikumar, On the
        (in)fidelity and sensitivity of explanations, 2019, definition 2.1; Alvarez-Melis and Jaakkola, On the
        robustness of interpretability methods, 2018, equation (3).
    """
    if len(explanations) < (2 if predictor is None else 1):
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
    if predictor is None:
        return xr.Dataset(ordered)
    arguments = (predictor, background, num_coalitions, neighbors, rng_key)
    measured = [quality(each.dataset, each.schema, *arguments) for each in explanations.values()]
    return xr.Dataset({**ordered, **xr.concat(measured, dim=names)})


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
