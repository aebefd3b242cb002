"""Causal Bayesian optimization: how fast different priors find the best treatment (BayesIMP, section 4).

    python examples/reproduce/bayesimp_bo.py [--small] [--problems 0,1,...] [--priors A,B] [--direction both]
        [--replications R] [--queries N] [--targets M] [--inference map] [--prostate TSV] [--samples L]
        [--sampling-prior widened] [--harder-noise SD] [--lengthscale-factor C] [--output FOLDER] [--cache FOLDER]
        [--workers W]

(Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021, section 5
and appendices B.4.2 to B.4.4.) Data sets D1 and D2 of another study give a prior about E[T | do(X = x)]; then
treatments are queried one after the other, by expected improvement, each answered by the true effect.
`causal_models.py` defines the problems. The priors are: IMP, BayesIME and BayesIMP; "sampling", the prior of Aglietti
et al. (2020), which uses the mean and standard deviation of sampled outcomes plus an RBF kernel with unit scale and
lengthscale for standardized data; "GP", a Gaussian process that does not use D1, whose constant mean, scale and
lengthscale are refitted after every query; and four that learn with the queries. Three are a `LearningPrior`:
"learning" is a mixture of draws by Laplace's approximation of BayesIMP, with four lengthscales of the mediators' kernel
weighted by the pseudo evidence of D2, of the sampled outcomes without the additional kernel, and of a Gaussian process
without data, each with a discrepancy; "learning-BayesIMP" is the same without the sampled outcomes, and "learning-mode"
is the component of "learning" that has the highest weight. "joint" is a `JointPrior`: BayesIMP with the lengthscale of
the highest pseudo evidence. Its other hyperparameters, and those of a discrepancy, are at their joint mode given D1, D2
and all queries, which is found again after every query.

With "-chosen" behind its name, IME, IMP, BayesIME or BayesIMP has the lengthscale of the mediators' kernel, among four,
with the highest pseudo evidence, in place of the median heuristic (`BayesIMP.select_lengthscale`).

Every replication has its own D1 and D2, which are the same for all priors. The script prints the simple regret in units
of the effect's range, after 1, 3, 5 and 10 queries, as mean +- standard error over replications. It also prints paired
tests (t-test and Wilcoxon) between "learning" (or BayesIMP, if it is absent) and the others, and the share of the
candidates without a query whose true effect lies in the belief's 90 % interval, after 0 to 10 queries; the table
"beliefs" has it before any query, with the root mean squared error as a share of the effect's range. The published
figures contain no numbers. Their claims are that BayesIMP reaches the optimum in fewer queries than sampling and GP in
every problem, that IMP and BayesIME are not better in every problem, and that IMP is best on the harder graph with
N = 500.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import click
import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import xarray as xr
from causal_models import Problem, harder, healthcare, simple, two_peaks
from effect_methods import EffectPrior, fit_effect
from scipy.special import logsumexp
from scipy.stats import ttest_rel, wilcoxon

import kpp
from kpp import plots
from kpp.kernels import RBF, Constant
from kpp_models import InterventionData
from kpp_optimization import (
    AbstractObjectivePrior,
    Discrepancy,
    Draws,
    JointPrior,
    KernelPrior,
    LearningPrior,
    RefittedPrior,
    Search,
    WidenedPrior,
    optimize,
    pseudo_evidence,
    regrets,
    replicate,
)

PRIORS = ("GP", "sampling", "IMP", "BayesIME", "BayesIMP", "learning")
FACTORS = (1.0, 0.5, 0.3, 0.2)  # lengthscales of the mediators' kernel in "learning", times the median heuristic
DRAWS = 24  # of hyperparameters, for each of these lengthscales
SCALES = np.array(
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
)  # of the discrepancy, times the targets' standard deviation
SHOWN = (1, 3, 5, 10)
CLAIM = "published: BayesIMP before sampling and GP (figures only, no numbers)"


def problems(prostate: Path | None, harder_noise: float) -> list[tuple[Problem, int]]:
    """Return the problems with the rows of their D1."""
    found = [(simple(adjustment, multimodal=m), 100) for m in (False, True) for adjustment in ("backdoor", "frontdoor")]
    found += [(harder(treated, noise=harder_noise), rows) for treated in "DE" for rows in (100, 500)]
    return [*found, (healthcare(prostate), 100), (two_peaks(), 100)]


class Tabulated(AbstractObjectivePrior):
    """The draws of a prior at the candidates, computed once."""

    found: Draws

    def moments(self, points):
        """See `AbstractObjectivePrior.moments`."""
        return self.found.moments()

    def draws(self, points):
        """See `AbstractObjectivePrior.draws`."""
        return self.found


@dataclasses.dataclass
class Study:
    """The data of one replication, and the fits to them, each made once."""

    problem: Problem
    first: InterventionData
    second: tuple[np.ndarray, np.ndarray]
    grid: np.ndarray
    settings: dict
    seed: int
    fits: dict = dataclasses.field(default_factory=dict)

    def fit(self, name: str, inference, factor: float) -> tuple[AbstractObjectivePrior, float, EffectPrior]:
        """Return the prior of a fitted estimator at the candidates, its pseudo evidence, and the prior itself."""
        key = name, type(inference).__name__, factor
        if key not in self.fits:
            options = self.settings["fit"] | {"inference": inference, "lengthscale_factor": factor}
            found = fit_effect(name, self.problem.adjustment, self.first, *self.second, seed=self.seed, **options)
            self.fits[key] = Tabulated(found.draws(self.grid)), pseudo_evidence(found.prior.fit), found
        return self.fits[key]

    def prior(self, name: str) -> AbstractObjectivePrior:
        """Return the prior of the effect before any query."""
        fitted, spread = self.settings["fit"], float(self.second[1].std())
        if name == "GP":
            lengthscales = np.geomspace(0.05, 1.0, 12) * np.ptp(self.grid)
            return RefittedPrior(lengthscales, scale=spread**2, mean=float(self.second[1].mean()))
        if name == "joint":
            return self.joint()
        if name.startswith("learning"):
            return self.learning(name.removeprefix("learning").removeprefix("-"))
        if name.endswith("-chosen"):
            return self.chosen(name.removesuffix("-chosen"))[0]
        learned, *_ = self.fit(name, fitted["inference"], fitted["lengthscale_factor"])
        if name == "sampling" and self.settings["sampling_prior"] == "widened":
            return WidenedPrior(learned, RBF(float(np.std(self.first.treatment)), spread**2))
        return learned

    def chosen(self, name: str) -> tuple[AbstractObjectivePrior, float, EffectPrior]:
        """Return the fit of an estimator with the mediators' lengthscale of the highest pseudo evidence."""
        return max((self.fit(name, self.settings["fit"]["inference"], f) for f in FACTORS), key=lambda found: found[1])

    def joint(self) -> EffectPrior:
        """Return the prior whose hyperparameters are at the mode given D1, D2 and the queries.

        The lengthscale of the mediators' kernel, which has no evidence, is the one with the highest pseudo evidence.
        """
        search = dataclasses.replace(self.settings["fit"]["inference"], num_restarts=2)
        fits = [self.fit("BayesIMP", search, factor) for factor in FACTORS]
        *_, best = max(fits, key=lambda found: found[1])
        scale = dist.LogNormal(np.log(0.1), 2.0)  # in units of the targets' standard deviation
        prior = JointPrior(best.prior.fit, scale, inference=search, max_queries=self.settings["queries"])
        return EffectPrior(prior, best.scaling)

    def learning(self, variant: str) -> LearningPrior:
        """Return the prior that learns: nine tenths of its weight go to estimators with data, in equal parts."""
        search, spread = self.settings["fit"]["inference"], float(self.second[1].std())
        laplace = kpp.Laplace(num_samples=DRAWS, num_restarts=1, tolerance=1e-5, progress=False)
        groups = [[self.fit("BayesIMP", laplace, factor) for factor in FACTORS]]
        if variant != "BayesIMP":
            groups.append([self.fit("sampling", search, 1.0)])
        priors, weights = [KernelPrior(Constant(spread**2), float(self.second[1].mean()))], [np.log(0.1)]
        for group in groups:
            evidence = np.array([value for _, value, _ in group])
            priors += [prior for prior, *_ in group]
            weights += list(np.log(0.9 / len(groups)) + evidence - logsumexp(evidence))
        estimate = "mode" if variant == "mode" else "mixture"
        return LearningPrior(priors, Discrepancy(SCALES * spread), np.asarray(weights), estimate=estimate)


