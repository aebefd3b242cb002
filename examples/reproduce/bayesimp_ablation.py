"""Uncertainty and calibration of each estimator of E[T | do(X = x)] (BayesIMP, appendix B.4.1).

    python examples/reproduce/bayesimp_ablation.py [--small] [--datasets N] [--rows N] [--targets M] [--inference map]
        [--samples L] [--lengthscale-factor C] [--output FOLDER] [--cache FOLDER]

(Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021, figure 3
and appendix B.4.1.) D1: x ~ N(0, 2.5^2), y = x cos(pi x) + N(0, .1^2). D2: y ~ U[-2, 6], t = y cos(y) / 2 + N(0, .1^2).
The uncertainty should be large in two regions: where |x| is large, because such values are rare in D1, and where y is
below -2 (near x = -4), because such values do not occur in D2.

The script prints the mean width of 95 % intervals by region on the first data set. For all data sets, it prints the
calibration error, which is the mean over nominal coverages .05, ..., .95 of the distance between nominal and true
coverage of the effect. Its standard error comes from the jackknife over data sets. The error is printed with equal
weights for all treatments in [-6, 6], and with weights from the distribution of x. The script also prints root mean
squared errors. The published figures contain no numbers; the claims of the text are printed for comparison. IME has no
uncertainty and appears in the figures only.

The paper does not give the width of the nuclear dominant kernel's measure. The script uses the default of `CausalLink`,
1.5 times the root mean square of the outcomes. It was chosen on data sets 100 to 109 from 1, 1.5, 2, 2.5 and 3. The
errors of BayesIMP were .136, .067, .056, .122 and .182 with equal weights, and .051, .039, .145, .223 and .273 with the
distribution of x.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import jax
import numpy as np
import pandas as pd
from causal_models import Problem, ablation
from effect_methods import MODELS, fit_effect
from scipy.stats import norm

import kpp

LEVELS = np.arange(0.05, 0.96, 0.05)
CALIBRATED = tuple(name for name in MODELS if name != "IME")
CLAIMS = {
    "sampling": "uniform over x",
    "IME": "none",
    "IMP": "high where y was not seen, not where x is rare",
    "BayesIME": "high where x is rare, not where y was not seen",
    "BayesIMP": "high in both places; best calibrated",
}


def places(problem: Problem, grid: np.ndarray) -> dict[str, np.ndarray]:
    """Divide treatments into four regions: x common or rare in D1, and y = f(x) seen or not seen in D2."""
    unseen = grid * np.cos(np.pi * grid) < problem.mediators[0] - 0.3
    rare = np.abs(grid) > 5.0  # two standard deviations
    names = ("x common, y seen", "x common, y unseen", "x rare, y seen", "x rare, y unseen")
    return dict(zip(names, (~rare & ~unseen, ~rare & unseen, rare & ~unseen, rare & unseen), strict=True))


def estimate(
    problem: Problem, names, seed: int, grid: np.ndarray, settings
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Fit to one pair of data sets; return mean and standard deviation on the grid by name."""
    rng = np.random.default_rng(seed)
    first, second = problem.first(rng, settings["rows"]), problem.second(rng, settings["targets"])
    found = {}
    for name in names:
        prior = fit_effect(name, problem.adjustment, first, *second, seed=seed, **settings["fit"])
        mean, covariance = prior.moments(grid[:, None])
        found[name] = np.asarray(mean), np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    return found


