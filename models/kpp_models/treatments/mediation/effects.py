"""`kpp_models.mediation`: which part of an effect leads through mediators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from kpp.causal.toolkit import as_causal_graph
from kpp.data.tables import read_points
from kpp.foundation.validation import as_finite_array
from kpp.gp import BernoulliLikelihood
from kpp.inference import AbstractInference
from kpp.typing import RngKey
from kpp_models.tables.generalized import GeneralizedGP
from kpp_models.tables.regression import GPRegression
from kpp_models.treatments.mediation.simulation import MediationQuestion, Regression, Setting, mean_outcomes
from kpp_models.treatments.question import EffectQuestion
from kpp_models.treatments.regression import fit_outcome
from kpp_models.treatments.treatment import TreatmentColumn

_UNCERTAINTY = (
    "of hyperparameters, functions and covariates (Bayesian bootstrap): the effects are those in the population; "
    "the noise of the mediators is simulated, once for each row and draw"
)


@dataclasses.dataclass(frozen=True)
class MediationEffects:
    r"""Direct and indirect effects of a treatment that changes from t' to t, as labeled draws.

    With M(t) for the mediators and Y(t, m) for the outcome under interventions, the dataset holds, each (chain, draw),

    * ``total``: E[Y(t, M(t))] - E[Y(t', M(t'))];
    * ``natural_direct``: E[Y(t, M(t'))] - E[Y(t', M(t'))];
    * ``natural_indirect``: E[Y(t', M(t))] - E[Y(t', M(t'))];
    * ``total_indirect``: E[Y(t, M(t))] - E[Y(t, M(t'))], which is total - natural_direct;
    * ``proportion_mediated``: total_indirect / total. It is not stable if the total effect may be 0;
    * ``controlled_direct``: E[Y(t, m)] - E[Y(t', m)], if asked for;
    * ``path_specific``: the effects along all paths that begin with one edge out of the treatment, which takes the
      value t while the others keep t', (chain, draw, edge).

    Args:
        dataset: The dataset. Its attributes record the question, the variables that each regression was given, and what
            the ``uncertainty`` carries.
    """

    dataset: xr.Dataset

    def __repr__(self) -> str:
        """Return the dataset, and what its attributes say of the intervals in full."""
        return f"MediationEffects: {self.dataset!r}\nuncertainty: {self.dataset.attrs['uncertainty']}"

    def summary(self, probability: float = 0.9) -> pd.DataFrame:
        """Return mean, standard deviation and interval of equal tails of each effect.

        Args:
            probability: The probability of the interval.
        """
        tails = [(1 - probability) / 2, (1 + probability) / 2]
        draws = {str(name): part for name, part in self.dataset.items() if "edge" not in part.dims}
        draws |= {str(part["edge"].item()): part for part in self.dataset["path_specific"].transpose("edge", ...)}
        rows = {name: [part.mean(), part.std(ddof=1), *np.quantile(part, tails)] for name, part in draws.items()}
        names = ["mean", "sd", *(f"{100 * tail:g} %" for tail in tails)]
        return pd.DataFrame.from_dict(rows, orient="index", columns=names, dtype=float)


def mediation(
    rng_key: RngKey,
    data: pd.DataFrame,
    graph: Any,
    *,
    treatment: str,
    mediators: str | Sequence[str],
    outcome: str,
    at: Sequence[Any] | None = None,
    controlled: Mapping[str, float] | None = None,
    inference: AbstractInference | None = None,
) -> MediationEffects:
    r"""Estimate which part of the effect of a treatment leads through mediators, with its uncertainty.

    .. math:: \mathrm{E}\, Y(t, M(t')) = \sum_z p(z) \int \mathrm{E}[Y \mid t, m, z]\, p(m \mid t', z)\, dm

    The law of each variable on a causal path given its causes is a Gaussian process, as in `causal_effect`. The
    mediators are simulated for the rows of the table, with the Bayesian bootstrap of the covariates (200 rows for each
    draw if there are more).

    Args:
        rng_key: A JAX random key.
        data: A data frame. Mediators and outcome are numbers, with Gaussian noise, or booleans, which are labels; other
            columns may be categories.
        graph: The causal graph; see `kpp.causal.as_graph`. Nodes without a column are hidden.
        treatment: The treatment, a column.
        mediators: The mediators: the indirect effect is along all paths through any of them.
        outcome: The outcome, a column.
        at: The values t' and t of the treatment; by default the two values of a treatment that has two.
        controlled: A value for each mediator, for the controlled direct effect.
        inference: The inference of each Gaussian process; by default `kpp.Laplace` with 250 draws.

    Returns:
        The effects.

    Raises:
        NotCoveredError: If the direct and the indirect effect are not identified, because a variable has paths of both
            kinds (a recanting witness), or a hidden cause confounds variables on the causal paths.
        CausalError: If there is no effect, a variable is unknown or has no column, or a mediator is not on a causal
            path.
        ValueError: If a column is invalid, or `at` or `controlled` are.
        TypeError: If `data` is not a data frame of pandas.

    References:
        Pearl (2001), Direct and indirect effects. Avin, Shpitser and Pearl (2005), Identifiability of path-specific
        effects. VanderWeele (2015), Explanation in causal inference, chapter 2.
    """
    if not isinstance(data, pd.DataFrame):
        raise TypeError(f"`data` must be a data frame of pandas, got {type(data).__name__}")
    names = [mediators] if isinstance(mediators, str) else list(mediators)
    question = MediationQuestion.read(as_causal_graph(graph), treatment, names, outcome, list(map(str, data.columns)))
    low, high, labels = _contrast(data, treatment, at)
    held = _read_controlled(controlled, names)
    fit_key, draw_key = jax.random.split(rng_key)
    keys = jax.random.split(fit_key, len(question.features))
    regressions = {
        n: _regression(key, data, question, n, inference) for n, key in zip(question.features, keys, strict=True)
    }
    used = {name for features in question.features.values() for name in features} - set(question.features)
    points, schema = read_points(data[question.graph.sort(used)], "data")
    covariates = {name: points[:, schema.index(name)] for name in used}
    settings = _settings(question, low, high, held)
    means = mean_outcomes(draw_key, question, regressions, covariates, len(data), list(settings.values()))
    dataset = _effects(means, list(settings), question)
    dataset.attrs = {
        "graph": str(question.graph),
        "treatment_name": treatment,
        "at": [str(label) for label in labels],
        "mediators": names,
        "outcome": outcome,
        "regressions": [f"{node} given {', '.join(given)}" for node, given in question.features.items()],
        "uncertainty": _UNCERTAINTY,
    }
    return MediationEffects(dataset)


def _contrast(data: pd.DataFrame, treatment: str, at: Sequence[Any] | None) -> tuple[float, float, list[Any]]:
    """Return the two values of the treatment, as numbers or codes, and their labels."""
    points, schema = read_points(data[[treatment]], "data")
    different = np.unique(points)
    if at is None and len(different) != 2:
        raise ValueError(
            f"`at` must hold the two values of {treatment!r} to compare, which has {len(different)} different values"
        )
    values, labels = TreatmentColumn(points, schema, 0).settings(at)
    if len(values) != 2 or values[0] == values[1]:
        raise ValueError(f"`at` must hold two different values of {treatment!r}, got {labels}")
    return float(values[0]), float(values[1]), labels


def _read_controlled(controlled: Mapping[str, float] | None, mediators: Sequence[str]) -> dict[str, float]:
    given = dict(controlled or {})
    if given and set(given) != set(mediators):
        raise ValueError(f"`controlled` must hold a value for each of {list(mediators)}, got values for {list(given)}")
    return {name: float(as_finite_array(value, f"controlled[{name!r}]")) for name, value in given.items()}


def _regression(
    rng_key: RngKey, data: pd.DataFrame, question: MediationQuestion, node: str, inference: AbstractInference | None
) -> Regression:
    argument = "outcome" if node == question.outcome else "mediators"
    values, is_boolean = EffectQuestion(question.graph, question.treatment, node).read_outcome(data, argument)
    likelihood = BernoulliLikelihood() if is_boolean else None
    features, models = data[list(question.features[node])], (GPRegression, GeneralizedGP)
    return Regression.of_fit(fit_outcome(rng_key, features, values, likelihood, inference, models))


def _settings(question: MediationQuestion, low: float, high: float, held: dict[str, float]) -> dict[Any, Setting]:
    """Return the settings by name: of both ends, natural effects, controlled effects, and one for each edge."""
    indirect = question.indirect

    def setting(changed: Any, held: dict[str, float] | None = None) -> Setting:
        return Setting({child: high if changed(child) else low for child in indirect}, held or {})

    found: dict[Any, Setting] = {
        "none": setting(lambda _: False),
        "all": setting(lambda _: True),
        "direct": setting(lambda child: not indirect[child]),
        "indirect": setting(lambda child: indirect[child]),
    }
    if held:
        found |= {"low": setting(lambda _: False, held), "high": setting(lambda _: True, held)}
    return found | {("edge", edge): setting(lambda child, edge=edge: child == edge) for edge in indirect}


def _effects(
    means: Float[np.ndarray, "chain draw s"], settings: Sequence[Any], question: MediationQuestion
) -> xr.Dataset:
    """Return the effects from the mean outcomes of the settings, given the names of these."""
    of = {name: xr.DataArray(means[..., place], dims=("chain", "draw")) for place, name in enumerate(settings)}
    total, direct = of["all"] - of["none"], of["direct"] - of["none"]
    effects = {
        "total": total,
        "natural_direct": direct,
        "natural_indirect": of["indirect"] - of["none"],
        "total_indirect": total - direct,
        "proportion_mediated": (total - direct) / total,
    }
    if "low" in of:
        effects["controlled_direct"] = of["high"] - of["low"]
    edges = xr.concat([of["edge", child] - of["none"] for child in question.indirect], "edge")
    labels = [f"{question.treatment} -> {child}" for child in question.indirect]
    effects["path_specific"] = edges.transpose("chain", "draw", "edge").assign_coords(edge=labels)
    return xr.Dataset(effects)
