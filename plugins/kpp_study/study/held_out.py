"""How well each row of a study is predicted from all others: leave-one-out, on scales that readers know."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr

from kpp.gp import AbstractGPModel
from kpp.inference import Fit
from kpp.storage import arviz_data
from kpp_study.report.contents import Loo
from kpp_study.study.data import StudyData
from kpp_study.study.results import ENOUGH_DRAWS


def leave_one_out(
    fit: Fit, data: StudyData, groups: Mapping[str, xr.Dataset], *, of_labels: bool
) -> tuple[Loo | None, str]:
    """Return the leave-one-out estimate, or None and the reason why it is not available.

    Args:
        fit: The fit, in the model's units.
        data: The data.
        groups: The groups of the fit, in the units of the data.
        of_labels: Whether the model predicts the probability of a label.
    """
    draws = groups["posterior"].sizes.get("chain", 1) * groups["posterior"].sizes.get("draw", 1)
    if "log_likelihood" not in groups:
        return None, "the model gives no pointwise log likelihood."
    if draws < ENOUGH_DRAWS:
        return None, f"it needs at least {ENOUGH_DRAWS} posterior draws, and there are {draws}."
    with warnings.catch_warnings():  # the report shows high values of Pareto k
        warnings.simplefilter("ignore", UserWarning)
        result = arviz_data.loo(arviz_data.from_groups(groups))
    skill: dict[str, Any] = {}
    if data.training is None:  # one row, one observation
        skill["baseline"] = _baseline(data.y, of_labels)
        skill["r_squared"] = None if of_labels else _r_squared(fit, data, groups)
    return Loo(**arviz_data.loo_numbers(result), **skill), ""


def _baseline(y: np.ndarray, of_labels: bool) -> float:
    """Return the mean log score of the shares of the classes, or of a normal law with the target's mean and sd."""
    if of_labels:
        shares = np.asarray([np.mean(y), 1.0 - np.mean(y)])
        return float(np.sum(shares * np.log(shares)))
    return -0.5 * (math.log(2.0 * math.pi * float(np.var(y))) + 1.0)


def _r_squared(fit: Fit, data: StudyData, groups: Mapping[str, xr.Dataset]) -> float | None:
    r"""Return one minus the squared error of :math:`E[y_i \mid y_{-i}]`, divided by that of the mean of the others.

    The mean given a draw of the hyperparameters is averaged with the smoothed importance weights of leave-one-out.
    """
    model = fit.model
    own = isinstance(model, AbstractGPModel) and type(model).log_likelihood is AbstractGPModel.log_likelihood
    if not own:
        return None
    center, scale = data.standardization.target_center, data.standardization.target_scale
    means = center + scale * np.asarray(fit.map_draws(_held_out_mean)).reshape(-1, data.y.size)
    (densities,) = groups["log_likelihood"].data_vars.values()
    weights = arviz_data.held_out_weights(densities.transpose("chain", "draw", ...).values.reshape(means.shape))
    errors = data.y - np.sum(weights * means, axis=0)
    others = (data.y.sum() - data.y) / (data.y.size - 1)
    return float(1.0 - np.sum(errors**2) / np.sum((data.y - others) ** 2))


def _held_out_mean(model: AbstractGPModel, sample: dict[str, jax.Array], data: dict[str, jax.Array]) -> jax.Array:
    return model.held_out_mean(sample, data)
