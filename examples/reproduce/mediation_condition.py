"""Where a conditional mean process and where two-step mediation has the smaller error: 60 simulated fields.

    python examples/reproduce/mediation_condition.py [--replications 10] [--first-seed 0]
        [--no-combined] [--output CSV] [--small]

(Chau, Bouabid and Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, section 5: there CMP is best.) A
field on the plane and on a third feature u is observed through means of bags of 10 points. The covariate y of a bag is
its center in the plane, blurred. D1 has bags without targets, D2 targets of bags that are not seen. Six kinds of fields
differ in what the covariate leaves unexplained:

* "few targets": 60 bags and 15 targets; otherwise there are 40 of each, unless something else is said;
* "rough targets": the field's lengthscale is about the distance of the bags;
* "noisy targets": the targets' noise has half the variance of their means;
* "blurred covariate": y is blurred by the width of a bag;
* "few bags": 15 bags and 60 targets, with little noise;
* "smooth targets": a long lengthscale, little noise, and u has a level of its own in every bag, which y does not say
  and which hardly influences the field.

Kernels, amplitudes and noise are learned by MAP from the same priors: by `CMP`, and by `BaggGP` with the targets of
`mediate`. `check_mediation` gets the kernel of the field as a user would give it, without learned hyperparameters. The
errors are those of the field at the points of 30 new bags, in units of its standard deviation; "covered" is the share
of these points in 95 % intervals. "gain" is the logarithm of the ratio of the errors, negative if CMP is better, and
"right" is 1 if the way whose share is smaller has the smaller error. "advice" is what `check_mediation` says of errors.
The thresholds of the advice were chosen on the fields of `downscaling.py`, and on fields with the seeds 1000 to 1002.

Three attempts at one model that uses both ways are measured on the same fields:

* "mixed": the mean of both predictions, weighted by the share that the other leaves unexplained;
* "joint": one Gaussian process given the targets, by the operator, and the pseudo-targets, by their bags. Their noise
  variances are learned by the evidence, in which each counts by the share that the other leaves unexplained;
* "boosted": the two-step prediction plus a CMP of the residuals of the targets, whose kernels and noise are learned.

"mixed gain" and so on are the mean logarithms of their errors divided by the smaller error of the two ways: negative if
the attempt is better than the better of the two.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

import click
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from scipy.optimize import minimize
from scipy.stats import wilcoxon

import kpp
from kpp.kernels import RBF
from kpp.priors import substitute
from kpp_models import CMP, BaggGP, check_mediation, mediate

SIZE, SPREAD, NEW_BAGS = 10, 0.3, 30


@dataclasses.dataclass(frozen=True)
class Kind:
    """How fields of a kind are drawn; `hidden` is the standard deviation of the bags' levels of u."""

    bags: int = 40
    targets: int = 40
    lengthscale: float = 0.7
    noise: float = 0.02
    blur: float = 0.02
    hidden: float = 0.0
    weight: float = 0.02  # the variance of the part of the field that depends on u


KINDS = {
    "few targets": Kind(bags=60, targets=15),
    "rough targets": Kind(lengthscale=0.4),
    "noisy targets": Kind(noise=0.5),
    "blurred covariate": Kind(blur=SPREAD),
    "few bags": Kind(bags=15, targets=60, lengthscale=1.0, noise=0.01),
    "smooth targets": Kind(lengthscale=1.5, noise=0.005, hidden=2.0, weight=0.005),
}


class Problem(NamedTuple):
    """D1 as bags, covariates and targets of D2, and new points with the field there."""

    bags: kpp.Bags
    covariates: np.ndarray
    targets: np.ndarray
    points: np.ndarray
    field: np.ndarray


def simulate(kind: Kind, seed: int) -> Problem:
    """Draw a field and everything that is observed of it."""
    rng = np.random.default_rng(seed)
    total = kind.bags + kind.targets + NEW_BAGS
    centers = rng.uniform(-1.0, 1.0, size=(total, 2))
    plane = centers[:, None] + SPREAD * rng.normal(size=(total, SIZE, 2))
    hidden = kind.hidden * rng.normal(size=(total, 1, 1)) + rng.normal(size=(total, SIZE, 1))
    points = np.concatenate([plane, hidden], axis=2)
    flat = jnp.asarray(points.reshape(-1, 3))
    gram = RBF(kind.lengthscale).on((0, 1)).gram(flat) + RBF(1.0, kind.weight).on(2).gram(flat)
    factor = np.linalg.cholesky(np.asarray(gram) + 1e-8 * np.eye(len(flat)))
    field = (factor @ rng.normal(size=len(flat))).reshape(total, SIZE)
    field = field / field.std()
    covariates = centers + kind.blur * rng.normal(size=centers.shape)
    label = np.repeat(np.arange(kind.bags), SIZE)
    bags = kpp.Bags.create(points[: kind.bags].reshape(-1, 3), label, covariates[: kind.bags])
    second = slice(kind.bags, kind.bags + kind.targets)
    means = field[second].mean(axis=1)
    targets = means + kind.noise**0.5 * means.std() * rng.normal(size=kind.targets)
    new = slice(kind.bags + kind.targets, None)
    return Problem(bags, covariates[second], targets, points[new].reshape(-1, 3), field[new].ravel())


