"""Intervals of `kpp.certify`: a right model passes, and a wrong one fails."""

from __future__ import annotations

import functools

import jax
import numpy as np
from numpyro import distributions as dist

import kpp
from examples.coverage.simulations import Intervals, Simulation
from kpp.kernels import RBF
from kpp_models import GPRegression

jax.config.update("jax_enable_x64", True)

TITLE = "Certificates"
ROWS, NEW, DATA_SETS = 60, 10, 20
LOGARITHMS, SPREAD = np.array([0.3, 0.0, -1.5]), 0.4
INFERENCE = kpp.Laplace(num_samples=100, progress=False)


def measure_certificate(seed: int, shift: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> dict[str, Intervals]:
    """Return what a certificate allows around each share that it measured; a quantity passes if that holds the level.

    Args:
        seed: The seed of the data.
        shift: What the model's priors add to the true medians of the logarithms of lengthscale, variance and noise
            variance.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS + NEW, 2))
    lengthscale, variance, noise = np.exp(rng.normal(LOGARITHMS, SPREAD))
    gram = np.asarray(RBF(lengthscale, variance=variance)(x[:ROWS], x[:ROWS])) + 1e-8 * np.eye(ROWS)
    y = np.linalg.cholesky(gram) @ rng.normal(size=ROWS) + np.sqrt(noise) * rng.normal(size=ROWS)
    priors = [dist.LogNormal(location, SPREAD) for location in LOGARITHMS + np.array(shift)]
    model = GPRegression(RBF(priors[0], variance=priors[1]), noise_variance=priors[2])
    key = jax.random.key(seed)
    fit = model.fit(key, x[:ROWS], y, inference=INFERENCE, num_prior_samples=0)
    found = kpp.certify(key, fit, x[ROWS:], data_sets=DATA_SETS, max_draws=100, progress=False)
    rows = {row.quantity: Intervals(row.nominal, row.held - row.margin, row.held + row.margin) for row in found.rows}
    return rows | {"all of them": Intervals(1.0, 0.0, float(found.passes))}


def measure_verdict(seed: int, shift: tuple[float, float, float]) -> dict[str, Intervals]:
    """Return the verdict of `measure_certificate` alone."""
    return {"all of them": measure_certificate(seed, shift)["all of them"]}


ABOUT = "`kpp.certify` of GPRegression by `kpp.Laplace`, 20 data sets"
LAW = (
    "two normal features, a function from the Gaussian process and normal noise, with hyperparameters from {}; ten "
    "explained rows. A certificate holds if each share is within two standard errors and 3 points of its level."
)
SIMULATIONS = {
    "certificate_right": Simulation(
        f"{ABOUT}, right priors: it passes", LAW.format("the model's priors"), ROWS, measure_certificate, 24, 0.95
    ),
    **{
        f"certificate_{name}": Simulation(
            f"{ABOUT}, wrong prior: it passes all the same",
            LAW.format(f"priors that are the model's but for the {what}, whose median the model takes to be a tenth"),
            ROWS,
            functools.partial(measure_verdict, shift=shift),
            12,
            0.0,
        )
        for name, what, shift in (
            ("short", "lengthscales", (-np.log(10.0), 0.0, 0.0)),
            ("quiet", "noise variances", (0.0, 0.0, -np.log(10.0))),
        )
    },
}
