"""The contents of a report as plain values, so that the code of studies does not depend on how they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from kpp.explanations import Explanation
from kpp.inspection import Curve
from kpp_study.report.rows import Predicted


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
    """The data of a study."""

    file: str
    counted: str  # how much data there is, such as "442 rows"
    target: str
    y: np.ndarray  # the target in its own unit
    columns: Sequence[ColumnSummary]
    scaled: str  # which columns were shifted and scaled for the model, in words; empty if none were
    warnings: Sequence[str] = ()  # for the reader, one sentence each


@dataclass(frozen=True)
class Loo:
    """The result of leave-one-out cross-validation.

    The baseline is that of the shares of the classes, or of a normal distribution with the mean and the standard
    deviation of the target.
    """

    elpd: float  # the sum of the log predictive densities of the rows, each left out
    se: float  # its standard error
    p: float  # the effective number of parameters
    pointwise: np.ndarray
    pareto_k: np.ndarray
    baseline: float | None = None  # the mean log density without features; None if it is not known
    r_squared: float | None = None  # the share of the variance explained in rows that were left out

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
    """All contents of a report."""

    title: str
    created: str  # when the study was run
    data: DataSummary
    model: tuple[str, str]  # the name of its class, then the model as text
    inference: str
    approximates: bool  # whether the draws come from a fitted approximation, for which R-hat has no meaning
    posterior: xr.Dataset
    latent: xr.Dataset  # the sampled sites of the group `latent`
    sensitivity: str  # how much the priors matter, as a sentence
    prior: xr.Dataset | None
    sample_stats: xr.Dataset | None
    predictive: np.ndarray | None  # draws of the target in its own unit, (s, n)
    probability: np.ndarray | None  # the predicted probability of label 1, (n,); None if the target is not a label
    further: Predicted | None  # what is predicted for each explained row besides what is explained
    loo: Loo | None  # None if it is not available; then `loo_reason` says why
    loo_reason: str
    explanation: Explanation  # in the target's unit
    explained: str  # what was explained and how, as a sentence
    value_unit: str  # of the contributions, in words
    waterfalls: Sequence[int]  # the positions in `explanation` of the rows that get one
    observed: Sequence[str] | None  # for each explained row; None if the target was not observed in these rows
    provenance: Mapping[str, str]
    versions: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    curves: Sequence[Curve] = ()  # of the most important features, in the units of the table
    effects: Sequence[str] = ()  # of a treatment, whose curve is the first, one paragraph each
    certificate: str = ""  # what `kpp.certify` found, as a sentence; empty if it was not asked
