"""Collider regression on simulated data: errors, oracle gap, ablations and the ridge of the conditional expectation.

    python examples/reproduce/collider_simulation.py [--small] [--seeds N] [--ablation-seeds N]
        [--ablations labeled,unlabeled,spouses,ridge] [--trees N] [--output FOLDER] [--cache FOLDER]
        [--covariance-seed SEED [--children N]]

(Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal knowledge,
2023, section 6.1, figures 4 and 6, appendix F.2.) (X1, X2, Y) is Gaussian with Y independent of X2, then

    X1 <- g1(X1) + N(0, .1^2),  g1(u) = u + .1 cos(2 pi u^2);    X2 <- g2(X2),  g2(u) = u + .1 sin(2 pi u^2).

The covariance, `data/collider_sigma.csv`, was drawn once by the paper's algorithm 7 for three X1 and eight X2, of which
the first three are used unless the dimension of X2 is varied. `draw_covariance` is this algorithm, for any dimensions;
with `--covariance-seed` another covariance is drawn, for as many X1 as `--children` says. All variables are
standardized by the moments of 100,000 draws, so the mean of Y is known to be 0 and no method estimates it. Labeled,
unlabeled and test rows are independent, and all methods use the same rows.

The methods are a random forest (RF), this forest minus a linear regression of its predictions on X2 (P-RF), kernel
ridge regression (KRR), its projection (P-KRR), and kernel ridge regression in the space of projected functions
(H_P-KRR). The projections use unlabeled rows. RBF lengthscales are 8 on X1 and 2 on X2. The ridge is .001 n, and the
ridge of the conditional mean embedding is 1 in total. Forests have 400 trees of depth 20 with two rows per leaf.

The oracle gap of proposition 4.1, E[E[f(X) | X2]^2], is the reduction of the error of f by the exact projection. It is
averaged over 400 points with 200 draws of X1 each, and the variance of the means of 200 draws is subtracted. The
expectation is conditional on the Gaussian vector from which X2 is computed. This vector contains more information than
X2, because g2 is not one to one. With X2 itself the gap of KRR was the same: over 12 seeds, the mean difference was
.0000 +- .0004.

`ColliderRidge.select_condition` chooses the ridge by the leave-one-out error of the conditional expectation of the
function fitted by KRR, which needs no labels. It is compared with the fixed ridge that has the smallest mean error over
all seeds.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
from collider_methods import (
    METHODS,
    Function,
    Sample,
    Settings,
    draw_boxes,
    fit_all,
    fitted,
    print_scores,
    print_wilcoxon,
    save_figure,
    standard_error,
    unlabeled_of,
)
from tqdm import tqdm

import kpp

NUM_CHILDREN, NOISE = 3, 0.1
SIGMA = np.loadtxt(Path(__file__).parent / "data" / "collider_sigma.csv", delimiter=",")
FOREST = {"n_estimators": 400, "max_depth": 20, "min_samples_leaf": 2}
RIDGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
ABLATIONS = ("labeled", "unlabeled", "spouses", "ridge")
GAPS = ("gap-RF", "gap-KRR")


@dataclasses.dataclass(frozen=True, order=True)
class Case:
    """The numbers of labeled rows, unlabeled rows, and spouses."""

    labeled: int = 50
    unlabeled: int = 100
    spouses: int = 3


@dataclasses.dataclass(frozen=True)
class Plan:
    """The size of the computation: test rows, values of each ablation, points and draws of the gap, ridges."""

    num_test: int = 5000
    labeled: tuple[int, ...] = (10, 20, 40, 60, 80, 100, 150, 200)
    unlabeled: tuple[int, ...] = (0, 25, 50, 100, 200, 400, 600, 800, 1000)
    spouses: tuple[int, ...] = tuple(range(1, 9))
    gap: tuple[int, int] = (400, 200)
    ridges: tuple[float, ...] = RIDGES

    def cases(self, ablation: str) -> list[Case]:
        return [dataclasses.replace(Case(), **{ablation: value}) for value in getattr(self, ablation)]


SMALL = Plan(200, labeled=(20, 50), unlabeled=(0, 100), spouses=(1, 3), gap=(20, 10), ridges=(0.1, 1.0))


@dataclasses.dataclass(frozen=True)
class Process:
    """The distribution of the data, with the moments by which features and target are standardized."""

    mean: np.ndarray
    scale: np.ndarray
    sigma: np.ndarray
    num_children: int

    @classmethod
    def standardised(
        cls, sigma: np.ndarray = SIGMA, num_children: int = NUM_CHILDREN, num_draws: int = 100_000
    ) -> Process:
        """Measure the moments on draws of all columns."""
        latent = gaussian(np.random.default_rng(1), num_draws, sigma)
        columns = transform(np.random.default_rng(0), latent, num_children)
        return cls(columns.mean(0), columns.std(0), sigma, num_children)

    def draw(self, rng: np.random.Generator, num_rows: int, num_spouses: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw features, children first, and targets."""
        columns = self.standardise(transform(rng, gaussian(rng, num_rows, self.sigma), self.num_children))
        return columns[:, : self.num_children + num_spouses], columns[:, -1]

    def standardise(self, columns: np.ndarray) -> np.ndarray:
        return (columns - self.mean) / self.scale

    def draw_given_latent(
        self, rng: np.random.Generator, num_points: int, num_draws: int, num_spouses: int
    ) -> np.ndarray:
        """Draw Gaussian vectors behind X2, and children given each, (points, draws, d)."""
        sigma, children = self.sigma, self.num_children
        seen = slice(children, children + num_spouses)
        latent = gaussian(rng, num_points, sigma)
        weights = np.linalg.solve(sigma[seen, seen], sigma[seen, :children])
        covariance = sigma[:children, :children] - sigma[:children, seen] @ weights
        noise = rng.standard_normal((num_points, num_draws, children)) @ np.linalg.cholesky(covariance).T
        columns = np.repeat(latent[:, None], num_draws, axis=1)
        columns[:, :, :children] = (latent[:, seen] @ weights)[:, None] + noise
        return self.standardise(transform(rng, columns, children))[:, :, : children + num_spouses]