PRIOR = dist.LogNormal(-0.5, 1.0)
NOISE = dist.LogNormal(-3.0, 1.5)
FIELD = RBF(PRIOR, PRIOR).on((0, 1)) + RBF(PRIOR, PRIOR).on(2)
BAG_KERNEL = RBF(PRIOR, dist.LogNormal(0.0, 1.0))
GIVEN = RBF(0.5).on((0, 1)) + RBF(1.0).on(2)  # the field's kernel as a user guesses it
REGULARIZATION = 1e-3
INFERENCE = kpp.MAP(num_restarts=0, tolerance=1e-3, progress=False)


class Prediction(NamedTuple):
    """The field at the new points: mean and variance."""

    mean: np.ndarray
    variance: np.ndarray


def predict(model: Any, problem: Problem, targets: Any, seed: int, **options: Any) -> tuple[kpp.Fit, Prediction]:
    """Fit a model and predict the field."""
    fit = model.fit(jax.random.key(seed), problem.bags, targets, inference=INFERENCE, num_prior_samples=0, **options)
    found = fit.predict(problem.points)
    return fit, Prediction(found["mean"].values[0, 0], found["latent_variance"].values[0, 0])


def covariance_of(parameters: Any, linear: Any, bags: kpp.Bags, weights: Any) -> tuple[Any, Any]:
    """Return the kernel of the field and the covariance of targets and pseudo-targets, for logarithms of numbers."""
    long, near, one, two, *noise = jnp.exp(parameters)
    kernel = RBF(long, one).on((0, 1)) + RBF(near, two).on(2)
    scales = jnp.repeat(jnp.stack(noise) / weights, np.array([len(linear) - bags.num_bags, bags.num_bags]))
    return kernel, linear @ bags.gram(kernel) @ linear.T + jnp.diag(scales + 1e-8)


@eqx.filter_jit
@eqx.filter_value_and_grad
def loss_of(parameters: Any, linear: Any, observed: Any, bags: kpp.Bags, weights: Any) -> Any:
    """Return minus the logarithm of evidence and prior of `joint`."""
    factor = jnp.linalg.cholesky(covariance_of(parameters, linear, bags, weights)[1])
    white = jax.scipy.linalg.solve_triangular(factor, observed, lower=True)
    prior = jnp.sum(jnp.square(parameters - jnp.array([-0.5, -0.5, -0.5, -0.5, -3.0, -3.0]))) / 2
    return jnp.sum(white**2) / 2 + jnp.sum(jnp.log(jnp.diagonal(factor))) + prior


def joint(problem: Problem, operator: np.ndarray, pseudo: np.ndarray, share: float) -> np.ndarray:
    """Return the mean of the field given targets by the operator (N, M) and pseudo-targets by their bags.

    Args:
        problem: The data.
        operator: A, the weights of the bags for each target.
        pseudo: The pseudo-targets.
        share: How much the targets count, the exponent of their likelihood; the pseudo-targets count by the rest.
    """
    linear = jnp.concatenate([jnp.asarray(operator).T, jnp.eye(len(operator))])
    observed = jnp.concatenate([jnp.asarray(problem.targets), jnp.asarray(pseudo)])
    weights = jnp.clip(jnp.array([share, 1.0 - share]), 0.01)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss_of(jnp.asarray(parameters), linear, observed, problem.bags, weights)
        return float(value), np.asarray(slope)

    found = minimize(loss, np.array([-0.5, 0.0, -0.5, -2.0, -3.0, -3.0]), jac=True, method="L-BFGS-B")
    kernel, covariance = covariance_of(jnp.asarray(found.x), linear, problem.bags, weights)
    cross = problem.bags.means(kernel(problem.bags.points, jnp.asarray(problem.points)))
    return np.asarray((linear @ cross).T @ jnp.linalg.solve(covariance, observed))


def weights_of(fit: kpp.Fit, problem: Problem) -> np.ndarray:
    """Return A of a fitted CMP, the weights of the bags for each target, (N, M)."""
    values = {name: draws[0, 0] for name, draws in fit.draws.items()}
    kernel, covariates = substitute("bag_kernel", BAG_KERNEL, values), problem.bags.covariates
    ridge = REGULARIZATION * len(covariates) * jnp.eye(len(covariates))
    return np.asarray(jnp.linalg.solve(kernel.gram(covariates) + ridge, kernel(covariates, problem.covariates)))


