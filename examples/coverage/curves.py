"""Simulation-based calibration of curves with their bands, and of gradients."""

from __future__ import annotations

import functools

import jax
import numpy as np

import kpp
from examples.coverage.functions import INFERENCES, LAWS, NARROW, NARROW_GP, POINTS, TRAINING, WORDS
from examples.coverage.simulations import NUM_RANKS, Intervals, Simulation
from kpp.kernels import RBF

TITLE = "Curves and gradients"
ROWS = 40
# The curve of the first feature at some values, averaged over five rows, and the gradient at the first two of them.
BACKGROUND = POINTS[8:13]
GRID = np.linspace(BACKGROUND[:, 0].min(), BACKGROUND[:, 0].max(), 5)
AT_GRID = np.stack([np.column_stack([np.full(5, value), BACKGROUND[:, 1:]]) for value in GRID])
INCLINED = BACKGROUND[:2]


def draw_with_gradients(
    rng: np.random.Generator, kernel: RBF, points: np.ndarray, inclined: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a function at points and its gradients at others, by the derivatives of the kernel in closed form."""
    scale, d = float(np.asarray(kernel.lengthscale)) ** 2, points.shape[1]
    gram = np.asarray(kernel(points, points))
    # Axes: point, inclined point, feature; and inclined point, feature, inclined point, feature.
    steps = (points[:, None] - inclined) / scale
    mixed = np.asarray(kernel(points, inclined))[:, :, None] * steps
    steps = (inclined[:, None] - inclined) / scale
    second = np.eye(d) / scale - steps[..., :, None] * steps[..., None, :]
    second = (np.asarray(kernel(inclined, inclined))[..., None, None] * second).transpose(0, 2, 1, 3)
    mixed, second = mixed.reshape(len(points), -1), second.reshape(inclined.size, inclined.size)
    covariance = np.block([[gram, mixed], [mixed.T, second]])
    drawn = np.linalg.cholesky(covariance + 1e-8 * np.eye(len(covariance))) @ rng.normal(size=len(covariance))
    return drawn[: len(points)], drawn[len(points) :]


def measure_curve(seed: int, inference: str) -> dict[str, Intervals]:
    """Draw a function, its curve and its gradients, fit observations of the function, and ask for the others."""
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    kernel, noise = NARROW.draw(rng)
    points = np.concatenate([TRAINING[:ROWS], AT_GRID.reshape(-1, 3)])
    values, slopes = draw_with_gradients(rng, kernel, points, INCLINED)
    partial = values[ROWS:].reshape(AT_GRID.shape[:2]).mean(axis=1)
    y = values[:ROWS] + np.sqrt(noise) * rng.normal(size=ROWS)
    fit = NARROW_GP.fit(key, TRAINING[:ROWS], y, inference=INFERENCES[inference], num_prior_samples=0)
    curve = kpp.curve(fit, BACKGROUND, "x0", grid=GRID)
    table = curve.summary(0.9, rng_key=key)
    band = (table["band_lower"] <= partial) & (partial <= table["band_upper"])
    laws = {"partial dependence": (curve.law, partial), "gradient": (kpp.gradient(fit, INCLINED), slopes)}
    return {
        **{name: interval(law, truth, key) for name, (law, truth) in laws.items()},
        "partial dependence, all values in the band": Intervals(1.0, 0.0, float(band.all())),
    }


def interval(law: kpp.functionals.FunctionalLaw, truth: np.ndarray, rng_key: jax.Array) -> Intervals:
    """Return the 90 % intervals of a law, with one draw for each of the first draws of the hyperparameters."""
    draws = law.sample(rng_key).reshape(-1, len(truth))[:NUM_RANKS]
    low, high = law.interval(0.9)
    return Intervals(truth, low, high, draws)


SIMULATIONS = {
    f"curve_{inference}": Simulation(
        f"`kpp.curve` and `kpp.gradient` of GPRegression by {WORDS[inference]}",
        f"{LAWS['narrow']}; the curve of the first feature at five values over five rows, gradients at two rows.",
        ROWS,
        functools.partial(measure_curve, inference=inference),
        150,
    )
    for inference in ("laplace", "nuts")
}
