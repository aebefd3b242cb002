"""When does a conditional mean process beat two-step mediation, and do the shares of `check_mediation` say so?

    python examples/benchmarks/mediation_rule.py [--replications 10] [--output CSV]

A field with a known RBF kernel is observed through means of bags of 8 points in the plane, with noise. The covariate of
a bag is its center, blurred. D1 has bags without targets, D2 targets of other bags that are not seen. Settings differ
in the numbers of bags and of targets, the blur, and the noise. Both ways learn the kernel of the covariates and the
noise by MAP: `CMP`, and `BaggGP` with the targets of `mediate`. The table has one row per setting: the median shares of
`kpp_models.check_mediation`, the root mean squared errors at the points of new bags with standard errors, the share of
these points in 95 % intervals, and the gain, the mean logarithm of the ratio of the errors (negative if `CMP` is
better). Below it are the mean gain over all simulations with Wilcoxon's signed-rank test, and the rank correlations
over the settings between the gain and the shares.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import click
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from scipy.stats import spearmanr, wilcoxon

import kpp
from kpp.kernels import RBF
from kpp_models import CMP, BaggGP, check_mediation, mediate

KERNEL = RBF(0.5)
SIZE, SPREAD, NEW_BAGS = 8, 0.3, 30
COUNTS = ((15, 60), (30, 30), (60, 15))  # bags of D1, targets of D2
BLURS, NOISES = (0.02, 0.3), (0.05, 0.5)
SETTINGS = [(*counts, blur, noise) for counts, blur, noise in itertools.product(COUNTS, BLURS, NOISES)]


class Problem(NamedTuple):
    """D1 as bags, covariates and targets of D2, and new points with the field there."""

    bags: kpp.Bags
    covariates: np.ndarray
    targets: np.ndarray
    points: np.ndarray
    field: np.ndarray


def simulate(num_bags: int, num_targets: int, blur: float, noise: float, seed: int) -> Problem:
    """Draw a field and everything that is observed of it."""
    rng = np.random.default_rng(seed)
    total = num_bags + num_targets + NEW_BAGS
    centers = rng.uniform(-1.0, 1.0, size=(total, 2))
    points = centers[:, None] + SPREAD * rng.normal(size=(total, SIZE, 2))
    flat = points.reshape(-1, 2)
    gram = np.asarray(KERNEL.gram(jnp.asarray(flat))) + 1e-8 * np.eye(len(flat))
    field = (np.linalg.cholesky(gram) @ rng.normal(size=len(flat))).reshape(total, SIZE)
    covariates = centers + blur * rng.normal(size=centers.shape)
    bags = kpp.Bags.create(
        points[:num_bags].reshape(-1, 2), np.repeat(np.arange(num_bags), SIZE), covariates[:num_bags]
    )
    hidden = slice(num_bags, num_bags + num_targets)
    targets = field[hidden].mean(axis=1) + noise * rng.normal(size=num_targets)
    new = slice(num_bags + num_targets, None)
    return Problem(bags, covariates[hidden], targets, points[new].reshape(-1, 2), field[new].ravel())


def fit_both(problem: Problem, seed: int) -> dict[str, kpp.Fit]:
    """Fit the conditional mean process and the two-step baseline."""
    bag_kernel, noise = RBF(dist.LogNormal(-0.7, 0.7), dist.LogNormal(0.0, 0.7)), dist.LogNormal(-3.0, 1.5)
    options: dict[str, Any] = {"inference": kpp.MAP(num_restarts=0, progress=False), "num_prior_samples": 0}
    key, bags = jax.random.key(seed), problem.bags
    joint = CMP(KERNEL, bag_kernel, noise, 1e-3, estimator="shrinkage")
    pseudo = mediate(key, bags, problem.covariates, problem.targets, bag_kernel, noise, options["inference"])
    return {
        "CMP": joint.fit(key, bags, problem.targets, covariates=problem.covariates, **options),
        "mediate": BaggGP(KERNEL, noise, noise="per_bag").fit(key, bags, pseudo, **options),
    }


def replicate(setting: tuple[int, int, float, float], seed: int) -> dict[str, Any]:
    """Return the shares, and errors and coverage of both ways, in one simulation."""
    problem = simulate(*setting, seed)
    check = check_mediation(problem.bags, problem.covariates, problem.targets, KERNEL)
    row: dict[str, Any] = dict(zip(("bags", "targets", "blur", "noise"), setting, strict=True))
    row |= {"operator": check.operator, "regression": check.regression}
    for name, fit in fit_both(problem, seed).items():
        found = fit.predict(problem.points)
        error = found["mean"].values[0, 0] - problem.field
        row[f"{name} error"] = float(np.sqrt(np.mean(error**2)))
        row[f"{name} covered"] = float(np.mean(np.abs(error) <= 1.96 * np.sqrt(found["latent_variance"].values[0, 0])))
    row["gain"] = float(np.log(row["CMP error"] / row["mediate error"]))
    return row


def run(replications: int) -> pd.DataFrame:
    """Return one row per setting and replication."""
    return pd.DataFrame([replicate(setting, seed) for setting in SETTINGS for seed in range(replications)])


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per setting: medians of the shares, means of all else, and standard errors of the errors."""
    groups = rows.groupby(["bags", "targets", "blur", "noise"])
    table = groups[["operator", "regression"]].median()
    for name in ("CMP", "mediate"):
        table[f"{name} error"] = groups[f"{name} error"].mean()
        table[f"{name} s.e."] = groups[f"{name} error"].sem()
        table[f"{name} covered"] = groups[f"{name} covered"].mean()
    table["gain"] = groups["gain"].mean()
    return table.reset_index()


def print_summary(rows: pd.DataFrame) -> None:
    """Print the table, the mean gain and its relation to the shares."""
    table, gain = summarize(rows), rows["gain"]
    click.echo(table.round(3).to_string(index=False))
    click.echo(
        f"\nmean gain {gain.mean():.3f} +- {gain.sem():.3f}; CMP is better in {np.mean(gain < 0):.0%} of {len(rows)}, "
        f"Wilcoxon p = {wilcoxon(gain).pvalue:.1e}"
    )
    for share in ("operator", "regression"):
        found = spearmanr(table[share], table["gain"])
        click.echo(f"rank correlation of gain and share, {share}: {found.statistic:.2f} (p = {found.pvalue:.3f})")


@click.command(help=__doc__.partition("\n")[0])
@click.option("--replications", type=int, default=10, show_default=True, help="Simulations per setting.")
@click.option("--output", type=click.Path(dir_okay=False), help="A CSV file for the rows of all simulations.")
def main(replications: int, output: str | None) -> None:
    jax.config.update("jax_enable_x64", True)
    rows = run(replications)
    if output is not None:
        rows.to_csv(output, index=False)
    print_summary(rows)


if __name__ == "__main__":
    main()