def run(problem: Problem, rows: int, names, grid: np.ndarray, truth: np.ndarray, settings, key, number: int):
    """Draw one pair of data sets and search from every prior; return searches and coverage by direction and name."""
    rng = np.random.default_rng(number)
    first, second = problem.first(rng, rows), problem.second(rng, settings["targets"])
    study = Study(problem, first, second, grid[:, None], settings, number)
    found: dict[tuple[str, str], tuple[Search, np.ndarray]] = {}
    for name in names:
        prior = study.prior(name)
        for direction in settings["directions"]:
            search = optimize(
                key,
                lambda point: truth[np.argmin(np.abs(grid - point[0]))],
                grid[:, None],
                prior,
                direction=direction,
                num_queries=settings["queries"],
            )
            held = coverage(prior, search, truth)
            start = prior.believe(search.candidates)  # the last belief takes hundreds of megabytes
            found[direction, name] = dataclasses.replace(search, belief=start), held
    return found


def coverage(prior: AbstractObjectivePrior, search: Search, truth: np.ndarray) -> np.ndarray:
    """Return the share of candidates without a query whose 90 % interval holds the truth, after 0 to 10 queries.

    A search that stopped early keeps its last share.
    """
    index = search.queries["candidate"].to_numpy()
    found, belief = [], prior.believe(search.candidates)
    for number in range(min(10, len(index)) + 1):
        levels = np.delete(belief.cdf(truth), index[:number])
        found.append(np.mean((levels >= 0.05) & (levels <= 0.95)))
        seen, values = index[: number + 1], truth[index[: number + 1]]
        learned = prior.given(search.candidates, seen, values, 0.0)
        if learned is prior:
            belief = belief.observe(int(seen[-1]), float(values[-1])) if number < len(index) else belief
        else:
            belief = learned.believe(search.candidates)
            for i, value in zip(seen, values, strict=True):
                belief = belief.observe(int(i), float(value))
    return np.pad(found, (0, 11 - len(found)), mode="edge")


