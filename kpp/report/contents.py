"""What a report is made of: plain values, so that whoever runs a study need not know how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from kpp.explanations import Explanation

__all__ = ["Column", "DataSummary", "Loo", "ReportContents"]


@dataclass(frozen=True)
class Column:
    """A feature in its own unit, as the report's table shows it; of a category only the levels count."""

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
        target: The name of the target.
        y: The target in its own unit, of shape (n,).
        columns: The features.
        scaling: How the model's units follow from those of the file, in a sentence.
        warnings: What a reader should know about the data, a sentence each.
    """

    file: str
    target: str
    y: np.ndarray
    columns: Sequence[Column]
    scaling: str
    warnings: Sequence[str] = ()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.y.size


@dataclass(frozen=True)
class Loo:
    """The result of leave-one-out cross-validation: elpd, its standard error, effective parameters, Pareto k (n,)."""

    elpd: float
    se: float
    p: float
    pareto_k: np.ndarray

    @property
    def n(self) -> int:
        """The number of observations."""
        return self.pareto_k.size

    @property
    def high(self) -> int:
        """How many rows have a Pareto k above 0.7, beyond which importance sampling can't be trusted."""
        return int((self.pareto_k > 0.7).sum())


@dataclass(frozen=True)
class ReportContents:
    """Everything a report shows.

    Attributes:
        title: Its title.
        created: When the study was run, as text.
        data: The data.
        model: The model as text, and before it the name of its class.
        units: In which units the hyperparameters are, in a sentence.
        inference: How the model was fitted, in a sentence.
        markov_chain: Whether the draws come from a Markov chain, which R-hat can judge.
        posterior: The group `posterior`.
        prior: The group `prior`, or None.
        sample_stats: The group `sample_stats`, or None.
        predictive: Draws of the target from the posterior predictive, in its own unit, of shape (s, n), or None.
        probability: For a class label its predicted probability of being 1, of shape (n,), or None.
        loo: The leave-one-out result, or None where it can't be had; then `loo_reason` says why.
        loo_reason: Why there is no `loo`.
        explanation: What was explained, in the target's unit.
        explained: How, in a sentence.
        value_unit: The unit of the contributions, in words.
        waterfalls: The positions in `explanation` of the rows to show one by one.
        provenance: What was computed and with what, by name.
        versions: Versions of the packages.
        source: The study file.
    """

    title: str
    created: str
    data: DataSummary
    model: tuple[str, str]
    units: str
    inference: str
    markov_chain: bool
    posterior: xr.Dataset
    prior: xr.Dataset | None
    sample_stats: xr.Dataset | None
    predictive: np.ndarray | None
    probability: np.ndarray | None
    loo: Loo | None
    loo_reason: str
    explanation: Explanation
    explained: str
    value_unit: str
    waterfalls: Sequence[int]
    provenance: Mapping[str, str]
    versions: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
