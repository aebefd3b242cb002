"""Average effects by kpp, dowhy, EconML and DoubleML on the same data sets, in one table.

    pip install dowhy econml doubleml causaldata
    python examples/benchmarks/effect_peers.py [--data-sets 40] [--rows 200] [--only PROBLEM ...] [--methods METHOD ...]

The problems are the simulations of effect_simulations.py; "ihdp", the nonlinear response surface B of Hill (2011) on
the covariates that EconML ships, of which each data set takes `--rows` rows; and "lalonde", one data set of causaldata.
For lalonde the truth is the estimate of the experiment, the effect on its treated men, who are compared with 400 men of
a survey (CPS): there are few similar men, and the error has one replication. EconML and dowhy take the effect to be the
same for all men there. The table has bias, root mean squared error,
coverage and mean width of the intervals of 90 %, and the seconds for one data set. A library that is not installed is
left out with a message.

Every peer adjusts for the same columns. EconML and DoubleML take random forests for the outcome and a dose, and
logistic regression for the propensity of two levels (at least 0.01, as is DoubleML's default). EconML describes a dose
by a cubic polynomial; dowhy's estimator is a linear regression. All settings are in this file.

Reference: Hill, Bayesian nonparametric modeling for causal inference, 2011, section 4.2.
"""

from __future__ import annotations

import argparse
import importlib.resources
import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from effect_simulations import SIMULATIONS
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from kpp.causal import CausalDAG
from kpp_models import causal_effect


class Problem(NamedTuple):
    """A data set: a table with the columns t and y, all others being confounders, and the effect to be found.

    The effect is that on all rows, or on the treated rows.
    """

    table: pd.DataFrame
    levels: tuple[float, float]
    truth: float
    on_treated: bool = False

    @property
    def covariates(self) -> list[str]:
        """The names of the confounders."""
        return [name for name in self.table.columns if name not in ("t", "y")]

    @property
    def is_number(self) -> bool:
        """Whether the treatment has more than two values."""
        return self.table["t"].nunique() > 2


class Estimate(NamedTuple):
    """An estimate with an interval of 90 %."""

    value: float
    low: float
    high: float


def simulated(name: str) -> Callable[[int, int], Problem]:
    """Return the maker of a simulation."""
    known = SIMULATIONS[name]
    return lambda seed, rows: Problem(known.table(np.random.default_rng(seed), rows), known.levels, known.truth)


def children() -> tuple[np.ndarray, np.ndarray]:
    """Return treatment (747,) and 25 covariates of the children of IHDP, six standardized numbers first.

    The treated children of mothers who are not white are left out, as by Hill, so that the groups differ.
    """
    table = pd.read_csv(str(importlib.resources.files("econml") / "data" / "ihdp" / "sim.csv"))
    table = table[(table["treat"] == 0) | (table["momwhite"] == 1)]
    x = table.drop(columns=["treat", "site8", "momwhite", "momblack", "momhisp"]).to_numpy(dtype=float)
    x[:, :6] = (x[:, :6] - x[:, :6].mean(axis=0)) / x[:, :6].std(axis=0)
    return table["treat"].to_numpy(), x


def ihdp(seed: int, num_rows: int) -> Problem:
    """Simulate Hill's response surface B for some of the children, with the mean effect of all of them."""
    t, x = children()
    rng = np.random.default_rng(seed)
    beta = rng.choice([0.0, 0.1, 0.2, 0.3, 0.4], size=x.shape[1], p=[0.6, 0.1, 0.1, 0.1, 0.1])
    untreated, treated = np.exp((x + 0.5) @ beta), x @ beta
    treated = treated - np.mean((treated - untreated)[t == 1]) + 4  # so that the effect on the treated is 4
    y = np.where(t == 1, treated, untreated) + rng.normal(size=len(t))
    table = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])]).assign(t=t.astype(float), y=y)
    rows = rng.choice(len(table), size=min(num_rows, len(table)), replace=False)
    chosen = table.iloc[rows].reset_index(drop=True)
    return Problem(chosen.loc[:, chosen.nunique() > 1], (1.0, 0.0), float(np.mean(treated - untreated)))


def lalonde(seed: int, num_rows: int) -> Problem:
    """Return the men who were trained in the experiment, and 400 of the survey, with the experiment's estimate."""
    from causaldata import cps_mixtape, nsw_mixtape

    trial = nsw_mixtape.load_pandas().data
    survey = cps_mixtape.load_pandas().data.sample(400, random_state=seed)
    truth = trial.loc[trial["treat"] == 1, "re78"].mean() - trial.loc[trial["treat"] == 0, "re78"].mean()
    table = pd.concat([trial[trial["treat"] == 1], survey], ignore_index=True).drop(columns="data_id")
    return Problem(table.rename(columns={"treat": "t", "re78": "y"}).astype(float), (1.0, 0.0), float(truth), True)


PROBLEMS: dict[str, Callable[[int, int], Problem]] = {
    **{name: simulated(name) for name in SIMULATIONS},
    "ihdp": ihdp,
    "lalonde": lalonde,
}


