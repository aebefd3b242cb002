"""Convergence of the sampler: R-hat, effective sample sizes and divergences, with a verdict in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from kpp_study.report.pages import render_text

#: The bounds of the verdicts. R-hat below 1.01 and 400 effective draws: Vehtari et al. (2021), "Rank-normalization,
#: folding, and localization", Bayesian Analysis 16(2), section 4. With R-hat up to 1.05 and at least 100 effective
#: draws, posterior means are usable, tails less so.
GOOD_RHAT, USABLE_RHAT = 1.01, 1.05
GOOD_ESS, USABLE_ESS = 400, 100
_FEWEST_DRAWS = 4  # of a chain, for R-hat of its halves
_ONE_VALUE = "one best value"  # the verdict on hyperparameters at their mode, or of a single draw
_LONGEST = 20  # numbers of a site that are listed one by one


@dataclass(frozen=True)
class Parameter:
    """One scalar parameter of the posterior; diagnostics are NaN where they are not defined."""

    name: str  # the site, with the coordinates of an entry of a vector: kernel.lengthscale[bmi]
    mean: float
    sd: float
    lower: float  # of the 90% equal-tailed interval
    upper: float
    rhat: float
    ess_bulk: float
    ess_tail: float
    verdict: str  # "good", "usable" or "not converged"; empty if there is nothing to judge

    @property
    def bounds(self) -> tuple[float, float]:
        """Both ends of the interval."""
        return self.lower, self.upper


@dataclass(frozen=True)
class Convergence:
    """The verdict on a posterior.

    The numbers of a long site are one parameter, without mean and interval, with the largest R-hat and the smallest
    effective sample sizes.
    """

    parameters: tuple[Parameter, ...]
    num_chains: int
    num_draws: int  # of each chain
    divergences: int | None  # None for inferences without transitions
    long_sites: tuple[str, ...]  # with their sizes; they are among the parameters only if they are judged
    verdict: str  # the worst of all parameters; without one, what the draws are
    sentence: str  # the meaning of the verdict, for a reader who does not know these statistics

    @property
    def is_judged(self) -> bool:
        """Whether R-hat and effective sample sizes say something about the draws."""
        return any(parameter.verdict for parameter in self.parameters)

    @property
    def is_one_value(self) -> bool:
        """Whether each parameter has one value only."""
        return self.verdict == _ONE_VALUE

    @property
    def max_rhat(self) -> float:
        """The largest R-hat."""
        return max((each.rhat for each in self.parameters if np.isfinite(each.rhat)), default=float("nan"))

    @property
    def min_ess(self) -> float:
        """The smallest effective sample size, of bulk and tails."""
        both = [value for parameter in self.parameters for value in (parameter.ess_bulk, parameter.ess_tail)]
        return min(filter(np.isfinite, both), default=float("nan"))


def assess(
    posterior: xr.Dataset, sample_stats: xr.Dataset | None, *, approximates: bool, latent: xr.Dataset | None = None
) -> Convergence:
    """Assess the convergence of the draws of a posterior and of latent values, which lead with (chain, draw).

    The variable ``diverging`` of `sample_stats`, if present, marks divergences. Draws from a fitted approximation
    (`kpp.inference.AbstractInference.approximates`) are not judged: they are independent, so R-hat carries no
    information.
    """
    chains, draws = posterior.sizes.get("chain", 1), posterior.sizes.get("draw", 1)
    judged = not approximates and draws >= _FEWEST_DRAWS
    listed, whole = hyperparameters(posterior), posterior.merge(latent or {})
    diagnostics = _diagnostics(whole) if judged else {}
    long = whole.drop_vars(list(listed.data_vars))
    parameters = [_parameter(name, values, diagnostics) for name, values in flatten(listed).items()]
    if judged:
        parameters += [_whole_site(str(name), values, diagnostics) for name, values in long.data_vars.items()]
    divergences = None
    if judged and sample_stats is not None and "diverging" in sample_stats:
        divergences = int(sample_stats["diverging"].sum())
    count = sum(values[0, 0].size for values in _with_draws_first(whole).values())
    verdict = _overall([parameter.verdict for parameter in parameters], divergences) if count else "no parameters"
    if not verdict:
        is_fixed = all(parameter.sd == 0 for parameter in parameters)
        verdict = _ONE_VALUE if is_fixed else "approximate" if approximates else "too few draws"
    long_sites = tuple(_sized(str(name), values) for name, values in long.data_vars.items())
    sentence = render_text(
        "convergence.txt.j2", verdict=verdict, divergences=divergences, count=count, fewest=_FEWEST_DRAWS
    )
    return Convergence(tuple(parameters), chains, draws, divergences, long_sites, verdict, sentence)


def hyperparameters(dataset: xr.Dataset) -> xr.Dataset:
    """Return the sites of a group with few numbers or one number for each feature, without latent values."""
    found = _with_draws_first(dataset)
    return dataset[[n for n, v in found.items() if v[0, 0].size <= _LONGEST or str(v.dims[-1]).endswith("feature")]]


def _sized(name: str, values: xr.DataArray) -> str:
    return f"{name} ({values[0, 0].size} numbers)"


def _with_draws_first(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    lead = [dim for dim in ("chain", "draw", "prior_chain", "prior_draw") if dim in dataset.dims]
    return {str(name): values.transpose(*lead, ...) for name, values in dataset.data_vars.items()}


def flatten(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    """Return every scalar of a group by name, each of shape (chain, draw)."""
    entries = {}
    for name, values in _with_draws_first(dataset).items():
        for index in np.ndindex(values.shape[2:]):
            entries[_entry_name(name, values, index)] = values.values[(..., *index)]
    return entries


def _entry_name(name: str, values: xr.DataArray, index: tuple[int, ...]) -> str:
    if not index:
        return name
    labels = [str(values.coords[dim].values[i]) if dim in values.coords else str(i)
              for dim, i in zip(values.dims[2:], index, strict=True)]  # fmt: skip
    return f"{name}[{', '.join(labels)}]"


def _diagnostics(posterior: xr.Dataset) -> dict[str, dict[str, float]]:
    import arviz

    with np.errstate(divide="ignore", invalid="ignore"):  # R-hat of equal draws is 0 / 0
        tables = {
            "rhat": arviz.rhat(posterior),
            "ess_bulk": arviz.ess(posterior, method="bulk"),
            "ess_tail": arviz.ess(posterior, method="tail"),
        }
    spread = {key: table.expand_dims(chain=1, draw=1) for key, table in tables.items()}
    return {key: {name: float(value[0, 0]) for name, value in flatten(table).items()} for key, table in spread.items()}


def _parameter(name: str, values: np.ndarray, diagnostics: Mapping[str, Mapping[str, Any]]) -> Parameter:
    numbers = {key: diagnostics[key][name] if diagnostics else np.nan for key in ("rhat", "ess_bulk", "ess_tail")}
    lower, upper = np.quantile(values, [0.05, 0.95])
    verdict = _verdict(**numbers) if diagnostics else ""
    # Equal draws differ from their mean by rounding errors.
    sd = float(values.std()) if np.ptp(values) > 0 else 0.0
    return Parameter(name, float(values.mean()), sd, float(lower), float(upper), **numbers, verdict=verdict)


def _whole_site(name: str, values: xr.DataArray, diagnostics: Mapping[str, Mapping[str, float]]) -> Parameter:
    """Return the worst diagnostics of the numbers of a site."""
    entries = flatten(values.to_dataset(name=name))
    rhat = max(diagnostics["rhat"][entry] for entry in entries)
    bulk, tail = (min(diagnostics[key][entry] for entry in entries) for key in ("ess_bulk", "ess_tail"))
    unknown = (float("nan"),) * 4
    return Parameter(_sized(name, values), *unknown, rhat, bulk, tail, _verdict(rhat, bulk, tail))


def _verdict(rhat: float, ess_bulk: float, ess_tail: float) -> str:
    ess = min(ess_bulk, ess_tail)
    if rhat < GOOD_RHAT and ess > GOOD_ESS:
        return "good"
    return "usable" if rhat < USABLE_RHAT and ess > USABLE_ESS else "not converged"


def _overall(verdicts: list[str], divergences: int | None) -> str:
    for verdict in ("not converged", "usable", "good"):
        if verdict in verdicts:
            return "usable" if verdict == "good" and divergences else verdict
    return ""
