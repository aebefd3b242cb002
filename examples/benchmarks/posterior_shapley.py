"""Time the posterior of the explanation: Shapley values for many draws, their covariance for one, and both together.

Run it as `python examples/benchmarks/posterior_shapley.py [--quick]`. A Gaussian-process regression on scikit-learn's
diabetes data, 442 x 10, all rows as background; 200 draws of the hyperparameters and 100 explained points. The draws
are log-normal around fixed values and do not come from an inference, because the time of the inference is not measured.
The time of the first call includes compilation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from sklearn.datasets import load_diabetes

import kpp
from kpp.games import Interventional, shapley_covariance, shapley_values
from kpp.kernels import RBF
from kpp_models import GPRegression


def fit_with_draws(x: Any, y: Any, num_draws: int) -> kpp.Fit:
    """A fit whose draws are made up: lengthscales around 3, variance around 1, noise variance around 0.5."""
    prior = dist.LogNormal(0.0, 0.3)
    model = GPRegression(RBF(prior.expand([x.shape[1]]), prior), prior)
    model, data, schema = model.prepare(x, y)
    centers = {"kernel.lengthscale": jnp.full(x.shape[1], 3.0), "kernel.variance": jnp.ones(()), "noise_variance": 0.5}
    keys = jax.random.split(jax.random.key(0), len(centers))
    draws = {
        name: center * jnp.exp(0.3 * jax.random.normal(key, (1, num_draws, *jnp.shape(center))))
        for key, (name, center) in zip(keys, centers.items(), strict=True)
    }
    return kpp.Fit(model, None, data, schema, draws, kpp.MAP(progress=False))


def seconds(label: str, run: Callable[[], Any], repeats: int = 1) -> Any:
    """Run, run again, and print how long the first run took and the fastest of the others."""
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        result = jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    print(f"{label:72} {times[0]:8.2f} s first, {min(times[1:]):8.2f} s then", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 draws and 5 points")
    num_draws, num_points = (10, 5) if parser.parse_args().quick else (200, 100)
    jax.config.update("jax_enable_x64", True)
    x, y = load_diabetes(return_X_y=True)
    x, y = jnp.asarray(x / x.std(0)), jnp.asarray((y - y.mean()) / y.std())
    fit = fit_with_draws(x, y, num_draws)
    game, points = Interventional(x), x[:num_points]
    posterior = fit.function_posterior(at="mean")

    functions = seconds(f"posterior mean functions of {num_draws} draws", fit.function)
    values = seconds(
        f"Shapley values of {num_draws} draws at {num_points} points", lambda: shapley_values(game, functions, points)
    )
    within = seconds(
        f"covariance at each of {num_points} points, at the mean hyperparameters",
        lambda: shapley_covariance(game, posterior, points),
    )
    pair = points[:1], points[1:2]
    seconds("covariance across one pair of points", lambda: shapley_covariance(game, posterior, *pair), repeats=9)
    spread = jnp.sqrt(jnp.mean(jnp.var(values, axis=(0, 1))))
    own = jnp.sqrt(jnp.mean(jnp.diagonal(within, axis1=1, axis2=2)))
    explained = x[:40]
    for covariance, what in ((None, "posterior means"), ("auto", "the whole posterior")):
        options = {"value_function": game, "covariance": covariance, "progress": False}
        seconds(
            f"kpp.explain of {len(explained)} points, {num_draws} draws of {what}",
            lambda options=options: kpp.explain(fit, explained, **options).values.values,
        )
    print(f"standard deviation of a Shapley value: {spread:.3f} from hyperparameters, {own:.3f} from the function")


if __name__ == "__main__":
    main()
