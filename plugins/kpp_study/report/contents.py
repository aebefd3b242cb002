"""The contents of a report as plain values, so that the code of studies does not depend on how they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from kpp.explanations import Explanation
from kpp_study.report.rows import Predicted

if TYPE_CHECKING:
    from kpp.inspection import Curve


@dataclass(frozen=True)
class ColumnSummary:
    """A feature in its own unit, as in the report's table; for a category only the levels are used."""

    name: str
    mean: float
    sd: float
    low: float
    high: float
    levels: str = ""

    @property
    def kind(self) -> str:
        """The kind of the column in words."""
        return "category" if self.levels else "number"


@dataclass(frozen=True)
class DataSummary:
    """The data of a study.

    Attributes:
        file: The name of the file.
        counted: How much data there is, such as "442 rows".
        target: The name of the target.
        y: The target in its own unit, of shape (n,).
        columns: The features.
        scaled: Which columns were shifted and scaled for the model, in words; empty if none were.
        warnings: Warnings about the data for the reader, one sentence each.
    """

    file: str
    counted: str
    target: str
    y: np.ndarray
    columns: Sequence[ColumnSummary]
    scaled: str
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Loo:
    """The result of leave-one-out cross-validation.

    Attributes:
        elpd: The sum of the log predictive densities of the rows, each left out.
        se: Its standard error.
        p: The effective number of parameters.
        pointwise: The log predictive density of each row, (n,).
        pareto_k: Pareto k of each row, (n,).
        baseline: The mean log density without features: of the shares of the classes, or of a normal distribution with
            the mean and the standard deviation of the target. None if it is not known.
        r_squared: The share of the variance explained in rows that were left out; None if it is not known.
    """

    elpd: float
    se: float
    p: float
    pointwise: np.ndarray
    pareto_k: np.ndarray
    baseline: float | None = None
    r_squared: float | None = None

    @property
    def n(self) -> int:
        """The number of observations."""
        return self.pareto_k.size

    @property
    def log_score(self) -> float:
        """The mean log predictive density of a row."""
        return self.elpd / self.n

    @property
    def share_right(self) -> float:
        """Of labels, the share to which more than half of the probability was given."""
        return float(np.mean(self.pointwise > np.log(0.5)))

    @property
    def high(self) -> int:
        """The number of rows with a Pareto k above 0.7, for which importance sampling is not reliable."""
        return int((self.pareto_k > 0.7).sum())


@dataclass(frozen=True)
class ReportContents:
    """All contents of a report.

    Attributes:
        title: The title of the report.
        created: When the study was run, as text.
        data: The data.
        model: The name of the model's class, then the model as text.
        inference: How the model was fitted, as a sentence.
        approximates: Whether the draws come from a fitted approximation, for which R-hat has no meaning.
        posterior: The group `posterior`.
        latent: The sampled sites of the group `latent`.
        sensitivity: How much the priors matter, as a sentence.
        prior: The group `prior`, or None.
        sample_stats: The group `sample_stats`, or None.
        predictive: Draws of the target from the posterior predictive, in its own unit, of shape (s, n), or None.
        probability: The predicted probability of label 1, of shape (n,), or None if the target is not a label.
        further: What is predicted for each explained row in addition to what is explained, or None.
        loo: The leave-one-out result, or None if it is not available; then `loo_reason` says why.
        loo_reason: The reason why `loo` is None.
        explanation: The explanation, in the target's unit.
        explained: What was explained and how, as a sentence.
        value_unit: The unit of the contributions, in words.
        waterfalls: The positions in `explanation` of the rows that get a waterfall; at most 200 are drawn.
        observed: For each explained row what was observed, as text; None if the target was not observed in these rows.
        provenance: Facts about the computation, by name.
        versions: Versions of the packages.
        source: The text of the study file.
        curves: The curves of the most important features, in the units of the table; empty if there are none.
        certificate: What `kpp.certify` found, as a sentence; empty if it was not asked.
    """

    title: str
    created: str
    data: DataSummary
    model: tuple[str, str]
    inference: str
    approximates: bool
    posterior: xr.Dataset
    latent: xr.Dataset
    sensitivity: str
    prior: xr.Dataset | None
    sample_stats: xr.Dataset | None
    predictive: np.ndarray | None
    probability: np.ndarray | None
    further: Predicted | None
    loo: Loo | None
    loo_reason: str
    explanation: Explanation
    explained: str
    value_unit: str
    waterfalls: Sequence[int]
    observed: Sequence[str] | None
    provenance: Mapping[str, str]
    versions: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    curves: Sequence[Curve] = ()
    certificate: str = ""
