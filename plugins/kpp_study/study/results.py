"""Results for the report besides the groups of the fit: prior and predictive draws, and probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr

from kpp.inference import AbstractModel, Fit
from kpp.preferences import Matches
from kpp.priors import prior_sites
from kpp.typing import RngKey
from kpp_study.study.data import StudyData

#: The smallest number of draws for which leave-one-out weights and predictive intervals are accurate enough.
ENOUGH_DRAWS = 100
_PREDICTIVE_DRAWS = 200  # made if the fit has fewer than `ENOUGH_DRAWS`
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


def predictive_draws(rng_key: RngKey, fit: Fit, data: StudyData, groups: Mapping[str, xr.Dataset]) -> np.ndarray | None:
    """Return draws of the target from the posterior predictive, in its own unit, of shape (s, n); None without any.

    The group `posterior_predictive` has one draw per posterior draw; if there are few, more are drawn.
    """
    replicates = groups.get("posterior_predictive")
    if replicates is not None and fit.num_chains * fit.num_draws >= ENOUGH_DRAWS:
        values = next(iter(replicates.data_vars.values()))
        return values.transpose("chain", "draw", "instance").values.reshape(-1, data.y.size)
    if not data.observes_rows:  # draws at points are not draws of what was observed
        return None
    scaling = data.standardization
    draws = fit.sample_predictive(rng_key, data.model_frame(), _PREDICTIVE_DRAWS)
    return scaling.target_center + scaling.target_scale * draws.transpose("sample", "instance").values


def probabilities(fit: Fit, data: StudyData) -> np.ndarray | None:
    """Return the predicted probability of label 1 for each row or pair, or None if the model has no probabilities."""
    if not data.is_label or not data.observes_rows:
        return None
    matches = data.training if isinstance(data.training, Matches) else None
    predicted = fit.predict(data.model_frame() if matches is None else matches.inputs)
    if "probability" not in predicted:
        return None
    return predicted["probability"].mean(("chain", "draw")).values
