"""The data sets that effects of interventions are learned from: treatments, outcomes and variables for adjustment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import shapiro

from kpp.data.tables import Schema, as_table, is_table, read_points
from kpp.foundation.validation import as_targets, check_same_rows
from kpp.kernels import RBF, median_heuristic
from kpp.linalg.toolkit import DenseRidge
from kpp.typing import Numbers


@dataclasses.dataclass(frozen=True)
class InterventionData:
    """A sample of treatments, outcomes and variables for adjustment; built by `InterventionData.create`.

    Args:
        treatment: X, (N, dx).
        outcome: Y, (N, dy).
        adjusting: Z, (N, dz): back-door covariates or front-door mediators; None without adjustment.
        treatment_schema: The names of the columns of X.
        outcome_schema: The names of the columns of Y.
        adjusting_schema: The names of the columns of Z, or None.

    Example:
        >>> data = kpp_models.InterventionData.create(dose[:, None], rate[:, None], age[:, None])
        >>> data.num_rows
        60
    """

    treatment: Float[Array, "N dx"]
    outcome: Float[Array, "N dy"]
    adjusting: Float[Array, "N dz"] | None
    treatment_schema: Schema
    outcome_schema: Schema
    adjusting_schema: Schema | None

    @classmethod
    def create(cls, treatment: Numbers, outcome: Numbers, adjusting: Numbers | None = None) -> InterventionData:
        """Read a sample.

        Args:
            treatment: X, an array (N, dx) or a data frame.
            outcome: Y, an array (N, dy) or a data frame.
            adjusting: Z, an array (N, dz) or a data frame; None without adjustment.

        Returns:
            The sample.

        Raises:
            ValueError: If the numbers of rows differ, or values are missing; the message names the argument.
        """
        x, treatment_schema = read_points(treatment, "treatment")
        y, outcome_schema = read_points(outcome, "outcome")
        check_same_rows(x.shape[0], y.shape[0], "treatment", "outcome")
        if adjusting is None:
            return cls(jnp.asarray(x), jnp.asarray(y), None, treatment_schema, outcome_schema, None)
        z, adjusting_schema = read_points(adjusting, "adjusting")
        check_same_rows(x.shape[0], z.shape[0], "treatment", "adjusting")
        schemas = treatment_schema, outcome_schema, adjusting_schema
        return cls(jnp.asarray(x), jnp.asarray(y), jnp.asarray(z), *schemas)

    @property
    def points(self) -> Float[Array, "N dx"]:
        """The treatments, at which predictions are made."""
        return self.treatment

    @property
    def num_rows(self) -> int:
        """The number of rows, N."""
        return self.treatment.shape[0]

    def normality(self) -> Float[np.ndarray, " dy"]:
        r"""Test whether the outcome is normal around a smooth mean, which `kpp_models.SamplingEffect` assumes.

        The test by Shapiro and Wilk of the leave-one-out residuals of kernel ridge regressions of each outcome on
        treatments and variables for adjustment, with an RBF kernel. Lengthscale and ridge have the smallest
        leave-one-out error among multiples of the median heuristic. The mean of a function of an outcome that has two
        peaks is wrong under a normal distribution, for any number of rows.

        Returns:
            The p-value of each column of the outcome, (dy,); a small one warns of sampling.

        Raises:
            ValueError: If there are fewer than 20 rows, or a column of the outcome is constant.
        """
        tables = [self.treatment] + ([] if self.adjusting is None else [self.adjusting])
        points, centered = jnp.concatenate(tables, axis=1), self.outcome - jnp.mean(self.outcome, axis=0, keepdims=True)
        if self.num_rows < 20 or not bool(jnp.all(jnp.any(centered != 0.0, axis=0))):
            raise ValueError(f"the outcome must have at least 20 rows that are not all equal, got {self.num_rows}")
        grams = [RBF(stretch * median_heuristic(points)).gram(points) for stretch in (0.1, 0.3, 1.0, 3.0)]
        ridges = self.num_rows * 10.0 ** np.arange(-5.0, 0.0)
        what = "the regularized kernel matrix of treatments and variables for adjustment"
        fits = [DenseRidge.create(gram, ridge, what=what) for gram in grams for ridge in ridges]
        residuals = np.array([fit.leave_one_out(centered) for fit in fits])
        best = np.argmin(np.sum(residuals**2, axis=1), axis=0)
        return np.array([shapiro(residuals[fit, :, column]).pvalue for column, fit in enumerate(best)])


def as_chain(x: object) -> tuple[InterventionData, ...]:
    """Return the data sets of a chain, at least one, in which each treatment is the outcome of the previous data set.

    A mapping of tables, the arguments of `InterventionData.create`, stands for a data set. Raises ValueError if `x`
    holds anything else, or a treatment lacks the columns of the outcome before.
    """
    given = tuple(x) if isinstance(x, Sequence) else (x,)
    chain = tuple(InterventionData.create(**part) if isinstance(part, Mapping) else part for part in given)
    strange = [type(part).__name__ for part in chain if not isinstance(part, InterventionData)]
    if strange or not chain:
        raise ValueError(
            "`x` must be kpp_models.InterventionData, or a sequence of them for a chain, got "
            f"{strange[0] if strange else 'an empty sequence'}; InterventionData.create makes one of tables"
        )
    for number, (first, second) in enumerate(zip(chain, chain[1:], strict=False), start=1):
        known, given = first.outcome_schema.feature_names, second.treatment_schema.feature_names
        if len(known) != len(given):
            raise ValueError(
                f"`x` must be a chain, where the treatment of one data set is the outcome of the one before: data set "
                f"{number} has {len(given)} columns of treatment, and the one before {len(known)} of outcome"
            )
    return chain


def read_mediators(last: InterventionData, mediators: Numbers | None, y: Numbers) -> tuple[Array, Array]:
    """Read the second data set: targets (M,), and the outcomes (M, dy) at which they were observed.

    Without `mediators` the targets were observed in the rows of `last`, the last data set of the chain. Raises
    ValueError if the numbers of rows or the columns do not fit.
    """
    targets = as_targets(y, name="y")
    if mediators is None:
        check_same_rows(last.num_rows, targets.shape[0], "x", "y")
        return last.outcome, targets
    if not is_table(as_table(mediators, "mediators")):
        places = read_points(mediators, "mediators")[0]
        if places.shape[1] != last.outcome.shape[1]:
            raise ValueError(
                f"`mediators` must have the {last.outcome.shape[1]} columns of the outcome, got shape {places.shape}"
            )
    else:
        places = last.outcome_schema.read(mediators, "mediators")
    check_same_rows(places.shape[0], targets.shape[0], "mediators", "y")
    return jnp.asarray(places), targets