def learners(seed: int) -> tuple[RandomForestRegressor, Pipeline]:
    """Return the learners of the outcome, or of a dose, and of the propensity of two levels."""
    forest = RandomForestRegressor(n_estimators=100, min_samples_leaf=5, random_state=seed)
    return forest, make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def by_kpp(problem: Problem, seed: int) -> Estimate:
    """Estimate by `kpp_models.causal_effect` with its defaults."""
    edges = [("t", "y"), *((name, node) for name in problem.covariates for node in ("t", "y"))]
    effect = causal_effect(
        jax.random.key(seed),
        problem.table,
        CausalDAG(edges),
        treatment="t",
        outcome="y",
        at=sorted(problem.levels),
        rows=(problem.table["t"] == 1).to_numpy() if problem.on_treated else None,
    )
    contrast = effect.contrast(*problem.levels)
    return Estimate(float(contrast.mean()), *map(float, contrast.quantile([0.05, 0.95])))


def by_dowhy(problem: Problem, seed: int) -> Estimate:
    """Estimate by dowhy's linear regression after identification in the graph."""
    from dowhy import CausalModel

    model = CausalModel(problem.table, treatment="t", outcome="y", common_causes=problem.covariates)
    found = model.estimate_effect(
        # The default method enumerates sets, which takes 25 seconds for 25 columns.
        model.identify_effect(proceed_when_unidentifiable=True, method_name="maximal-adjustment"),
        method_name="backdoor.linear_regression",
        treatment_value=problem.levels[0],
        control_value=problem.levels[1],
    )
    return Estimate(float(found.value), *np.ravel(found.get_confidence_intervals(confidence_level=0.9)))


def by_econml(problem: Problem, seed: int) -> Estimate:
    """Estimate by EconML: doubly robust for two levels, double machine learning with a cubic polynomial for a dose."""
    from econml.dml import LinearDML
    from econml.dr import LinearDRLearner

    regression, classification = learners(seed)
    x, y, t = (problem.table[names].to_numpy() for names in (problem.covariates, "y", "t"))
    high, low = problem.levels
    if problem.is_number:
        cubic = PolynomialFeatures(3, include_bias=False)
        model = LinearDML(
            model_y=regression, model_t=regression, treatment_featurizer=cubic, random_state=seed, cv=5
        ).fit(y, t[:, None], X=None, W=x)
        inference = model.ate_inference(T0=low, T1=high)
    else:
        model = LinearDRLearner(
            model_regression=regression, model_propensity=classification, min_propensity=0.01, random_state=seed, cv=5
        ).fit(y, t, X=None, W=x)
        inference = model.ate_inference(T0=low, T1=high)
    ends = (np.ravel(end).item() for end in inference.conf_int_mean(alpha=0.1))
    return Estimate(np.ravel(inference.mean_point).item(), *ends)


def by_doubleml(problem: Problem, seed: int) -> Estimate:
    """Estimate by DoubleML: the interactive model for two levels, the partially linear model for a dose."""
    import doubleml

    regression, classification = learners(seed)
    np.random.seed(seed)  # DoubleML splits the rows by NumPy's global generator
    data = doubleml.DoubleMLData(problem.table, y_col="y", d_cols="t", x_cols=problem.covariates)
    if problem.is_number:
        model = doubleml.DoubleMLPLR(data, ml_l=regression, ml_m=regression)
    else:
        score = "ATTE" if problem.on_treated else "ATE"
        model = doubleml.DoubleMLIRM(data, ml_g=regression, ml_m=classification, score=score)
    model.fit()
    slope = problem.levels[0] - problem.levels[1]
    return Estimate(float(model.coef[0]) * slope, *(model.confint(level=0.9).to_numpy()[0] * slope))


METHODS: dict[str, Callable[[Problem, int], Estimate]] = {
    "kpp": by_kpp,
    "dowhy": by_dowhy,
    "econml": by_econml,
    "doubleml": by_doubleml,
}
# The packages that a problem's data come from.
SOURCES = {"ihdp": "econml", "lalonde": "causaldata"}


def installed(names: list[str], packages: dict[str, str]) -> list[str]:
    """Return the names whose package is installed, and print the others."""
    missing = [name for name in names if importlib.util.find_spec(packages.get(name, "kpp")) is None]
    for name in missing:
        print(f"{name} is left out: {packages[name]} is not installed", flush=True)
    return [name for name in names if name not in missing]


def report(name: str, method: str, num_sets: int, num_rows: int) -> None:
    """Print one line of the table."""
    start, errors, covered, widths = time.perf_counter(), [], [], []
    for seed in range(1 if name == "lalonde" else num_sets):
        problem = PROBLEMS[name](seed, num_rows)
        found = METHODS[method](problem, seed)
        errors.append(found.value - problem.truth)
        covered.append(found.low <= problem.truth <= found.high)
        widths.append(found.high - found.low)
    seconds = (time.perf_counter() - start) / len(errors)
    error = float(np.sqrt(np.mean(np.square(errors))))
    print(
        f"{name:<22} {method:<9} {np.mean(errors):>9.3f} {error:>9.3f} {np.mean(covered):>8.2f} "
        f"{np.mean(widths):>9.3f} {seconds:>8.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-sets", type=int, default=40)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    methods = installed(options.methods, {name: name for name in METHODS})
    problems = installed(options.only, SOURCES)
    columns = f"{'bias':>9} {'rmse':>9} {'coverage':>8} {'width':>9} {'seconds':>8}"
    print(f"{'problem':<22} {'method':<9} {columns}", flush=True)
    for name in problems:
        for method in methods:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                report(name, method, options.data_sets, options.rows)


if __name__ == "__main__":
    main()
