"""The effect of a treatment from which no directed path leads to the outcome: none, the curve is flat."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kpp.data.tables import read_points
from kpp.typing import RngKey
from kpp_models.treatments.effect import CausalEffect, curve_dataset
from kpp_models.treatments.options import NUM_DRAWS, EffectOptions
from kpp_models.treatments.treatment import TreatmentColumn

if TYPE_CHECKING:
    from kpp_models.treatments.question import EffectQuestion


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
