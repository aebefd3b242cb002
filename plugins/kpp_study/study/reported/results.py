"""Results for the report besides the groups of the fit: draws, probabilities, and leave-one-out."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr

from kpp.inference import AbstractModel, Fit
from kpp.priors import prior_sites
from kpp.storage import arviz_data
from kpp.typing import RngKey
from kpp_study.report.contents import Loo
from kpp_study.study.reading.data import StudyData

# The smallest number of draws for which leave-one-out weights and predictive intervals are accurate enough.
_ENOUGH_DRAWS = 100
_PREDICTIVE_DRAWS = 200  # made if the fit has fewer than `_ENOUGH_DRAWS`
_INFORMATIVE = 0.05  # the bound of Kallioinen et al. (2024), Statistics and Computing 34, for the sensitivity to priors
_PRIOR_DRAWS = 4000  # scalar draws are cheap, and a histogram of 4000 is smooth


def prior_draws(rng_key: RngKey, model: AbstractModel, groups: Mapping[str, xr.Dataset]) -> xr.Dataset | None:
    """Return draws from the prior of every hyperparameter, led by two axes of draws; None without a group `prior`.

    The group `prior` holds few draws, because each also needs a draw of the data. For a site whose prior is a field of
    the model, many more draws are cheap.
    """
    if "prior" not in groups:
        return None
    known: dict[str, Any] = {}
    for field in dataclasses.fields(model):
        known |= prior_sites(field.name, getattr(model, field.name))
    draws: dict[Any, Any] = {}
    for number, (name, few) in enumerate(groups["prior"].data_vars.items()):
        if name in known and known[name].event_shape == few.shape[2:]:
            many = known[name].sample(jax.random.fold_in(rng_key, number), (_PRIOR_DRAWS,))
            draws[name] = (("prior_chain", "prior_draw", *few.dims[2:]), np.asarray(many)[None])
        else:
            draws[name] = few
    return xr.Dataset(draws)


def prior_sensitivity(fit: Fit, groups: Mapping[str, xr.Dataset]) -> str:
    """Return a sentence on whether priors drive the result; empty if the fit has no or too few draws of them."""
    if "log_prior" not in groups or fit.num_chains * fit.num_draws < _ENOUGH_DRAWS or fit.fixed_sites:
        return ""
    found = arviz_data.prior_sensitivity(groups)
    if found is None:
        return "How sensitive the posterior is to the priors is not measured: this needs ArviZ 1 and Python 3.12."
    driven = [f"{name} ({value:.2f})" for name, value in found.items() if value > _INFORMATIVE]
    told = f"matters little for all hyperparameters: no sensitivity is above {_INFORMATIVE}"
    if driven:
        told = f"matters for {', '.join(driven)}: these sensitivities are above {_INFORMATIVE}"
    return f"The strength of all priors together {told}, in ArviZ's measure of power-scaling (psense)."


def predictive_draws(rng_key: RngKey, fit: Fit, data: StudyData, groups: Mapping[str, xr.Dataset]) -> np.ndarray | None:
    """Return draws of the target from the posterior predictive, in its own unit, of shape (s, n); None without any.

    The group `posterior_predictive` has one draw per posterior draw; if there are few, more are drawn.
    """
    replicates = groups.get("posterior_predictive")
    if replicates is not None and fit.num_chains * fit.num_draws >= _ENOUGH_DRAWS:
        values = next(iter(replicates.data_vars.values()))
        return values.transpose("chain", "draw", "instance").values.reshape(-1, data.y.size)
    if data.observed is None:  # draws at points are not draws of what was observed
        return None
    draws = fit.sample_predictive(rng_key, data.points, _PREDICTIVE_DRAWS)
    return data.units.target_center + data.units.target_scale * draws.transpose("sample", "instance").values


def probabilities(fit: Fit, data: StudyData) -> np.ndarray | None:
    """Return the predicted probability of label 1 for each row or pair, or None if the model has no probabilities."""
    if not data.is_label or data.observed is None:
        return None
    predicted = fit.predict(data.points if data.match is None else data.points.inputs)
    return predicted["probability"].mean(("chain", "draw")).values if "probability" in predicted else None


def leave_one_out(
    fit: Fit, data: StudyData, groups: Mapping[str, xr.Dataset], *, of_labels: bool
) -> tuple[Loo | None, str]:
    """Return the leave-one-out estimate, or None and the reason why it is not available.

    The fit is in the model's units, and its groups in the units of the data; `of_labels` says whether the model
    predicts the probability of a label.
    """
    draws = groups["posterior"].sizes.get("chain", 1) * groups["posterior"].sizes.get("draw", 1)
    if "log_likelihood" not in groups:
        return None, "the model gives no pointwise log likelihood."
    if draws < _ENOUGH_DRAWS:
        return None, f"it needs at least {_ENOUGH_DRAWS} posterior draws, and there are {draws}."
    with warnings.catch_warnings():  # the report shows high values of Pareto k
        warnings.simplefilter("ignore", UserWarning)
        result = arviz_data.loo(arviz_data.from_groups(groups))
    skill: dict[str, Any] = {}
    if data.is_table:
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
    if not fit.model.observes_points:
        return None
    center, scale = data.units.target_center, data.units.target_scale
    held_out = fit.map_draws(lambda model, sample, data: model.held_out_mean(sample, data))
    means = center + scale * np.asarray(held_out).reshape(-1, data.y.size)
    (densities,) = groups["log_likelihood"].data_vars.values()
    weights = arviz_data.held_out_weights(densities.transpose("chain", "draw", ...).values.reshape(means.shape))
    errors = data.y - np.sum(weights * means, axis=0)
    others = (data.y.sum() - data.y) / (data.y.size - 1)
    return float(1.0 - np.sum(errors**2) / np.sum((data.y - others) ** 2))
