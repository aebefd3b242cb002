"""Effects by proxies: errors of `kpp_models.proximal_regression`, beside regressions without, and one table six ways.

    python -m examples.benchmarks.proximal [--data-sets 50]
    python -m examples.benchmarks.proximal --one-table

The data are those of `examples/coverage/identified.py`, which measures the intervals. The first command prints the root
mean squared error at five values of the treatment, averaged over data sets, with its standard error, for the proxies
and for kernel ridge regressions on the treatment alone, with the proxies, and with the hidden causes. The second prints
the effect in the table of the guide "Instruments and proxies" under the assumptions of each method.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd

from examples.coverage.identified import PROXIES
from kpp_models import causal_effect, instrumental_regression, proximal_regression
from kpp_models.treatments.instruments import InstrumentalRegression

BOTH = pd.DataFrame({"therapy": [0.0, 1.0]})


def ridge(table: pd.DataFrame, covariates: list[str]) -> InstrumentalRegression:
    """Return a regression on treatment and covariates: as their own instruments they make S nearly the identity."""
    x, given = table[["x"]], table[covariates] if covariates else None
    return instrumental_regression(x, table["y"], x, given, instrument_regularization=1e-9)


def run(name: str, seed: int) -> list[float]:
    """Return the errors of the four methods for one data set."""
    table, at, truth = PROXIES[name][1](np.random.default_rng(seed))
    u, w, z = ([column for column in table if column.startswith(letter)] for letter in "uwz")
    fits = [
        proximal_regression(table, treatment="x", outcome="y", treatment_proxies=z, outcome_proxies=w),
        *(ridge(table, covariates) for covariates in ([], [*w, *z], u)),
    ]
    return [float(np.sqrt(np.mean((fit.effect(at[:, None]).mean - truth) ** 2))) for fit in fits]


def patients(rows: int = 200) -> pd.DataFrame:
    """Return the table of the guide: a therapy that raises a score from 0 to 10 by 1, and a hidden health."""
    rng = np.random.default_rng(0)
    health, distance = rng.normal(size=(2, rows))
    therapy = (distance + health + 0.5 * rng.normal(size=rows) < 0).astype(float)
    visits, mood, noise = 0.5 * rng.normal(size=(3, rows))
    score = np.clip(5.0 + therapy + 1.5 * health + noise, 0.0, 10.0)
    columns = {"distance": distance, "therapy": therapy, "visits": visits - health, "mood": mood + health}
    return pd.DataFrame(columns | {"score": score})


def one_table() -> pd.DataFrame:
    """Return the effect of the therapy with its 90 % interval under the assumptions of each method."""
    table = patients()
    score, treated, share = table["score"], table["therapy"] == 1.0, table["therapy"].mean()
    graph = [(proxy, end) for proxy in ("visits", "mood") for end in ("therapy", "score")] + [("therapy", "score")]
    adjusted = causal_effect(
        jax.random.key(0), table.drop(columns="distance"), graph, treatment="therapy", outcome="score"
    )
    prior = {name: dist.Beta(2, 8) for name in ("share_of_treatment", "share_of_outcome")}
    by_instrument = instrumental_regression(table[["therapy"]], score, table[["distance"]])
    by_proxies = proximal_regression(
        table, treatment="therapy", outcome="score", treatment_proxies="visits", outcome_proxies="mood"
    )
    seen = share * score[treated].mean() - (1 - share) * score[~treated].mean()
    rows = {"difference of means": [score[treated].mean() - score[~treated].mean(), np.nan, np.nan]}
    for name, effect in (
        ("adjustment for both proxies", adjusted),
        ("the same, sensitivity prior", adjusted.with_hidden_confounder(jax.random.key(1), **prior)),
    ):
        draws = effect.contrast(1.0, 0.0).to_numpy()
        rows[name] = [draws.mean(), *np.quantile(draws, [0.05, 0.95])]
    for name, fit in (("instrument", by_instrument), ("proxies", by_proxies)):
        mean, covariance = fit.effect(BOTH)
        half = 1.645 * float(np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]))
        effect = float(mean[1] - mean[0])
        rows[name] = [effect, effect - half, effect + half]
    rows["bounds"] = [np.nan, seen - 10 * share, seen + 10 * (1 - share)]  # Manski (1990), for a score from 0 to 10
    return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "5 %", "95 %"])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=50)
    parser.add_argument("--one-table", action="store_true")
    options = parser.parse_args()
    if options.one_table:
        print(one_table().round(2).to_string())
        return
    print("root mean squared error: proxies; ridge without them, with them, with the hidden causes")
    for name in PROXIES:
        found = np.array([run(name, seed) for seed in range(options.data_sets)])
        errors = found.std(axis=0) / options.data_sets**0.5
        cells = [f"{value:.3f} ({error:.3f})" for value, error in zip(found.mean(axis=0), errors, strict=True)]
        print(f"{name:15s}  {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