def draw_covariance(rng: np.random.Generator, num_children: int, num_spouses: int) -> np.ndarray:
    """Draw a covariance of (X1, X2, Y) with unit variances under which Y is independent of X2 (algorithm 7)."""
    vectors = rng.standard_normal((4, num_children + num_spouses + 1))
    vectors /= np.linalg.norm(vectors, axis=0)
    spouses, target = slice(num_children, num_children + num_spouses), vectors[:, -1]
    vectors[:, spouses] -= np.outer(target, target @ vectors[:, spouses])
    sigma = vectors.T @ vectors + 0.01 * np.eye(vectors.shape[1])
    scale = np.sqrt(np.diagonal(sigma))
    return sigma / np.outer(scale, scale)


def gaussian(rng: np.random.Generator, num_rows: int, sigma: np.ndarray = SIGMA) -> np.ndarray:
    """Draw the Gaussian vectors (X1, X2, Y)."""
    return rng.standard_normal((num_rows, len(sigma))) @ np.linalg.cholesky(sigma).T


def transform(rng: np.random.Generator, columns: np.ndarray, num_children: int = NUM_CHILDREN) -> np.ndarray:
    """Apply g1 and noise to X1, and g2 to X2."""
    x1, x2, y = np.split(columns, [num_children, columns.shape[-1] - 1], axis=-1)
    x1 = x1 + 0.1 * np.cos(2 * np.pi * x1**2) + NOISE * rng.standard_normal(x1.shape)
    return np.concatenate([x1, x2 + 0.1 * np.sin(2 * np.pi * x2**2), y], axis=-1)


