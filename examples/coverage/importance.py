"""Intervals of importances by the reduction of the loss, and the level of their test against 0."""

from __future__ import annotations

import jax
import numpy as np
from numpyro import distributions as dist

import kpp
from examples.coverage.simulations import Intervals, Simulation
from kpp.kernels import RBF
from kpp_models import GPRegression

jax.config.update("jax_enable_x64", True)

TITLE = "Importances"
ROWS = 300
# The variances of sin(1.5 z) / 2 and z / 2 for a standard normal z; the other features are noise.
TRUTH = np.array([0.5 * (1 - np.exp(-4.5)), 0.25, 0.0, 0.0])
SITES = {
    "kernel": RBF(dist.LogNormal(1.0, 1.0).expand([4]), variance=dist.HalfNormal(2.0)),
    "noise_variance": dist.HalfNormal(1.0),
}
# The shares of tests of noise that should not reject.
TESTS = {f"noise not rejected by a test at {level} %": 1 - level / 100 for level in (5, 10)}
LAW = (
    "y = sin(1.5 x0) + x1 / 2 + noise with standard deviation 0.7, four independent standard normal features, of which "
    "two are noise"
)


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows and targets."""
    x = rng.normal(size=(ROWS, 4))
    return x, np.sin(1.5 * x[:, 0]) + x[:, 1] / 2 + 0.7 * rng.normal(size=ROWS)


def measure_fit(seed: int) -> dict[str, Intervals]:
    """Explain the rows of a Gaussian process."""
    x, y = draw(np.random.default_rng(seed))
    key = jax.random.key(seed)
    inference = kpp.Laplace(num_samples=100, progress=False)
    fit = GPRegression(**SITES).fit(key, x, y, inference=inference, num_prior_samples=0)
    return summary(kpp.importance(fit, x, y, rng_key=key), TRUTH)


def measure_function(seed: int) -> dict[str, Intervals]:
    """Explain new rows of a function that has learned some of the noise; it is less important than the truth."""
    rng = np.random.default_rng(seed)
    x, y = draw(rng)
    wrong = 0.2 * rng.normal(size=2)

    def predict(x: np.ndarray) -> np.ndarray:
        return np.sin(1.5 * x[:, 0]) + x[:, 1] / 2 + x[:, 2:] @ wrong

    truth = np.append(TRUTH[:2], -(wrong**2))
    return summary(kpp.importance(predict, x, y, background=draw(rng)[0], rng_key=jax.random.key(seed)), truth)


def summary(found: kpp.inspection.FeatureScores, truth: np.ndarray) -> dict[str, Intervals]:
    """Return the intervals of features with and without effect, and as an interval, whether the test keeps its null."""
    low, high = found["importance"].quantile([0.05, 0.95], ("chain", "draw")).to_numpy()
    p_values = np.array(list(found.dataset.attrs["p_values"].values()))[2:]
    return {
        "importance": Intervals(truth[:2], low[:2], high[:2]),
        "importance of noise": Intervals(truth[2:], low[2:], high[2:]),
        **{name: Intervals(np.zeros(2), p_values <= 1 - kept, np.ones(2)) for name, kept in TESTS.items()},
    }


KNOWN = (
    "the interval of a feature without effect adds the sampling of the rows to the uncertainty of the function. Both "
    "come from the same noise, so that it holds 0 too often; the test counts the noise once, and keeps its level."
)
SIMULATIONS = {
    f"importance_{name}": Simulation(about, f"{LAW}; {rows}.", ROWS, measure, 300, known=known, levels=TESTS)
    for name, about, rows, measure, known in (
        ("fit", "GPRegression by `kpp.Laplace`", "rows of the fit", measure_fit, KNOWN),
        ("function", "a given function", "rows that are new to it", measure_function, ""),
    )
}
