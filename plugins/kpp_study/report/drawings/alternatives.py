"""Text alternatives of figures: what they show, in numbers, for readers who cannot see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from kpp.explanations import Explanation
from kpp.foundation.wording import listed
from kpp.inspection import Curve
from kpp.plots.toolkit import importance_order, mean_absolute
from kpp_study.report.convergence import flatten
from kpp_study.report.numbers import counted, interval, number, short, short_name

_TAILS = (0.05, 0.95)
_MOST = 10  # names in one text


def target(y: np.ndarray, name: str) -> str:
    """Describe the histogram of a target (n,)."""
    low, middle, high = np.quantile(y, [0.25, 0.5, 0.75])
    return (
        f"Histogram of {short_name(name)}: {y.size} values from {number(y.min())} to {number(y.max())}, mean "
        f"{number(y.mean())}, median {number(middle)}, the middle half from {number(low)} to {number(high)}."
    )


def priors_and_posteriors(prior: xr.Dataset, posterior: xr.Dataset) -> str:
    """Describe the figure of hyperparameters by medians and intervals."""
    names = [str(name) for name in posterior.data_vars if name in prior.data_vars]
    lead = {old: new for old, new in (("prior_chain", "chain"), ("prior_draw", "draw")) if old in prior.dims}
    before = flatten(prior[names].rename(lead))
    parts = []
    for name, draws in flatten(posterior[names]).items():
        told = f"{short_name(name)} {short(float(np.median(draws)))} ({interval(np.quantile(draws, _TAILS))}"
        parts.append(f"{told}; prior {interval(np.quantile(before[name], _TAILS))})" if name in before else f"{told})")
    return (
        f"Posterior medians with 90% intervals, and those of the priors: {listed(parts, _MOST)}. The table under "
        "Convergence has all posteriors."
    )


def curves(found: Sequence[Curve]) -> str:
    """Describe curves by their means and intervals at the first and the last value."""
    parts = []
    for curve in found:
        ends = [
            f"{short(row['mean'])} ({interval((row['lower'], row['upper']))}) at {_value(value)}"
            for value, row in curve.summary().iloc[[0, -1]].iterrows()
        ]
        parts.append(f"{short_name(curve.attrs['feature'])} from {ends[0]} to {ends[1]}")
    return f"Curves of the mean prediction, with 90% intervals at their ends: {listed(parts, _MOST)}."


def _value(value: Any) -> str:
    return short(float(value)) if isinstance(value, (int, float)) else str(value)


def predictive_check(observed: np.ndarray, predictive: np.ndarray, name: str, coverage: float) -> str:
    """Describe the comparison of a target (n,) with draws of it, (s, n)."""
    means, spreads = (np.quantile(of_draw, _TAILS) for of_draw in (predictive.mean(axis=1), predictive.std(axis=1)))
    correlation = np.corrcoef(observed, predictive.mean(axis=0))[0, 1] if observed.size > 1 else np.nan
    return (
        f"Left: histograms. {short_name(name)} has mean {number(observed.mean())} and standard deviation "
        f"{number(observed.std())}; in 90% of the draws, data of the model have means from {interval(means)} and "
        f"standard deviations from {interval(spreads)}. Right: observed against predicted values, with correlation "
        f"{number(float(correlation), 2)}; {coverage:.0%} of the 90% intervals hold the observed value."
    )


def calibration(observed: np.ndarray, probability: np.ndarray, name: str) -> str:
    """Describe predicted probabilities (n,) and labels (n,) by ten groups of probabilities."""
    which = np.clip((10 * probability).astype(int), 0, 9)
    parts = [
        f"predicted {probability[chosen].mean():.2f}, observed {observed[chosen].mean():.2f} "
        f"({counted(int(chosen.sum()), 'row')})"
        for chosen in (which == index for index in np.unique(which))
    ]
    return (
        f"Predicted probabilities of {short_name(name)} against the share of ones, in groups of similar probability: "
        f"{'; '.join(parts)}."
    )


def leave_one_out(pareto_k: np.ndarray) -> str:
    """Describe the Pareto k of all rows, (n,)."""
    return (
        f"Pareto k of {pareto_k.size} rows: median {short(float(np.median(pareto_k)))}, largest "
        f"{short(float(pareto_k.max()))}; {int((pareto_k > 0.7).sum())} above 0.7."
    )


def beeswarm(explanation: Explanation, output: int | None) -> str:
    """Describe a beeswarm plot by the range of each contribution, the most important features first."""
    values = explanation.values if output is None else explanation.values.isel(output=output)
    mean = values.mean(("chain", "draw")) if explanation.has_draws else values
    means, names = mean.transpose("instance", "feature").values, explanation.feature_names
    ranges = [
        f"{short_name(names[j])} from {interval([means[:, j].min(), means[:, j].max()])}"
        for j in importance_order(mean_absolute(values))
    ]
    return f"Contributions to {len(means)} predictions by feature: {listed(ranges, _MOST)}."