class Seed:
    """The data and forests of one seed: cases with the same labeled rows share a forest."""

    def __init__(self, seed: int, process: Process, settings: Settings, plan: Plan):
        self.seed, self.process, self.settings, self.plan = seed, process, settings, plan
        self.forests: dict[tuple[int, int], Function] = {}

    def rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])

    def sample(self, case: Case) -> Sample:
        x, y = self.process.draw(self.rng(0), case.labeled, case.spouses)
        unlabeled, _ = self.process.draw(self.rng(1), case.unlabeled, case.spouses)
        return Sample(x, y, unlabeled, self.process.num_children)

    def error(self, function: Function, num_spouses: int) -> float:
        """Return the mean squared error on the test rows."""
        x, y = self.process.draw(self.rng(2), self.plan.num_test, num_spouses)
        return float(np.mean((function(x) - y) ** 2))

    def fit(self, case: Case) -> dict[str, Function]:
        sample, key = self.sample(case), (case.labeled, case.spouses)
        if key not in self.forests:
            self.forests[key] = self.settings.fit_forest(sample, self.seed)
        return fit_all(self.settings, sample, self.forests[key])

    def scores(self, case: Case, *, gaps: bool = False) -> dict[str, Any]:
        """Return the errors of all methods, and on request, the oracle gaps of the unprojected methods."""
        functions = self.fit(case)
        row = {name: self.error(function, case.spouses) for name, function in functions.items()}
        if gaps:
            points = self.process.draw_given_latent(self.rng(3), *self.plan.gap, case.spouses)
            row |= {name: oracle_gap(functions[name.removeprefix("gap-")], points) for name in GAPS}
        return {"seed": self.seed, **dataclasses.asdict(case), **row}

    def ridge_scores(self) -> list[dict[str, Any]]:
        """Return the errors with each ridge, and the cross-validated loss by which one is chosen."""
        sample, case = self.sample(Case()), Case()
        ridges = np.asarray(self.plan.ridges)
        grid = {"condition_regularization": ridges / len(sample.rows)}
        found = self.settings.collider_ridge(sample, "none").select_condition(
            sample.x, sample.y, grid=grid, unlabeled=unlabeled_of(sample)
        )
        losses = found.scores.to_numpy()
        rows = []
        for ridge, loss in zip(ridges, losses, strict=True):
            row = {"seed": self.seed, "ridge": ridge, "loss": loss, "chosen": loss == losses.min()}
            for name, projection in (("P-KRR", "function"), ("H_P-KRR", "space")):
                function = fitted(self.settings.collider_ridge(sample, projection, ridge), sample)
                row[name] = self.error(function, case.spouses)
            rows.append(row)
        return rows


def oracle_gap(function: Function, points: np.ndarray) -> float:
    """Return the mean square of conditional means, from draws (points, draws, d), without the part of their error."""
    values = function(points.reshape(-1, points.shape[-1])).reshape(points.shape[:2])
    return float(np.mean(values.mean(1) ** 2 - values.var(1, ddof=1) / points.shape[1]))


def print_gaps(frame: pd.DataFrame) -> None:
    """Print the gain of the exact projection and the gains of the estimated projections."""
    click.echo("\nOracle gap (proposition 4.1): reduction of the error by the exact projection")
    click.echo(f"{'':>9}{'mean':>9}{'sd':>9}{'se':>9}   reduction by estimated projections")
    for name, projections in (("RF", ("P-RF",)), ("KRR", ("P-KRR", "H_P-KRR"))):
        gap = frame[f"gap-{name}"]
        gains = ", ".join(f"{other} {(frame[name] - frame[other]).mean():.4f}" for other in projections)
        row = f"{'gap-' + name:>9}{gap.mean():>9.4f}{gap.std(ddof=1):>9.4f}{standard_error(gap):>9.4f}"
        click.echo(f"{row}   {gains}")


def print_ablation(frame: pd.DataFrame, ablation: str, values: tuple[int, ...]) -> None:
    """Print mean errors +- standard errors for each value."""
    click.echo(f"\nTest MSE by {ablation}: mean +- standard error, {frame['seed'].nunique()} seeds")
    click.echo(f"{ablation:>11}" + "".join(f"{name:>18}" for name in METHODS))
    for value in values:
        rows = frame.loc[frame[ablation] == value, list(METHODS)]
        cells = zip(rows.mean(), standard_error(rows), strict=True)
        click.echo(f"{value:>11}" + "".join(f"{mean:>9.4f} +- {error:.4f}" for mean, error in cells))


def print_ridges(frame: pd.DataFrame, errors: pd.DataFrame) -> None:
    """Print mean errors by ridge, and the loss of the choice against the best fixed ridge."""
    names = ["P-KRR", "H_P-KRR"]
    means = frame.groupby("ridge")[names].mean()
    click.echo(f"\nTest MSE by total ridge of the conditional mean embedding, {frame['seed'].nunique()} seeds")
    click.echo(f"{'ridge':>9}" + "".join(f"{name:>9}" for name in names) + f"{'chosen in':>12}")
    for ridge, row in means.iterrows():
        share = frame.loc[frame["ridge"] == ridge, "chosen"].mean()
        click.echo(f"{ridge:>9g}" + "".join(f"{value:>9.4f}" for value in row) + f"{share:>12.2f}")
    chosen = frame.loc[frame["chosen"], names].mean()
    for name in names:
        ratio = chosen[name] / means[name].min()
        words = f"{100 * (ratio - 1):.1f} % above the best fixed ridge, {means[name].idxmin():g}"
        click.echo(f"{name}: {chosen[name]:.4f} with the chosen ridge, {words}; KRR has {errors['KRR'].mean():.4f}")


