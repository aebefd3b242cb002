"""Effects without an adjustment set: by the embedding of an expression, and none where no path leads to the outcome."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import pandas as pd

from kpp.data.tables import read_points
from kpp.embeddings import EstimandEmbedding
from kpp.typing import RngKey
from kpp_models.treatments.effect import CausalEffect, curve_dataset
from kpp_models.treatments.options import NUM_DRAWS, EffectOptions
from kpp_models.treatments.overlap import effective_rows
from kpp_models.treatments.treatment import TreatmentColumn, refuse_constant

if TYPE_CHECKING:
    from kpp_models.treatments.question import EffectQuestion

_NUM_DRAWS = 200
# With iterated regularization the draws have little bias.
_ITERATIONS = 3
_METHOD = "embedding of the expression with draws of the half-sample bootstrap"
_FRACTION = " and the generalized jackknife, because the expression is a fraction"


def no_effect(rng_key: RngKey, table: pd.DataFrame, question: EffectQuestion, options: EffectOptions) -> CausalEffect:
    r"""Return the curve :math:`\mathrm{E}[Y \mid do(t)] = \mathrm{E}[Y]`, with draws of the mean outcome.

    The draws are those of a Bayesian bootstrap of the outcome, the same at each value of the treatment, whatever the
    options say: nothing else is uncertain. All rows tell about each value.
    """
    outcome, _ = question.read_outcome(table)
    points, schema = read_points(table[[*question.treatments]], "data")
    column = TreatmentColumn(points, schema, 0 if isinstance(question.treatment, str) else np.arange(points.shape[1]))
    mask = options.subgroup(column)
    if options.policies is not None:
        plan = options.read_policies(column, table)
        values, labels = plan.expect(plan.values)[:, mask].mean(axis=1), plan.names
    else:
        values, labels = column.settings(options.at)
    weights = dataclasses.replace(options, bootstrap=True).weights(rng_key, (1, options.num_draws or NUM_DRAWS), mask)
    means = np.asarray(weights) @ outcome
    draws = np.repeat(means[..., None], len(values), axis=-1)
    dataset = curve_dataset(draws, np.full(len(values), float(mask.sum())), values, labels)
    if options.derivative:
        dataset["average_derivative"] = ("chain", "draw"), np.zeros_like(means)
    dataset.attrs = question.attributes(column.name, int(mask.sum())) | {
        "estimand": str(question.identify([str(column) for column in table.columns])),
        "method": "mean of the outcome, on which the treatment has no effect in the graph",
    }
    return CausalEffect(dataset)


def effect_of_expression(
    rng_key: RngKey, table: pd.DataFrame, question: EffectQuestion, options: EffectOptions
) -> CausalEffect:
    """Identify an effect from the columns of a table, and draw the embedding of its expression from resampled rows.

    Columns that the expression does not hold are ignored. Raises NotCoveredError if the embedding does not cover the
    expression, and ValueError if a column holds more than two levels, or is invalid.
    """
    estimand = question.identify([str(column) for column in table.columns])
    outcome, _ = question.read_outcome(table)
    names = sorted(estimand.variables | {question.treatment, question.outcome})
    points, schema = read_points(table[names], "data")
    # The codes of more than two levels are no numbers.
    many = {name: list(levels) for name, levels in schema.levels.items() if len(levels) > 2}
    if many:
        raise ValueError(
            f"`data` must hold numbers, booleans or categories of two levels in the columns of an effect without an "
            f"adjustment set, got {many}"
        )
    column = TreatmentColumn(points, schema, schema.index(question.treatment))
    refuse_constant(column.treatment, column.name)
    values, labels = column.settings(options.at)
    coded = pd.DataFrame(points, columns=names)
    embedding = EstimandEmbedding.from_estimand(estimand, coded, [question.outcome], [question.treatment])
    center, width = outcome.mean(), outcome.std()  # the regressions shrink to 0
    query, num_draws = jnp.asarray(values)[:, None], options.num_draws or _NUM_DRAWS
    standardized = (outcome - center) / width
    fraction = any(law.chain for law in embedding.chain.factors)
    draws = embedding.bootstrap(
        rng_key, standardized, query, num_draws=num_draws, num_iterations=_ITERATIONS, extrapolate=fraction
    )
    # The rows near a value, whatever their other columns.
    near = effective_rows(column.treatment, np.zeros((len(points), 0)), None, values, is_number=column.is_number)
    dataset = curve_dataset(draws.to_numpy() * width + center, near, values, labels)
    dataset.attrs = question.attributes(question.treatment, len(table)) | {
        "estimand": str(estimand),
        "method": _METHOD + _FRACTION * fraction,
    }
    return CausalEffect(dataset)
