"""A table with a question about an effect, which can be changed and asked again."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd

from kpp import registry
from kpp.effects.effect import CausalEffect
from kpp.effects.of_fit import EffectOptions, effect_of_fit
from kpp.effects.question import EffectQuestion
from kpp.inference import AbstractInference, Laplace
from kpp.kernels import default_kernel
from kpp.tables import Schema, standardize
from kpp.typing import RngKey
from kpp.validation import one_of

__all__ = ["EffectStudy"]

_HOW = ("placebo", "random common cause", "subset")
_RANDOM = "random_common_cause"


@dataclasses.dataclass(frozen=True)
class EffectStudy:
    """A data frame, a graph, and the effect of interest.

    Args:
        table: A data frame with columns for treatment, outcome and covariates.
        question: The question: graph, treatment and outcome.
        inference: The inference of the Gaussian process; by default `kpp.Laplace` with 250 draws.
        options: The options of the effect.
        further: Further covariates, columns of the table that are not in the graph.
    """

    table: pd.DataFrame
    question: EffectQuestion
    inference: AbstractInference | None
    options: EffectOptions
    further: tuple[str, ...] = ()

    def run(self, rng_key: RngKey) -> CausalEffect:
        """Fit a Gaussian process of the outcome, and average it."""
        fit_key, effect_key = jax.random.split(rng_key)
        covariates = self.question.find_covariates([str(column) for column in self.table.columns])
        names = [self.question.treatment, *covariates, *self.further]
        outcome = Schema((self.question.outcome,)).read(self.table, "data")[:, 0]
        scaled, scales = standardize(self.table[names], "data")
        center, width = outcome.mean(), outcome.std() or 1.0
        kernel = default_kernel(scales.schema)
        model = registry.get("models", "GPRegression")(kernel, noise_variance=dist.LogNormal(-1.0, 1.0))
        inference = Laplace(num_samples=250, progress=False) if self.inference is None else self.inference
        fit = model.fit(fit_key, scaled, (outcome - center) / width, inference=inference, num_prior_samples=0)
        found = effect_of_fit(effect_key, fit, self.question, self.options, scales=scales)
        return dataclasses.replace(found.rescaled(center, width), study=self)

    def changed(self, rng_key: RngKey, how: str) -> EffectStudy:
        """Return the study of a changed table; see `CausalEffect.refute`."""
        one_of(how, "how", _HOW)
        num_rows = len(self.table)
        if how == "subset":
            rows = np.sort(np.asarray(jax.random.permutation(rng_key, num_rows))[: max(2, 4 * num_rows // 5)])
            options = dataclasses.replace(
                self.options, rows=None if self.options.rows is None else self.options.rows[rows]
            )
            return dataclasses.replace(self, table=self.table.iloc[rows], options=options)
        if how == "placebo":
            order = np.asarray(jax.random.permutation(rng_key, num_rows))
            treatment = self.question.treatment
            shuffled = self.table[treatment].to_numpy()[order]
            return dataclasses.replace(self, table=self.table.assign(**{treatment: shuffled}))
        numbers = np.asarray(jax.random.normal(rng_key, (num_rows,)))
        table = self.table.assign(**{_RANDOM: numbers})
        return dataclasses.replace(self, table=table, further=(*self.further, _RANDOM))
