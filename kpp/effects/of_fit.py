"""The effect of a treatment by averaging a fitted Gaussian process over the covariates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Bool

from kpp.effects.effect import CausalEffect, curve_dataset
from kpp.effects.overlap import Assignment
from kpp.effects.regression import EffectRegression
from kpp.effects.treatment import TreatmentColumn
from kpp.inference import Fit
from kpp.tables import Scales
from kpp.typing import RngKey
from kpp.wording import named

if TYPE_CHECKING:
    from kpp.effects.question import EffectQuestion

__all__ = ["NUM_DRAWS", "EffectOptions", "check_fit", "effect_of_fit"]

NUM_DRAWS = 1000
_PARTS = ["function", "hyperparameters and covariates"]


@dataclasses.dataclass(frozen=True)
class EffectOptions:
    """Options of an effect.

    Args:
        at: The values of the treatment; None for the levels of a category, and 20 values of a number.
        rows: The rows of a subgroup, a mask (n,); None for all.
        num_draws: The least number of draws; None for the default of the method.
        bootstrap: Whether the law of the covariates is uncertain, by a Bayesian bootstrap.
        derivative: Whether to add the average derivative with respect to a treatment of numbers.
    """

    at: Sequence[Any] | None = None
    rows: Bool[np.ndarray, " n"] | None = None
    num_draws: int | None = None
    bootstrap: bool = True
    derivative: bool = False

    def subgroup(self, num_rows: int) -> Bool[np.ndarray, " n"]:
        """Return the mask of the rows of the subgroup, (n,).

        Raises:
            ValueError: If the rows are not a mask of this length.
        """
        mask = np.ones(num_rows, dtype=bool) if self.rows is None else np.asarray(self.rows)
        if mask.dtype != bool or mask.shape != (num_rows,) or not mask.any():
            raise ValueError(
                f"`rows` must be booleans of shape ({num_rows},), at least one of them True, got dtype {mask.dtype} "
                f"and shape {mask.shape}"
            )
        return mask

    def weights(self, rng_key: RngKey, shape: tuple[int, ...], mask: Bool[np.ndarray, " n"]) -> jax.Array:
        r"""Return weights of rows that sum to 1: Dirichlet(1, ..., 1) on the rows of the subgroup, or equal ones."""
        shape = (*shape, len(mask))
        numbers = jax.random.exponential(rng_key, shape) if self.bootstrap else jnp.ones(shape)
        numbers = jnp.where(jnp.asarray(mask), numbers, 0.0)
        return numbers / jnp.sum(numbers, axis=-1, keepdims=True)


def check_fit(fit: Fit, question: EffectQuestion) -> None:
    """Check that a fit can answer a question.

    Args:
        fit: The fit.
        question: The question.

    Raises:
        TypeError: If the fit is not one of a Gaussian process.
        ValueError: If the treatment is not one of its columns.
        CausalError: If its other columns are not an adjustment set.
    """
    if not fit.has_function_posterior:
        raise TypeError(f"`data` must be a fit of a Gaussian-process regression, got one of {type(fit.model).__name__}")
    names = [] if fit.schema is None else list(fit.schema.feature_names)
    if question.treatment not in names:
        raise ValueError(
            f"`treatment` must be a column of the fit, got {question.treatment!r}; its columns are {named(names)}"
        )
    question.check_covariates([name for name in names if name != question.treatment])


def effect_of_fit(
    rng_key: RngKey, fit: Fit, question: EffectQuestion, options: EffectOptions, *, scales: Scales | None = None
) -> CausalEffect:
    """Average a fitted regression of the outcome on treatment and covariates over the covariates of its training data.

    Args:
        rng_key: A JAX random key.
        fit: The fit, whose columns are the treatment and an adjustment set.
        question: The question.
        options: Further options.
        scales: The scales by which the columns of the fit were standardized, or None.
    """
    column = TreatmentColumn.of_fit(fit, question.treatment, scales)
    values, labels = column.settings(options.at)
    mask = options.subgroup(len(column.rows))
    regression = EffectRegression.of_fit(fit, column)
    shape = regression.posterior.batch_shape
    weight_key, draw_key, slope_key = jax.random.split(rng_key, 3)
    num_draws = -(-(options.num_draws or NUM_DRAWS) // math.prod(shape))
    weights = options.weights(weight_key, (*shape, num_draws), mask)
    whole = column.assignment(np.ones(len(mask), dtype=bool))
    group = whole if mask.all() else column.assignment(mask)
    count = group.effective_rows(values)
    draws, expected, of_function = regression.curves(draw_key, values, weights)
    dataset = curve_dataset(draws, count, values, labels)
    parts = np.stack([of_function, expected.var((0, 1, 2))])
    dataset["variance_parts"] = xr.DataArray(parts, {"part": _PARTS}, ("part", "treatment"))
    dataset.attrs = {
        "graph": str(question.graph),
        "treatment_name": question.treatment,
        "outcome": question.outcome,
        "adjustment": column.covariates,
        "bootstrap": int(options.bootstrap),
        "rows": int(mask.sum()),
        "estimand": question.adjusted(column.covariates),
        "method": "Gaussian process averaged over the covariates",
    }
    if options.derivative:
        dataset["average_derivative"] = ("chain", "draw"), regression.slopes(slope_key, weights)
    linear = len(column.levels) <= 2 and regression.mean_is_latent
    return CausalEffect(dataset, scale=_scale(fit, column, whole) if linear else None)


def _scale(fit: Fit, column: TreatmentColumn, assignment: Assignment) -> tuple[float, float, float]:
    """Return the mean of the treatment and the residual standard deviations of treatment and outcome."""
    fitted = np.asarray(fit.function()(jnp.asarray(column.rows))).mean((0, 1))
    outcome_sd = float(np.std(np.asarray(fit.data["y"]) - fitted))
    return float(column.treatment.mean()), assignment.residual_scale, outcome_sd
