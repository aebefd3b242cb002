"""Scores of features, such as Sobol indices and importances, as labeled draws."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from kpp.explanations.toolkit import load_shap
from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import one_of
from kpp.plots import credible_interval
from kpp.plots.toolkit import IntervalKind, scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class FeatureScores:
    """Numbers of each feature or group of features, with their uncertainty.

    Args:
        dataset: One variable for each measure, draws with dims (chain, draw, feature). Its attribute ``uncertainty``
            says what the draws carry; the attribute ``unit`` of a variable is its unit.
    """

    dataset: xr.Dataset

    def __repr__(self) -> str:
        """Return the measures, and what their draws carry."""
        return f"FeatureScores: {self.dataset!r}\nuncertainty: {self.dataset.attrs['uncertainty']}"

    def __getitem__(self, measure: str) -> xr.DataArray:
        """Return the draws of a measure, (chain, draw, feature)."""
        return self.dataset[one_of(measure, "measure", tuple(self.dataset.data_vars))]

    def summary(self, probability: float = 0.9) -> pd.DataFrame:
        """Return mean, standard deviation and interval of equal tails for each measure and feature.

        Args:
            probability: The probability of the interval.
        """
        tables = {str(name): _summary(draws, probability) for name, draws in self.dataset.data_vars.items()}
        return pd.concat(tables, names=["measure"])

    def probability_greater(self, a: str, b: str, measure: str) -> float:
        """Return the share of draws in which the score of feature `a` is greater than that of `b`.

        Args:
            a: The name of a feature.
            b: The name of another feature.
            measure: The name of the measure.
        """
        names = tuple(self.dataset["feature"].to_numpy().tolist())
        first, second = (self[measure].sel(feature=one_of(name, where, names)) for name, where in ((a, "a"), (b, "b")))
        return float((first > second).mean())

    def plot(
        self,
        measure: str,
        *,
        probability: float = 0.9,
        kind: IntervalKind = "eti",
        max_features: int = 10,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot a measure as bars of the posterior means with intervals, the largest first, and return the axis.

        Args:
            measure: The name of the measure.
            probability: The probability of the intervals.
            kind: Their kind, "eti" (equal-tailed) or "hdi" (highest density).
            max_features: How many features are shown.
            ax: Where to draw; a new figure by default.
        """
        draws = self[measure]
        unit = draws.attrs.get("unit")
        label = measure.replace("_", " ") + (f" ({unit})" if unit else "")
        return scores(draws, label=label, probability=probability, kind=kind, max_features=max_features, ax=ax)

    def to_shap(self, measure: str, *, probability: float = 0.9, kind: IntervalKind = "eti") -> Any:
        """Return the posterior means of a measure as a ``shap.Explanation``, (feature,), with the bounds of intervals.

        ``shap.plots.bar`` takes it. The attributes ``lower_bounds`` and ``upper_bounds`` hold the intervals.

        Args:
            measure: The name of the measure.
            probability: The probability of the intervals.
            kind: Their kind, "eti" or "hdi".

        Raises:
            ImportError: If shap is not installed.
        """
        draws = self[measure]
        bounds = credible_interval(draws, probability, kind).to_numpy()
        return load_shap().Explanation(
            values=draws.mean(("chain", "draw")).to_numpy(),
            base_values=0.0,
            data=np.full(draws.sizes["feature"], np.nan),
            feature_names=[str(name) for name in draws["feature"].to_numpy()],
            lower_bounds=bounds[..., 0],
            upper_bounds=bounds[..., 1],
        )


def _summary(draws: xr.DataArray, probability: float) -> pd.DataFrame:
    bounds = credible_interval(draws, probability).to_numpy()
    tails = [50 * (1 - probability), 50 * (1 + probability)]
    columns = {
        "mean": draws.mean(("chain", "draw")).to_numpy(),
        "sd": draws.std(("chain", "draw"), ddof=1).to_numpy(),
        f"{tails[0]:g} %": bounds[..., 0],
        f"{tails[1]:g} %": bounds[..., 1],
    }
    return pd.DataFrame(columns, index=pd.Index(draws["feature"].to_numpy(), name="feature"))


guard_exports(globals())
