"""Are the draws of `kpp.NUTS` with its defaults draws from the posterior? Simulation-based calibration of three models.

Run it as `python examples/benchmarks/nuts_calibration.py [--quick] [--repeats 200] [--seed 1] [--only MODEL]`.
Hyperparameters and data are drawn from the prior, `kpp.NUTS` fits the model with its default start and warm-up, and the
true values are ranked among every fourth draw. Ranks of a correct posterior are uniform, so that 90 % of them are in
the middle 90 %. The models are a Gaussian-process regression, a Gaussian process of bags, and a logistic regression in
NumPyro.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist

import kpp
from kpp.calibration import rank_statistics, simulate, uniformity_test
from kpp.kernels import RBF
from kpp_models import BaggGP, GPRegression

# 99 draws are left, so that there are 100 ranks.
NUM_SAMPLES, THINNING = 396, 4


def regression(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Return the NumPyro model of a Gaussian-process regression on 40 points, and its data without targets."""
    lengthscale = dist.LogNormal(0.0, 0.7).expand([2])
    model = GPRegression(RBF(lengthscale, variance=dist.HalfNormal(1.5)), noise_variance=dist.HalfNormal(0.5))
    model, data, _ = model.prepare(rng.normal(size=(40, 2)), np.zeros(40))
    return model.numpyro_model, data | {"y": None}


def bags(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Return the model of a Gaussian process observed as means over 25 bags of 4 points."""
    points = rng.normal(size=(25, 1, 2)) + 0.5 * rng.normal(size=(25, 4, 2))
    sample = kpp.Bags.create(points.reshape(100, 2), np.repeat(np.arange(25), 4))
    model = BaggGP(RBF(dist.LogNormal(0.0, 0.7), variance=dist.HalfNormal(1.5)), dist.HalfNormal(0.5))
    model, data, _ = model.prepare(sample, np.zeros(25))
    return model.numpyro_model, data | {"y": None}


def logistic(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Return a logistic regression on 60 rows, with a scale of its weights."""

    def model(x: Any, y: Any = None) -> None:
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
        weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=scale * (x @ weights)).to_event(1), obs=y)

    return model, {"x": jnp.asarray(rng.normal(size=(60, 3))), "y": None}


MODELS = {"GPRegression": regression, "BaggGP": bags, "logistic regression": logistic}


def calibrate(name: str, repeats: int, seed: int) -> None:
    """Print a line for each number that a model infers."""
    model, data = MODELS[name](np.random.default_rng(0))
    latent, observed = simulate(jax.random.key(seed), model, data, repeats)
    simulated = latent | observed
    inference = kpp.NUTS(num_samples=NUM_SAMPLES, num_chains=1, progress=False)
    draws, starts = [], []
    for repeat in range(repeats):
        key = jax.random.fold_in(jax.random.key(seed), repeat)
        posterior = inference.run(key, model, data | {"y": simulated["y"][repeat]})
        draws.append({site: np.asarray(values)[0, ::THINNING] for site, values in posterior.samples.items()})
        starts.append(posterior.attrs["init"])
    shares = {start: starts.count(start) / repeats for start in sorted(set(starts))}
    print(f"{name}: starts", *(f"{start} {share:.0%}" for start, share in shares.items()))
    for site in draws[0]:
        found, truth = np.stack([draw[site] for draw in draws]), np.asarray(simulated[site])
        for index in np.ndindex(truth.shape[1:]):
            values, kept = truth[(slice(None), *index)], found[(slice(None), slice(None), *index)]
            ranks = rank_statistics(values, kept)
            test, middle = uniformity_test(ranks, kept.shape[1]), ((ranks >= 5) & (ranks < 95)).mean()
            label = site + "".join(f"[{number}]" for number in index)
            print(f"  {label:24} middle 90 % of the ranks: {middle:6.1%}, p of uniform ranks {test.p_value:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 repeats")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=MODELS)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    logging.getLogger("kpp").setLevel(logging.ERROR)  # divergences of single fits
    for name in [arguments.only] if arguments.only else MODELS:
        calibrate(name, 10 if arguments.quick else arguments.repeats, arguments.seed)


if __name__ == "__main__":
    main()