def replicate(name: str, seed: int, combined: bool) -> dict[str, Any]:
    """Return the shares, and errors and coverage of all ways, on one field."""
    problem = simulate(KINDS[name], seed)
    check = check_mediation(problem.bags, problem.covariates, problem.targets, GIVEN)
    pseudo = mediate(
        jax.random.key(seed), problem.bags, problem.covariates, problem.targets, BAG_KERNEL, NOISE, INFERENCE
    )
    model = CMP(FIELD, BAG_KERNEL, NOISE, REGULARIZATION, estimator="shrinkage")
    fit, of_cmp = predict(model, problem, problem.targets, seed, covariates=problem.covariates)
    two, of_two = predict(BaggGP(FIELD, NOISE, noise="per_bag"), problem, pseudo, seed)
    errors = {"CMP": rmse(of_cmp.mean, problem), "two steps": rmse(of_two.mean, problem)}
    row = {"kind": name, "seed": seed, "operator": check.operator, "regression": check.regression, **errors}
    for way, found in (("CMP", of_cmp), ("two steps", of_two)):
        width = 1.96 * np.sqrt(np.maximum(found.variance, 0.0))
        row[f"{way} covered"] = float(np.mean(np.abs(found.mean - problem.field) <= width))
    row["CMP better"] = float(errors["CMP"] < errors["two steps"])
    row["gain"] = float(np.log(errors["CMP"] / errors["two steps"]))
    row["advice"] = "two steps" if "take `mediate`" in check.advice else "undecided"
    row["right"] = float((check.operator < check.regression) == (errors["CMP"] < errors["two steps"]))
    if not combined:
        return row
    share = check.regression / (check.operator + check.regression)  # of CMP in a mixture
    operator = weights_of(fit, problem)
    at_bags = problem.bags.means(two.predict(problem.bags.points)["mean"].values[0, 0])
    residuals = problem.targets - operator.T @ np.asarray(at_bags)
    _, rest = predict(model, problem, residuals, seed, covariates=problem.covariates)
    attempts = {
        "mixed": share * of_cmp.mean + (1 - share) * of_two.mean,
        "joint": joint(problem, operator, np.asarray(pseudo), share),
        "boosted": of_two.mean + rest.mean,
    }
    for attempt, mean in attempts.items():
        row[attempt] = rmse(mean, problem)
        row[f"{attempt} gain"] = float(np.log(row[attempt] / min(errors.values())))
    return row


def rmse(mean: np.ndarray, problem: Problem) -> float:
    """Return the root mean squared error of the field at the new points."""
    return float(np.sqrt(np.mean((mean - problem.field) ** 2)))


@click.command(help=__doc__.partition("\n")[0])
@click.option("--replications", type=int, default=10, show_default=True, help="Fields of each kind.")
@click.option("--first-seed", type=int, default=0, show_default=True, help="The seed of the first field.")
@click.option("--combined/--no-combined", default=True, show_default=True, help="Whether to try the combinations.")
@click.option("--output", type=click.Path(dir_okay=False), help="A CSV file for the rows of all fields.")
@click.option("--small", is_flag=True, help="One field of one kind, for a trial run.")
def main(
    replications: int, first_seed: int, combined: bool, output: str | None, small: bool
) -> dict[str, pd.DataFrame]:
    """Measure all fields."""
    jax.config.update("jax_enable_x64", True)
    names, count = (list(KINDS)[:1], 1) if small else (list(KINDS), replications)
    rows, start = [], time.process_time()
    for name in names:
        rows += [replicate(name, first_seed + seed, combined) for seed in range(count)]
        found = pd.DataFrame([row for row in rows if row["kind"] == name]).drop(columns=["kind", "seed", "advice"])
        click.echo(f"{name} ({time.process_time() - start:.0f} CPU s)")
        click.echo(pd.DataFrame({"mean": found.mean(), "se": found.sem()}).T.round(3).to_string())
    fields = pd.DataFrame(rows)
    if output is not None:
        fields.to_csv(output, index=False)
    click.echo(f"\nthe smaller share has the smaller error in {fields['right'].mean():.0%} of {len(fields)} fields")
    for share, group in fields.groupby("advice"):
        click.echo(
            f"{share}: {len(group)} fields, CMP better in {group['CMP better'].mean():.0%}, log ratio of errors "
            f"{group['gain'].mean():+.3f} +- {group['gain'].sem():.3f}"
        )
    for attempt in ("mixed", "joint", "boosted") if combined and len(fields) > 5 else ():
        gain = fields[f"{attempt} gain"]
        click.echo(
            f"{attempt}: log error over the better of the two {gain.mean():+.3f} +- {gain.sem():.3f}, "
            f"p = {wilcoxon(gain).pvalue:.2g}"
        )
    return {"fields": fields, "rule": fields.assign(fields="all", field=fields["kind"] + fields["seed"].astype(str))}


if __name__ == "__main__":
    main()
