"""Why VarCMP is worse than VBagg on the simulated fields of `downscaling.py`, with 150 inducing points and 30 steps.

    python examples/reproduce/downscaling_operator.py [--seeds 2] [--small]

VarCMP learns of the field what the targets say through the bags of D1: a target is a weighted mean of bags with similar
position and pressure. What the weights miss of a bag's embedding counts as noise. The script changes one cause at a
time, for splits 0, 1 and so on: more steps of the search ("120 steps"), and the field's kernel that VBagg finds
("kernel of VBagg"). "no bridge" gives VarCMP the targets of the bags of D1 themselves, which no user has, so that the
operator has nothing to bridge. The tables have the root mean squared errors of the maps, and the shares of
`check_mediation` with the kernel that a user guesses (`downscaling.py`) and with the one that VBagg finds.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any

import click
import downscaling as base
import jax
import pandas as pd

from kpp.kernels import RBF, AbstractKernel, Matern32
from kpp.priors import substitute
from kpp_models import CMP, MediationCheck, check_mediation
from kpp_models.aggregates import grids

START = base.Settings(inducing=150, steps=30, pixels=20, regularization=1e-5)


def fit_cmp(problem: base.Problem, settings: base.Settings, seed: int, kernel: AbstractKernel, bridge: bool) -> Any:
    """Fit VarCMP with a kernel of the field, to the targets of D2 or (without a bridge) of D1."""
    model = CMP(
        kernel,
        base.kernel((base.MEDIATOR,)),
        base.NOISE,
        settings.regularization,
        estimator="shrinkage",
        num_inducing=settings.inducing,
        bag_gram="sampled",
        gram_size=10,
        seed=seed,
    )
    if bridge:
        return base.fit_in_two_steps(model, problem, settings, seed, problem.targets, covariates=problem.covariates)
    own = (problem.cells.means(problem.fields[base.TARGET])[problem.first] - problem.center) / problem.scale
    return base.fit_in_two_steps(model, problem, settings, seed, own)


def error(fit: Any, problem: base.Problem) -> float:
    """Return the root mean squared error of the map."""
    found = grids.predict_map(fit, problem.cells.fine, center=problem.center, scale=problem.scale, noise=False)
    return float(grids.map_scores(problem.fields[base.TARGET], found["mean"])["rmse"])


def guess(problem: base.Problem) -> AbstractKernel:
    """Return the kernel of the field that a user guesses."""
    return Matern32(0.5).on(base.COORDINATES) + RBF(1.0).on(problem.features)


def shares(problem: base.Problem, field: AbstractKernel) -> MediationCheck:
    """Return the shares that position and pressure leave unexplained, under a kernel of the field."""
    few = problem.bags.subsample(jax.random.key(0), 10)
    candidates = [
        Matern32(near, variance).on(base.COORDINATES) + RBF(long).on((base.MEDIATOR,))
        for near, long, variance in itertools.product((0.3, 1.0, 3.0), (0.5, 1.0, 3.0), (0.3, 1.0, 3.0))
    ]
    return check_mediation(few, problem.covariates, problem.targets, field, candidates)


def run(fields: Any, block: int, settings: base.Settings, seed: int) -> tuple[list[dict], list[dict]]:
    """Return the errors and the shares of one split."""
    problem = base.pose(fields, block, seed)
    bagg = base.fit_vbagg(problem, settings, seed, base.pseudo_targets(problem, settings, seed))
    found = {name: draws[0, 0] for name, draws in bagg.draws.items()}
    learned, prior = substitute("kernel", bagg.model.kernel, found), base.kernel(problem.features)
    change = dataclasses.replace
    variants = {
        "VarCMP": lambda: fit_cmp(problem, settings, seed, prior, True),
        "120 steps": lambda: fit_cmp(problem, change(settings, steps=4 * settings.steps), seed, prior, True),
        "kernel of VBagg": lambda: fit_cmp(problem, settings, seed, learned, True),
        "no bridge": lambda: fit_cmp(problem, settings, seed, prior, False),
    }
    rows = [{"model": "VBagg", "seed": seed, "rmse": error(bagg, problem)}]
    for name, fit in variants.items():
        start = time.process_time()
        rows.append({"model": name, "seed": seed, "rmse": error(fit(), problem)})
        click.echo(f"seed {seed} {name}: {rows[-1]['rmse']:.3f} ({time.process_time() - start:.0f} CPU s)")
    checks = {"guessed": shares(problem, guess(problem)), "found by VBagg": shares(problem, learned)}
    return rows, [{"kernel": name, "seed": seed, **check._asdict()} for name, check in checks.items()]


@click.command(help=__doc__.partition("\n")[0])
@click.option("--seeds", default=2, show_default=True, help="Splits.")
@click.option("--small", is_flag=True, help="One split of a small field.")
def main(seeds: int, small: bool) -> dict[str, pd.DataFrame]:
    """Measure every cause."""
    jax.config.update("jax_enable_x64", True)
    fields, block, settings = base.simulate(96, 192), 8, START
    if small:
        fields, block, settings, seeds = base.simulate(24, 48), 4, dataclasses.replace(START, inducing=20, steps=5), 1
    found = [run(fields, block, settings, seed) for seed in range(seeds)]
    errors, checks = (pd.DataFrame([row for part in parts for row in part]) for parts in zip(*found, strict=True))
    click.echo(errors.groupby("model", sort=False)["rmse"].agg(["mean", "sem"]).round(3).to_string())
    click.echo(checks.groupby("kernel", sort=False)[["operator", "regression"]].mean().round(4).to_string())
    return {"errors": errors, "shares": checks}


if __name__ == "__main__":
    main()