def coverage(truth: np.ndarray, mean: np.ndarray, sd: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the share of the truth that lies in central intervals of each level, (levels,)."""
    inside = np.abs(truth - mean)[:, None] <= sd[:, None] * norm.ppf(0.5 + LEVELS / 2)
    return weights @ inside


def calibration_error(covered: np.ndarray) -> tuple[float, float]:
    """Return the mean absolute calibration error of (datasets, levels), and its standard error by the jackknife."""
    count = len(covered)
    error = np.abs(covered.mean(axis=0) - LEVELS).mean()
    if count < 2:
        return float(error), float("nan")
    left_out = [np.abs(np.delete(covered, i, axis=0).mean(axis=0) - LEVELS).mean() for i in range(count)]
    return float(error), float(np.sqrt((count - 1) / count * np.sum((left_out - np.mean(left_out)) ** 2)))


def mean_widths(problem: Problem, grid: np.ndarray, found) -> pd.DataFrame:
    """Return the mean width of 95 % intervals by place, one row per estimator."""
    regions = places(problem, grid)
    rows = {
        name: {place: 2 * 1.96 * sd[inside].mean() for place, inside in regions.items()}
        for name, (_, sd) in found.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def print_widths(widths: pd.DataFrame) -> None:
    """Print the mean widths."""
    click.echo("\nMean width of 95 % intervals on the first data set; claims of the text about its figure")
    click.echo(f"{'':>9}" + "".join(f"{region:>12}" for region in widths) + "   claim")
    for name, row in widths.iterrows():
        cells = "".join(f"{width:>12.3f}" for width in row)
        click.echo(f"{name:>9}{cells}   {CLAIMS[name]}")


def print_calibration(scores: pd.DataFrame) -> None:
    """Print calibration errors and whether BayesIMP is within two standard errors of the best."""
    click.echo("\nMean absolute calibration error +- standard error; root mean squared error (no number is published)")
    for weighting in scores["weighting"].unique():
        rows = scores[scores["weighting"] == weighting].set_index("model")
        click.echo(f"treatments {weighting}")
        for name, row in rows.iterrows():
            click.echo(f"{name:>9}{row['error']:>9.3f} +- {row['se']:.3f}{row['rmse']:>9.3f}")
        if rows["se"].isna().any():
            click.echo("One data set: nothing to compare.")
            continue
        best, ours = rows.loc[rows["error"].idxmin()], rows.loc["BayesIMP"]
        gap, allowed = ours["error"] - best["error"], 2 * np.hypot(ours["se"], best["se"])
        words = "within" if gap <= allowed else "NOT within"
        click.echo(f"BayesIMP is {gap:.3f} above the best ({best.name}): {words} two standard errors ({allowed:.3f})")


def draw_bands(problem: Problem, grid: np.ndarray, found, treatments: np.ndarray, path: Path) -> None:
    """Draw mean and 95 % interval of each estimator over the truth, with the histogram of treatments (figure 4.5)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(3.4 * len(found), 3.2), sharey=True, layout="constrained")
    truth = problem.effect(grid)
    for ax, (name, (mean, sd)) in zip(axes, found.items(), strict=True):
        ax.fill_between(grid, mean - 1.96 * sd, mean + 1.96 * sd, alpha=0.3, linewidth=0)
        ax.plot(grid, mean)
        ax.plot(grid, truth, "k--", linewidth=0.8)
        ax.set(title=name, xlabel="x", ylim=(1.6 * truth.min(), 1.6 * truth.max()), xlim=(grid[0], grid[-1]))
        counts = ax.twinx()
        counts.hist(treatments, bins=30, alpha=0.3, color="grey")
        counts.set(ylim=(0, 60), yticks=[])
    axes[0].set_ylabel("E[T | do(x)]")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_calibration(curves: dict[str, np.ndarray], path: Path) -> None:
    """Draw true against nominal coverage (figure B.2)."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4, 4), layout="constrained")
    ax.plot([0, 1], [0, 1], "k--", linewidth=0.8)
    for name, covered in curves.items():
        ax.plot(LEVELS, covered.mean(axis=0), label=name)
    ax.set(xlabel="nominal coverage", ylabel="coverage", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


@click.command(help=__doc__.partition("\n")[0])
@click.option("--small", is_flag=True, help="One small data set, for a quick trial run.")
@click.option("--datasets", type=int, default=100, show_default=True, help="Pairs of data sets for the calibration.")
@click.option("--rows", type=int, default=100, show_default=True, help="N, rows of D1.")
@click.option("--targets", type=int, default=100, show_default=True, help="M, rows of D2.")
@click.option("--inference", type=click.Choice(["map", "nuts"]), default="map", show_default=True)
@click.option("--samples", type=int, default=200, show_default=True, help="Outcomes that the sampling estimator draws.")
@click.option("--lengthscale-factor", type=float, default=1.0, show_default=True, help="Times the median heuristic.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="A folder for figures and tables.")
@click.option("--cache", type=click.Path(file_okay=False), help="A folder that keeps compiled programs.")
def main(
    small, datasets, rows, targets, inference, samples, lengthscale_factor, output, cache
) -> dict[str, pd.DataFrame]:
    jax.config.update("jax_enable_x64", True)
    if cache is not None:
        kpp.enable_compile_cache(cache)
    if small:
        datasets, rows, targets, samples = 1, 25, 25, 20
    search = kpp.MAP(num_restarts=0 if small else 1, tolerance=1e-5, progress=False)
    fit = {
        "inference": search if inference == "map" else kpp.NUTS(num_chains=2, progress=False),
        "num_samples": samples,
        "lengthscale_factor": lengthscale_factor,
    }
    settings = {"rows": rows, "targets": targets, "fit": fit}
    problem, start = ablation(), time.perf_counter()
    grid = np.linspace(*problem.treatments, 121)
    truth = problem.effect(grid)
    found = estimate(problem, MODELS, 0, grid, settings)
    widths = mean_widths(problem, grid, found)
    print_widths(widths)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        treatments = np.asarray(problem.first(np.random.default_rng(0), rows).treatment)[:, 0]
        draw_bands(problem, grid, found, treatments, output / "ablation.png")
    weightings = {"alike": np.ones(len(grid)), "as x is": norm.pdf(grid, 0.0, 2.5)}
    weightings = {name: weights / weights.sum() for name, weights in weightings.items()}
    covered = {(w, name): [] for w in weightings for name in CALIBRATED}
    squares = {key: [] for key in covered}
    for seed in range(datasets):
        found = found if seed == 0 else estimate(problem, CALIBRATED, seed, grid, settings)
        for (weighting, name), kept in covered.items():
            kept.append(coverage(truth, *found[name], weightings[weighting]))
            squares[weighting, name].append(weightings[weighting] @ (found[name][0] - truth) ** 2)
        if (seed + 1) % 10 == 0:
            click.echo(f"{seed + 1} data sets, {time.perf_counter() - start:.0f} s", err=True)
    table = pd.DataFrame(
        dict(zip(("error", "se"), calibration_error(np.asarray(kept)), strict=True))
        | {"weighting": weighting, "model": name, "rmse": np.sqrt(np.mean(squares[weighting, name]))}
        for (weighting, name), kept in covered.items()
    )
    print_calibration(table)
    if output is not None:
        table.to_csv(output / "calibration.csv", index=False)
        draw_calibration({n: np.asarray(covered["alike", n]) for n in CALIBRATED}, output / "calibration.png")
    click.echo(f"\n{datasets} data sets with N = {rows} and M = {targets}: {time.perf_counter() - start:.0f} s")
    return {"widths": widths, "calibration": table.rename(columns={"se": "error se"})}


if __name__ == "__main__":
    main()
