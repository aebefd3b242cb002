"""Causal Bayesian optimization: how fast different priors find the best treatment (BayesIMP, section 4).

    python examples/reproduce/bayesimp_bo.py [--small] [--problems 0,1,...] [--priors A,B] [--direction minimize]
        [--replications R] [--queries N] [--targets M] [--inference map] [--prostate TSV] [--samples L]
        [--sampling-prior widened] [--harder-noise SD] [--lengthscale-factor C] [--output FOLDER] [--cache FOLDER]
        [--workers W]

(Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021, section 5
and appendices B.4.2 to B.4.4.) Data sets D1 and D2 of another study give a prior about E[T | do(X = x)]; then
treatments are queried one after the other, by expected improvement, each answered by the true effect.
`causal_models.py` defines the problems. The priors are: IMP, BayesIME and BayesIMP; "sampling", the prior of Aglietti
et al. (2020), which uses the mean and standard deviation of sampled outcomes plus an RBF kernel with unit scale and
lengthscale for standardized data; and "GP", a Gaussian process that does not use D1, whose constant mean, scale and
lengthscale are refitted after every query.

Every replication has its own D1 and D2, which are the same for all priors. The script prints the simple regret in units
of the effect's range, after 1, 3, 5 and 10 queries, as mean +- standard deviation over replications. It also prints
paired tests (t-test and Wilcoxon) between BayesIMP and the others, for the regret after 10 queries and for its mean
over queries 1 to 10. The published figures contain no numbers. Their claims are that BayesIMP reaches the optimum in
fewer queries than sampling and GP in every problem, that IMP and BayesIME are not better in every problem, and that IMP
is best on the harder graph with N = 500.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import jax
import numpy as np
import pandas as pd
import xarray as xr
from causal_models import Problem, harder, healthcare, simple
from effect_methods import fit_effect
from scipy.stats import ttest_rel, wilcoxon

import kpp
from kpp import plots
from kpp.kernels import RBF
from kpp_optimization import (
    RefittedPrior,
    Search,
    WidenedPrior,
    optimize,
    regrets,
    replicate,
)

PRIORS = ("GP", "sampling", "IMP", "BayesIME", "BayesIMP")
SHOWN = (1, 3, 5, 10)
CLAIM = "published: BayesIMP before sampling and GP (figures only, no numbers)"


def problems(prostate: Path | None, harder_noise: float) -> list[tuple[Problem, int]]:
    """Return the problems with the rows of their D1."""
    found = [(simple(adjustment, multimodal=m), 100) for m in (False, True) for adjustment in ("backdoor", "frontdoor")]
    found += [(harder(treated, noise=harder_noise), rows) for treated in "DE" for rows in (100, 500)]
    return [*found, (healthcare(prostate), 100)]


def prior_for(name: str, problem: Problem, first, second, grid: np.ndarray, settings, seed: int):
    """Return the prior of the effect before any query."""
    unit, center, spread = float(np.std(first.treatment)), float(second[1].mean()), float(second[1].std())
    if name == "GP":
        lengthscales = np.geomspace(0.05, 1.0, 12) * np.ptp(grid)
        return RefittedPrior(lengthscales, scale=spread**2, mean=center)
    learned = fit_effect(name, problem.adjustment, first, *second, seed=seed, **settings["fit"])
    if name == "sampling" and settings["sampling_prior"] == "widened":
        return WidenedPrior(learned, RBF(unit, spread**2))
    return learned


def run(problem: Problem, rows: int, names, grid: np.ndarray, truth: np.ndarray, settings, key, number: int):
    """Draw one pair of data sets and search from every prior; return the searches by name."""
    rng = np.random.default_rng(number)
    first, second = problem.first(rng, rows), problem.second(rng, settings["targets"])
    searches: dict[str, Search] = {}
    for name in names:
        prior = prior_for(name, problem, first, second, grid, settings, number)
        searches[name] = optimize(
            key,
            lambda point: truth[np.argmin(np.abs(grid - point[0]))],
            grid[:, None],
            prior,
            direction=settings["direction"],
            num_queries=settings["queries"],
        )
    return searches


def print_regrets(table: xr.DataArray) -> None:
    """Print regrets after some queries, and paired tests of BayesIMP against the others."""
    shown = [query for query in SHOWN if query <= table.sizes["query"]]
    early, until = table.sel(query=slice(None, 10)).mean("query"), min(10, table.sizes["query"])
    click.echo(f"{'after':>9}" + "".join(f"{query:>18}" for query in shown) + f"{f'mean of 1 to {until}':>18}")
    for name in table["prior"].values:
        cells = [table.sel(prior=name, query=query) for query in shown] + [early.sel(prior=name)]
        text = "".join(f"{float(c.mean()):>9.4f} +- {float(c.std(ddof=1)):.3f}" for c in cells)
        click.echo(f"{name:>9}{text}")
    if "BayesIMP" not in table["prior"]:
        return
    last = table.sel(query=until)
    for name in table["prior"].values:
        if name == "BayesIMP":
            continue
        tests = [compare(values.sel(prior="BayesIMP"), values.sel(prior=name)) for values in (last, early)]
        click.echo(f"BayesIMP - {name}: regret after {until} queries {tests[0]}; mean of 1 to {until} {tests[1]}")


def compare(ours: xr.DataArray, other: xr.DataArray) -> str:
    """Return difference and p-values of paired tests, two-sided, in words."""
    difference = ours.values - other.values
    if not difference.any():
        return "+0.0000 (equal everywhere)"
    if np.ptp(difference) == 0.0 or len(difference) < 2:
        return f"{difference.mean():+.4f} (no spread to test against)"
    p_values = ttest_rel(ours.values, other.values).pvalue, wilcoxon(difference).pvalue
    return f"{difference.mean():+.4f} (t-test p = {p_values[0]:.3f}, Wilcoxon p = {p_values[1]:.3f})"


@click.command(help=__doc__.partition("\n")[0])
@click.option("--small", is_flag=True, help="One problem, two small replications, fewer priors, for a quick trial run.")
@click.option("--problems", "chosen", default="0,1,2,3,4,5,6,7,8", show_default=True, help="A list with commas.")
@click.option("--priors", default=",".join(PRIORS), show_default=True, help="A list with commas.")
@click.option("--direction", type=click.Choice(["minimize", "maximize"]), default="minimize", show_default=True)
@click.option("--replications", type=int, default=10, show_default=True)
@click.option("--queries", type=int, default=15, show_default=True)
@click.option("--targets", type=int, default=50, show_default=True, help="M, rows of D2.")
@click.option("--inference", type=click.Choice(["map", "nuts"]), default="map", show_default=True)
@click.option("--samples", type=int, default=200, show_default=True, help="Outcomes that the sampling prior draws.")
@click.option("--sampling-prior", type=click.Choice(["widened", "samples"]), default="widened", show_default=True)
@click.option("--harder-noise", type=float, default=1.0, show_default=True, help="Noise sd of the harder graph.")
@click.option("--prostate", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The prostate data.")
@click.option("--lengthscale-factor", type=float, default=1.0, show_default=True, help="Times the median heuristic.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="A folder for figures and regrets.")
@click.option("--cache", type=click.Path(file_okay=False), help="A folder that keeps compiled programs.")
@click.option("--workers", type=int, default=1, show_default=True, help="Replications at once.")
def main(
    small,
    chosen,
    priors,
    direction,
    replications,
    queries,
    targets,
    inference,
    samples,
    sampling_prior,
    harder_noise,
    prostate,
    lengthscale_factor,
    output,
    cache,
    workers,
) -> None:
    jax.config.update("jax_enable_x64", True)
    if cache is not None:
        kpp.enable_compile_cache(cache)
    points = 101
    if small:
        chosen, replications, queries, targets, samples, points = chosen.partition(",")[0], 2, 3, 20, 10, 21
        priors = "GP,sampling,BayesIMP"
    search = kpp.MAP(num_restarts=0 if small else 1, tolerance=1e-5, progress=False)
    settings = {
        "targets": targets,
        "queries": queries,
        "direction": direction,
        "sampling_prior": sampling_prior,
        "fit": {
            "inference": search if inference == "map" else kpp.NUTS(num_chains=2, progress=False),
            "num_samples": samples,
            "lengthscale_factor": lengthscale_factor,
        },
    }
    everything, names = problems(prostate, harder_noise), priors.split(",")
    for number in (int(text) for text in chosen.split(",")):
        problem, rows = everything[number]
        rows, start = 20 if small else rows, time.perf_counter()
        grid = np.linspace(*problem.treatments, points)
        truth = problem.effect(grid)
        size = float(np.ptp(truth))
        click.echo(
            f"\n{number}: {problem.name}, N = {rows}, M = {targets}, {direction}; range of the effect {size:.4g}"
        )
        found = replicate(
            jax.random.key(number),
            lambda key, replication: run(problem, rows, names, grid, truth, settings, key, replication),  # noqa: B023
            replications,
            num_workers=workers,
        )
        table = regrets({name: [searches[name] for searches in found] for name in names}, truth) / size
        print_regrets(table)
        click.echo(f"{CLAIM}; {time.perf_counter() - start:.0f} s")
        if output is not None:
            save(table, problem, f"{number}_{rows}_{direction}", output)


def save(table: xr.DataArray, problem: Problem, name: str, folder: Path) -> None:
    """Write the regrets and their plot."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    frame: pd.DataFrame = table.rename("regret").to_dataframe().reset_index()
    frame.assign(problem=problem.name).to_csv(folder / f"regret_{name}.csv", index=False)
    ax = plots.regret(table)
    ax.set(title=problem.name, ylabel="regret / range")
    ax.figure.savefig(folder / f"regret_{name}.png", dpi=150)
    plt.close(ax.figure)


if __name__ == "__main__":
    main()