def draw_figure(tables: dict[str, pd.DataFrame], plan: Plan, path: Path) -> None:
    """Draw errors and gaps, each ablation and the effect of the ridge: means, with bands of one standard deviation."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(tables), figsize=(4 * len(tables), 3.4), layout="constrained", squeeze=False)
    for axis, (name, frame) in zip(axes[0], tables.items(), strict=True):
        if name == "errors":
            draw_boxes(axis, frame[[*METHODS, *GAPS]], "test MSE, oracle gap")
            continue
        for method in METHODS:
            if method in frame:
                curve = frame.groupby(name)[method].agg(["mean", "std"])
                axis.plot(curve.index, curve["mean"], marker=".", label=method)
                axis.fill_between(
                    curve.index, curve["mean"] - curve["std"], curve["mean"] + curve["std"], alpha=0.15, linewidth=0
                )
        axis.set(xlabel=name, ylabel="test MSE", xscale="log" if name == "ridge" else "linear")
        axis.legend(frameon=False)
    save_figure(figure, path)


@click.command(help=__doc__.partition("\n")[0])
@click.option("--small", is_flag=True, help="Few seeds, rows, trees and values, for a quick trial run.")
@click.option("--seeds", type=int, default=100, show_default=True, help="Data sets of the comparison.")
@click.option("--ablation-seeds", type=int, default=40, show_default=True, help="Data sets of the ablations.")
@click.option("--ablations", default=",".join(ABLATIONS), show_default=True, help='With commas, or "".')
@click.option("--trees", type=int, default=FOREST["n_estimators"], show_default=True, help="Trees per forest.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="A folder for the figure and tables.")
@click.option("--cache", type=click.Path(file_okay=False), help="A folder that keeps compiled programs.")
@click.option("--covariance-seed", type=int, help="Draw a covariance by algorithm 7, instead of that of the tables.")
@click.option("--children", type=click.IntRange(1), default=NUM_CHILDREN, show_default=True, help="X1 of that draw.")
def main(
    seeds, ablation_seeds, ablations, trees, small, output, cache, covariance_seed, children
) -> dict[str, pd.DataFrame]:
    jax.config.update("jax_enable_x64", True)
    if cache is not None:
        kpp.enable_compile_cache(cache)
    plan = SMALL if small else Plan()
    if small:
        seeds, ablation_seeds, trees = 3, 2, 10
    settings = Settings((8.0, 2.0), 1.0, FOREST | {"n_estimators": trees})
    process = Process.standardised()
    if covariance_seed is not None:
        sigma = draw_covariance(np.random.default_rng(covariance_seed), children, len(SIGMA) - 1 - NUM_CHILDREN)
        process = Process.standardised(sigma, children)
    wanted = ablations.split(",") if ablations else []
    if unknown := set(wanted) - set(ABLATIONS):
        raise click.BadParameter(f"`--ablations` must be among {ABLATIONS}, got {sorted(unknown)}")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ("errors", *wanted)}
    for number in tqdm(range(max(seeds, ablation_seeds if wanted else 0)), unit="seed"):
        seed = Seed(number, process, settings, plan)
        base = seed.scores(Case(), gaps=number < seeds)
        if number < seeds:
            found["errors"].append(base)
        for ablation in wanted if number < ablation_seeds else ():
            if ablation == "ridge":
                found[ablation] += seed.ridge_scores()
            else:
                found[ablation] += [base if c == Case() else seed.scores(c) for c in plan.cases(ablation)]
    tables = {name: pd.DataFrame(rows) for name, rows in found.items()}
    report(tables, plan)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, frame in tables.items():
            frame.to_csv(output / f"{name}.csv", index=False)
        draw_figure(tables, plan, output / "simulation.png")
    return tables


def report(tables: dict[str, pd.DataFrame], plan: Plan) -> None:
    """Print everything that was computed."""
    errors = tables["errors"]
    print_scores(errors[list(METHODS)], "Test MSE")
    print_gaps(errors)
    print_wilcoxon(errors[list(METHODS)], "test MSE")
    for name, frame in tables.items():
        if name == "ridge":
            print_ridges(frame, errors[errors["seed"].isin(frame["seed"])])
        elif name != "errors":
            print_ablation(frame, name, getattr(plan, name))


if __name__ == "__main__":
    main()