def accuracy(search: Search, held: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return the error of the belief before any query as a share of the effect's range, and what its intervals hold."""
    error = np.sqrt(np.mean((np.asarray(search.belief.mean) - truth) ** 2))
    return {"rmse": float(error / np.ptp(truth)), "covered": float(held[0])}


def summarise(table: xr.DataArray) -> dict[str, xr.DataArray]:
    """Return the regrets after some queries, and their means over the first queries, (prior, replication) each."""
    until = min(10, table.sizes["query"])
    columns = {str(query): table.sel(query=query) for query in SHOWN if query <= until}
    return columns | {f"mean of 1 to {n}": table.sel(query=slice(None, n)).mean("query") for n in (5, 10) if n <= until}


def as_rows(table: xr.DataArray) -> pd.DataFrame:
    """Return the same regrets, one row per prior, replication and column."""
    frames = [
        values.drop_vars("query", errors="ignore").rename("regret").to_dataframe().reset_index().assign(queries=name)
        for name, values in summarise(table).items()
    ]
    return pd.concat(frames)


def print_regrets(table: xr.DataArray) -> None:
    """Print regrets after some queries, and paired tests of the prior that learns against the others."""
    columns = summarise(table)
    click.echo(f"{'after':>18}" + "".join(f"{name:>20}" for name in columns))
    for name in table["prior"].values:
        cells = [values.sel(prior=name) for values in columns.values()]
        text = "".join(f"{float(c.mean()):>11.4f} +- {float(c.std(ddof=1)) / np.sqrt(c.size):.4f}" for c in cells)
        click.echo(f"{name:>18}{text}")
    tested = [label for label in columns if label not in ("1", "3")] or list(columns)[-1:]
    ours = next((name for name in ("learning", "BayesIMP") if name in table["prior"]), None)
    for name in table["prior"].values if ours is not None else ():
        if name != ours:
            pairs = [(label, columns[label].sel(prior=ours), columns[label].sel(prior=name)) for label in tested]
            told = [f"{'' if ' ' in label else 'after '}{label}: {compare(*pair)}" for label, *pair in pairs]
            click.echo(f"{ours} - {name}, " + "; ".join(told))


def compare(ours: xr.DataArray, other: xr.DataArray) -> str:
    """Return difference, its standard error and p-values of paired tests, two-sided, in words."""
    difference = ours.values - other.values
    if not difference.any():
        return "+0.0000 (equal everywhere)"
    if np.ptp(difference) == 0.0 or len(difference) < 2:
        return f"{difference.mean():+.4f} (no spread to test against)"
    p_values = ttest_rel(ours.values, other.values).pvalue, wilcoxon(difference).pvalue
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{difference.mean():+.4f} +- {error:.4f} (t-test p = {p_values[0]:.3f}, Wilcoxon p = {p_values[1]:.3f})"


@click.command(help=__doc__.partition("\n")[0])
@click.option("--small", is_flag=True, help="One problem, two small replications, fewer priors, for a quick trial run.")
@click.option("--problems", "chosen", default="0,1,2,3,4,5,6,7,8", show_default=True, help="A list with commas.")
@click.option("--priors", default=",".join(PRIORS), show_default=True, help="A list with commas.")
@click.option("--direction", type=click.Choice(["minimize", "maximize", "both"]), default="minimize", show_default=True)
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
) -> dict[str, pd.DataFrame]:
    jax.config.update("jax_enable_x64", True)
    if cache is not None:
        kpp.enable_compile_cache(cache)
    points = 101
    if small:
        chosen, replications, queries, targets, samples, points = chosen.partition(",")[0], 2, 3, 20, 10, 21
        priors = "GP,sampling,BayesIMP,learning"
    search = kpp.MAP(num_restarts=0 if small else 1, tolerance=1e-5, progress=False)
    settings = {
        "targets": targets,
        "queries": queries,
        "directions": ("minimize", "maximize") if direction == "both" else (direction,),
        "sampling_prior": sampling_prior,
        "fit": {
            "inference": search if inference == "map" else kpp.NUTS(num_chains=2, progress=False),
            "num_samples": samples,
            "lengthscale_factor": lengthscale_factor,
        },
    }
    everything, names = problems(prostate, harder_noise), priors.split(",")
    summaries: list[pd.DataFrame] = []
    beliefs: list[dict] = []
    for number in (int(text) for text in chosen.split(",")):
        problem, rows = everything[number]
        rows, start = 20 if small else rows, time.perf_counter()
        grid = np.linspace(*problem.treatments, points)
        truth = problem.effect(grid)
        size = float(np.ptp(truth))
        found = replicate(
            jax.random.key(number),
            lambda key, replication: run(problem, rows, names, grid, truth, settings, key, replication),  # noqa: B023
            replications,
            num_workers=workers,
        )
        label = f"{problem.name}, N = {rows}"
        beliefs += [
            {
                "problem": label,
                "prior": name,
                "replication": index,
                **accuracy(*each[settings["directions"][0], name], truth),
            }
            for index, each in enumerate(found)
            for name in names
        ]
        for goal in settings["directions"]:
            click.echo(f"\n{number}: {problem.name}, N = {rows}, M = {targets}, {goal}; range of the effect {size:.4g}")
            table = regrets({name: [each[goal, name][0] for each in found] for name in names}, truth) / size
            if output is not None:
                save(table, problem, f"{number}_{rows}_{goal}", output)
            print_regrets(table)
            summaries.append(as_rows(table).assign(problem=label, direction=goal))
            for name in names:
                shares = np.mean([each[goal, name][1] for each in found], axis=0)
                click.echo(f"{name:>18}: 90 % intervals hold " + " ".join(f"{share:.2f}" for share in shares))
        click.echo(f"{CLAIM}; {time.perf_counter() - start:.0f} s")
    return {"regrets": pd.concat(summaries), "beliefs": pd.DataFrame(beliefs)}


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
