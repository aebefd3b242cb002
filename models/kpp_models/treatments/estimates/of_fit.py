"""The effect of a treatment by averaging a fitted Gaussian process over the covariates."""

from __future__ import annotations

import functools
import math
import warnings
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from kpp.causal import CausalError
from kpp.explanations import DrawFunction
from kpp.foundation.caution import KppWarning
from kpp.foundation.wording import named
from kpp.inference import Fit
from kpp.typing import RngKey
from kpp_models.tables.queries import sample_function
from kpp_models.treatments.averaging.responses import mean_response
from kpp_models.treatments.effect import CausalEffect, curve_dataset
from kpp_models.treatments.options import NUM_DRAWS, EffectOptions
from kpp_models.treatments.overlap import Assignment
from kpp_models.treatments.regression import EffectRegression, OutcomeFit
from kpp_models.treatments.treatment import TreatmentColumn

if TYPE_CHECKING:
    from kpp_models.treatments.question import EffectQuestion

_PARTS = ["function", "hyperparameters and covariates", "left out by inducing points, within function"]
_UNCERTAINTY = {
    True: "of hyperparameters, function and covariates (Bayesian bootstrap): the effect is that in the population",
    False: "of hyperparameters and function: the effect is that on these rows",
}
# A policy is warned about if fewer rows than this share get treatments that are common among similar rows.
_MOST_ROWS = 0.9
# Means and covariances of drawn functions are exact for any number of frequencies, and the time grows with it.
_NUM_FREQUENCIES = 100
_METHOD = "Gaussian process averaged over the covariates"
_CORRECTED = ", with a doubly robust correction by leave-one-out residuals"
_BY_INDUCING = (
    ", by inducing points; `variance_parts` has the variance of what these leave out, which the intervals contain"
)
_CAUTION = (
    "where few rows have a value of the treatment, the effect tends to the one that all rows share; an interval is too "
    "narrow if the effect is largest there; `doubly_robust` is an option for this case"
)


def check_fit(fit: Fit, question: EffectQuestion) -> None:
    """Check that a fit can answer a question.

    Raises TypeError if it is not one of a Gaussian process, ValueError if the treatment is not one of its columns, and
    CausalError if its other columns are not an adjustment set.
    """
    if not fit.has_function_posterior:
        raise TypeError(f"`data` must be a fit of a Gaussian-process regression, got one of {type(fit.model).__name__}")
    names = [] if fit.schema is None else list(fit.schema.feature_names)
    if not {*question.treatments} <= {*names}:
        raise ValueError(
            f"`treatment` must be a column of the fit, got {question.treatment!r}; its columns are {named(names)}"
        )
    question.check_covariates([name for name in names if name not in question.treatments])


def effect_of_fit(
    rng_key: RngKey, fit: Fit, question: EffectQuestion, options: EffectOptions, *, found: OutcomeFit | None = None
) -> CausalEffect:
    """Average a fitted regression of the outcome on treatment and covariates over the covariates of its training data.

    The columns of the fit are the treatment and an adjustment set, in the units of the data or `found` standardized.
    """
    column = TreatmentColumn.of_fit(fit, question.treatment, None if found is None else found.scales)
    mask = options.subgroup(column)
    regression = EffectRegression.of_fit(fit, column)
    shape = regression.posterior.batch_shape
    weight_key, draw_key, slope_key = jax.random.split(rng_key, 3)
    num_draws = -(-(options.num_draws or NUM_DRAWS) // math.prod(shape))
    left_out: list[Any] = []
    if by_inducing := regression.is_by_inducing:
        options.check_by_inducing(column.name)
    if options.policies is not None:
        changed = question.graph.descendants(question.treatment) & {*column.covariates}
        if changed:
            raise CausalError(f"`policies` need covariates that the treatment does not change, unlike {named(changed)}")
        plan = options.read_policies(column, _rows(column, found))
        values, labels = plan.expect(plan.values)[:, mask].mean(axis=1), plan.names
        count = plan.expect(column.assignment().is_common(plan.values))[:, mask].sum(axis=1)
        shares = [f"{share:.0%} under {name!r}" for name, share in zip(labels, count / mask.sum(), strict=True)]
        if min(count) < _MOST_ROWS * mask.sum():
            warnings.warn(
                "a policy leaves the data: the share of the rows whose treatment is common among similar rows is "
                f"{', '.join(shares)}; in the other rows the effect is an extrapolation and rests on the prior",
                KppWarning,
                stacklevel=3,
            )
        weights = options.weights(weight_key, (*shape, num_draws), mask)
        draws, expected, of_function = regression.curves(draw_key, plan.values, weights, jnp.asarray(plan.chances))
    else:
        values, labels = column.settings(options.at)
        count = column.effective_rows(values, mask)
        if by_inducing:
            curves = regression.many_rows_curves(draw_key, values, num_draws, mask, bootstrap=options.bootstrap)
            draws, expected, (of_function, *left_out) = curves
        else:
            weights = options.weights(weight_key, (*shape, num_draws), mask)
            draws, expected, of_function = regression.curves(draw_key, values, weights)
            if options.doubly_robust:
                shifts = regression.corrections(weights, column.assignment().weights(values))
                draws, expected = draws + shifts.reshape(draws.shape), expected + shifts
    dataset = curve_dataset(draws, count, values, labels)
    parts = np.stack([of_function, expected.var((0, 1, 2)), *left_out])
    dataset["variance_parts"] = xr.DataArray(parts, {"part": _PARTS[: len(parts)]}, ("part", "treatment"))
    dataset.attrs = question.attributes(column.name, int(mask.sum()), bootstrap=options.bootstrap) | {
        "adjustment": column.covariates,
        "estimand": question.adjusted(column.covariates),
        "method": _METHOD + (_BY_INDUCING if by_inducing else _CORRECTED * options.doubly_robust),
        "uncertainty": _UNCERTAINTY[options.bootstrap],
    }
    if not options.doubly_robust:
        dataset.attrs["caution"] = _CAUTION
    if options.by_row:
        row_key = jax.random.fold_in(slope_key, 0)
        of_rows = regression.of_rows(row_key, values, num_draws, mask)
        dataset = dataset.assign_coords(row=np.flatnonzero(mask))
        dataset["effect_of_rows"] = ("chain", "draw", "row", "treatment"), of_rows
    if options.derivative:
        dataset["average_derivative"] = ("chain", "draw"), regression.slopes(slope_key, weights)
    linear = len(column.levels) <= 2 and np.ndim(column.index) == 0 and regression.mean_is_latent
    no_function = options.policies is not None or np.ndim(column.index) or not column.covariates
    return CausalEffect(
        dataset,
        scale=_scale(fit, column, column.assignment()) if linear else None,
        function_of_covariates=None if no_function else functools.partial(_contrast_function, fit, column, found),
    )


def _contrast_function(
    fit: Fit,
    column: TreatmentColumn,
    found: OutcomeFit | None,
    rng_key: RngKey,
    codes: Float[np.ndarray, " 2"],
    num_draws: int,
) -> tuple[DrawFunction, pd.DataFrame]:
    """Draw functions of the covariates, the contrasts of two treatments; return them with the covariates of all rows.

    The treatments are numbers or codes.
    """
    regression = EffectRegression.of_fit(fit.thin(num_draws)[0], column)
    keys = jax.random.split(rng_key, -(-num_draws // math.prod(regression.posterior.batch_shape)))
    functions = [sample_function(key, regression.posterior, num_frequencies=_NUM_FREQUENCIES) for key in keys]
    schema = column.schema.select(column.covariates)
    arrays, static = eqx.partition(regression.likelihood, eqx.is_array)
    center, scale, width = np.zeros(1), np.ones(1), 1.0
    if found is not None:
        center, scale = (np.delete(part, column.index) for part in (found.scales.center, found.scales.scale))
        width = found.width

    first, second = column.scaled(codes)
    respond = jax.vmap(jax.vmap(lambda law, f: mean_response(eqx.combine(law, static), f)))

    def response(points: np.ndarray, treatment: float) -> np.ndarray:
        rows = jnp.asarray(np.insert(points, column.index, treatment, axis=1))
        latent = [drawn(rows) for drawn in functions]
        return np.concatenate(latent if regression.mean_is_latent else [respond(arrays, f) for f in latent], axis=1)

    def contrast(frame: pd.DataFrame) -> np.ndarray:
        points = (np.asarray(schema.read(frame, "x")) - center) / scale
        return width * (response(points, first) - response(points, second))

    covariates = _rows(column, found)[column.covariates]
    return DrawFunction(contrast, table=covariates), covariates


def _rows(column: TreatmentColumn, found: OutcomeFit | None) -> pd.DataFrame:
    """Return treatment and covariates of the rows of a fit in the units of the table."""
    if found is not None:
        return found.features
    return pd.DataFrame(column.schema.decode(column.rows)).astype(dict.fromkeys(column.schema.booleans, bool))


def _scale(fit: Fit, column: TreatmentColumn, assignment: Assignment) -> tuple[float, float, float]:
    """Return the mean of the treatment and the residual standard deviations of treatment and outcome."""
    fitted = np.asarray(fit.function()(jnp.asarray(column.rows))).mean((0, 1))
    outcome_sd = float(np.std(np.asarray(fit.data["y"]) - fitted))
    return float(column.treatment.mean()), assignment.residual_scale, outcome_sd
